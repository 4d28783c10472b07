package node

import (
	"context"
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

// loadIDAge is how long a load's identity is believed in. It takes a driver
// longer than that to be unloaded and loaded again.
const loadIDAge = time.Second

// opened is a vendor whose driver is there.
type opened struct {
	name gpu.Vendor
	// vendor is nil as long as the driver is there and cannot be used; err says
	// why.
	vendor
	err error
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

// load identifies the load of the driver. While there is none, it is the last
// one: what is asked of the cards then is for the driver to refuse.
func (o *opened) load() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.vendor == nil || time.Since(o.loadIDRead) < loadIDAge {
		return o.loadID
	}
	if id, err := o.LoadID(); err == nil {
		o.loadID = id
	}
	o.loadIDRead = time.Now()
	return o.loadID
}
