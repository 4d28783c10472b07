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
	// underWay gets the result of open while that is running; nil: it is not running.
	underWay chan attempt
}

// attempt is the result of opening a driver.
type attempt struct {
	driver *hardware.Opened
	err    error
}

// OpenPatience is how long opening one driver may take. Waking up eight GPUs takes a while.
const OpenPatience = 30 * time.Second

// try opens the driver, and returns after that or at the end of patience. If the driver hangs,
// the next call waits for the same result.
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

// OpenersOf returns openers for vendors.
func OpenersOf(vendors []hardware.Vendor) []*Opener {
	openers := make([]*Opener, len(vendors))
	for i, v := range vendors {
		openers[i] = &Opener{Name: v.Name(), open: v.Open}
	}
	return openers
}

// OpenMissing opens, in parallel, the drivers that are not open. It returns the opened ones, and
// why others could not be opened.
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
