package inventory

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// loadIDAge is how long the ID of a load is cached. Reloading a driver takes longer.
const loadIDAge = time.Second

// VendorDriver is the driver of a vendor.
type VendorDriver struct {
	Name gpu.Vendor
	// Driver is nil while the driver cannot be used; err says why.
	hardware.Driver
	err error
	// readLoad reads the ID of the driver's load while Driver is nil; nil: it cannot be
	// read.
	readLoad func() (string, error)
	// ProgramRoot is the folder of the driver's programs on the host; empty for a driver
	// without MPS.
	ProgramRoot string
	// Resume loads the driver if the plugin has unloaded it and could not load it again.
	// Nil: the plugin never unloads it.
	Resume func(context.Context) error

	// mu protects the fields below.
	mu sync.Mutex
	// loadID was read at loadIDRead.
	loadID     string
	loadIDRead time.Time
}

// openedBy converts the result of opening a vendor's driver; nil for nil.
func openedBy(name gpu.Vendor, o *hardware.Opened) *VendorDriver {
	if o == nil {
		return nil
	}
	return &VendorDriver{
		Name: name, Driver: o.Driver, loadID: o.LoadID, readLoad: o.ReadLoadID, ProgramRoot: o.ProgramRoot, Resume: o.Resume,
	}
}

// Load returns the ID of the driver's load; empty if it is not loaded. While the driver is open,
// and its module is unloaded for a moment, Load returns the last ID: the driver refuses calls
// then. A driver that cannot be used and is not loaded has none, because no partition survives
// that.
func (o *VendorDriver) Load() string {
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

// unusable returns the same driver as one that cannot be used.
func (o *VendorDriver) unusable(err error) *VendorDriver {
	now := &VendorDriver{Name: o.Name, err: err, ProgramRoot: o.ProgramRoot, readLoad: o.readLoad, loadID: o.Load()}
	if o.Driver != nil {
		now.readLoad = o.LoadID
	}
	return now
}
