package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// opener opens the driver of one vendor.
type opener struct {
	name gpu.Vendor
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

// openPatience is how long opening one driver may take. Waking up eight GPUs takes a while.
const openPatience = 30 * time.Second

// try opens the driver, and returns after that or at the end of patience. If the driver hangs,
// the next call waits for the same result.
func (o *opener) try(ctx context.Context, patience <-chan time.Time) (*hardware.Opened, error) {
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
		return nil, hardware.NoDriver(o.name, errors.New("its driver hangs while it is opened; look for it in dmesg"))
	case <-ctx.Done():
		return nil, hardware.NoDriver(o.name, ctx.Err())
	}
}

// Open opens, in parallel, the drivers that are not open and not being replaced. It returns those
// that it has opened, and reports why others could not be opened.
func (h *Drivers) Open(ctx context.Context) (added []*VendorDriver) {
	upgrades, failed := h.cfg.Upgrades(), map[gpu.Vendor]error{}
	attempts := make([]attempt, len(h.openers))
	var wg sync.WaitGroup
	for i, o := range h.openers {
		switch signal := upgrades[o.name]; {
		case h.Has(o.name):
		case signal != "":
			attempts[i].err = &UpgradeError{Signal: signal}
		default:
			wg.Go(func() { attempts[i].driver, attempts[i].err = o.try(ctx, time.After(h.patience())) })
		}
	}
	wg.Wait()
	for i, vendor := range h.openers {
		switch o, err := openedBy(vendor.name, attempts[i].driver), attempts[i].err; {
		case err != nil:
			h.CannotUse(vendor.name, o, err)
			failed[vendor.name] = err
		case o != nil:
			h.add(o)
			added = append(added, o)
		}
	}
	for vendor, err := range failed {
		if errors.Is(err, hardware.ErrRestart) {
			h.cfg.Stop(fmt.Errorf("the %s driver was replaced, so the plugin restarts: %w", vendor.Title(), err))
			return added // the next process reports what it cannot use
		}
	}
	h.setFailed(ctx, failed)
	return added
}

func (h *Drivers) patience() time.Duration { return cmp.Or(h.cfg.patience, openPatience) }

// WhyNone says why no driver is open.
func (h *Drivers) WhyNone() string {
	var reasons []string
	for _, o := range h.openers {
		if err := h.WhyNot(o.name); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	return strings.Join(reasons, "; ")
}

// Resume loads drivers again that a change of the memory mode has unloaded and could not load. Open
// does not do that, because these drivers are open.
func (h *Drivers) Resume(ctx context.Context) {
	for _, o := range h.All() {
		if o.Resume == nil {
			continue
		}
		if err := o.Resume(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Cannot load a driver again, which is retried", "vendor", o.Name, "reason", err.Error())
		}
	}
}
