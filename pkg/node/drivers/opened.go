package drivers

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// loadIDAge is how long a load's identity is believed in. It takes a driver
// longer than that to be unloaded and loaded again.
const loadIDAge = time.Second

// Opened is a vendor whose driver is there.
type Opened struct {
	Name gpu.Vendor
	// Driver is nil as long as the driver cannot be used; err says why.
	hardware.Driver
	err error
	// readLoad identifies the load of the driver while Driver is nil; nil: it is not
	// known whether there is one.
	readLoad func() (string, error)
	// ProgramRoot is the folder on the host that holds the driver's programs; empty for a
	// driver without MPS.
	ProgramRoot string
	// Resume puts the driver in if we have taken it out and could not put it in again.
	// Nil: it is not ours to do.
	Resume func(context.Context) error

	// mu protects what follows.
	mu sync.Mutex
	// loadID was read at loadIDRead.
	loadID     string
	loadIDRead time.Time
}

// openedBy is what opening a vendor's driver gave; nil for nothing.
func openedBy(name gpu.Vendor, o *hardware.Opened) *Opened {
	if o == nil {
		return nil
	}
	return &Opened{
		Name: name, Driver: o.Driver, loadID: o.LoadID, readLoad: o.ReadLoadID, ProgramRoot: o.ProgramRoot, Resume: o.Resume,
	}
}

// Load identifies the load of the driver; empty when it was never loaded, as far as is
// known. While the driver is in use and its module is not there for a moment, it is the
// last one: what is asked of the GPUs then is for the driver to refuse. A driver that
// cannot be used and is not loaded has no load: nothing in the hardware outlives that.
func (o *Opened) Load() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	read := o.readLoad
	if o.Driver != nil {
		read = o.LoadID
	}
	if read == nil || time.Since(o.loadIDRead) < loadIDAge {
		return o.loadID
	}
	id, err := read()
	switch {
	case err == nil:
		o.loadID = id
	case o.Driver == nil && errors.Is(err, fs.ErrNotExist):
		o.loadID = ""
	}
	o.loadIDRead = time.Now()
	return o.loadID
}

// unusable is the same driver when it cannot be used any more, or yet.
func (o *Opened) unusable(err error) *Opened {
	now := &Opened{Name: o.Name, err: err, ProgramRoot: o.ProgramRoot, readLoad: o.readLoad, loadID: o.Load()}
	if o.Driver != nil {
		now.readLoad = o.LoadID
	}
	return now
}
