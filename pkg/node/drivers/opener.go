package drivers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Opener opens the driver of one vendor.
type Opener struct {
	Name gpu.Vendor
	// open is hardware.Vendor's Open.
	open func(context.Context) (*hardware.Opened, error)
	// underWay brings what open answers, while it has not; nil: it is not running.
	underWay chan attempt
}

// attempt is what came of opening a driver.
type attempt struct {
	driver *hardware.Opened
	err    error
}

// OpenPatience is how long one driver may take to be opened. Opening the library
// of eight GPUs that sleep takes a while.
const OpenPatience = 30 * time.Second

// try opens the driver, and returns when that is done or patience ends. A driver
// that hangs is not opened a second time: the next try waits for the same answer.
func (o *Opener) try(ctx context.Context, patience <-chan time.Time) (*hardware.Opened, error) {
	if o.underWay == nil {
		answer := make(chan attempt, 1)
		o.underWay = answer
		go func() {
			driver, err := o.open(ctx)
			answer <- attempt{driver, err}
		}()
	}
	select {
	case a := <-o.underWay:
		o.underWay = nil
		return a.driver, a.err
	case <-patience:
		return nil, hardware.NoDriver(o.Name, errors.New("its driver hangs while it is opened; look for it in dmesg"))
	case <-ctx.Done():
		return nil, hardware.NoDriver(o.Name, ctx.Err())
	}
}

// OpenersOf are the openers of vendors.
func OpenersOf(vendors []hardware.Vendor) []*Opener {
	openers := make([]*Opener, len(vendors))
	for i, v := range vendors {
		openers[i] = &Opener{Name: v.Name(), open: v.Open}
	}
	return openers
}

// OpenMissing opens the drivers that are not open yet, all at once. It returns
// those that now are, and why the others are not, by vendor.
func (h *Set) OpenMissing(ctx context.Context, openers []*Opener, patience time.Duration) (added []*Opened, failed map[gpu.Vendor]error) {
	failed = map[gpu.Vendor]error{}
	attempts := make([]attempt, len(openers))
	var wg sync.WaitGroup
	for i, vendor := range openers {
		if !h.Has(vendor.Name) {
			wg.Go(func() { attempts[i].driver, attempts[i].err = vendor.try(ctx, time.After(patience)) })
		}
	}
	wg.Wait()
	for i, vendor := range openers {
		switch o, err := openedBy(vendor.Name, attempts[i].driver), attempts[i].err; {
		case err != nil:
			h.CannotUse(vendor.Name, o, err)
			failed[vendor.Name] = err
		case o != nil:
			h.add(o)
			added = append(added, o)
		}
	}
	return added, failed
}
