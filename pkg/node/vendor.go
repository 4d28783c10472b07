package node

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/report"
)

// vendor is one vendor's cards on the node.
type vendor interface {
	claim.Hardware
	// LoadID identifies this boot and this load of the kernel driver.
	LoadID() (string, error)
	Close(ctx context.Context) error
	// WatchHealth tells of errors until ctx ends.
	WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error
	// CheckHealth says what is wrong with a card.
	CheckHealth(ctx context.Context, pciAddress string) error
	// Recovered tells whether what a fatal event reported is over.
	Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error)
	Report(ctx context.Context) (report.Report, error)
}

// remover is a vendor whose partitions somebody else may have made.
type remover interface {
	// RemovalCommand is what a person types on the node to remove a partition.
	RemovalCommand(p gpu.Partition) string
}

// switcher is a vendor whose cards are switched from mode to mode.
type switcher interface {
	// Obstacles says what cannot be had of a card now, although no claim is in its
	// way. held: a claim holds something on the card.
	Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error)
}

// releaser is a vendor whose driver must be released before it can be replaced.
type releaser interface {
	// Release ends the use of the driver for good, and waits for calls under way.
	Release(ctx context.Context) error
}

// loadIDAge is how long a load's identity is believed in. It takes a driver
// longer than that to be unloaded and loaded again.
const loadIDAge = time.Second

// opened is a vendor whose driver is there.
type opened struct {
	name gpu.Vendor
	// vendor is nil as long as the driver cannot be used; err says why.
	vendor
	err error
	// readLoad identifies the load of the driver while vendor is nil; nil: it is not
	// known whether there is one.
	readLoad func() (string, error)
	// driverRoot is the folder of NVIDIA's driver on the host.
	driverRoot string
	// resume puts the driver in if we have taken it out and could not put it in again.
	// Nil: it is not ours to do.
	resume func(context.Context) error

	// mu protects what follows.
	mu sync.Mutex
	// loadID was read at loadIDRead.
	loadID     string
	loadIDRead time.Time
}

// load identifies the load of the driver; empty when it was never loaded, as far as is
// known. While the driver is in use and its module is not there for a moment, it is the
// last one: what is asked of the GPUs then is for the driver to refuse. A driver that
// cannot be used and is not loaded has no load: nothing in the hardware outlives that.
func (o *opened) load() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	read := o.readLoad
	if o.vendor != nil {
		read = o.LoadID
	}
	if read == nil || time.Since(o.loadIDRead) < loadIDAge {
		return o.loadID
	}
	id, err := read()
	switch {
	case err == nil:
		o.loadID = id
	case o.vendor == nil && errors.Is(err, fs.ErrNotExist):
		o.loadID = ""
	}
	o.loadIDRead = time.Now()
	return o.loadID
}

// unusable is the same driver when it cannot be used any more, or yet.
func (o *opened) unusable(err error) *opened {
	now := &opened{name: o.name, err: err, driverRoot: o.driverRoot, readLoad: o.readLoad, loadID: o.load()}
	if o.vendor != nil {
		now.readLoad = o.LoadID
	}
	return now
}
