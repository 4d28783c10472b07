package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
)

// defaultReleasePatience is how long each step of a release may take: claims that are
// being prepared, the watch for errors of GPUs, and calls into the driver.
const defaultReleasePatience = 30 * time.Second

func (c *Config) patience() time.Duration {
	return cmp.Or(c.releasePatience, defaultReleasePatience)
}

// isUpgrading tells whether a vendor's driver is released because it is being replaced.
func (p *plugin) isUpgrading(v gpu.Vendor) bool {
	_, ok := p.hardware.WhyNot(v).(*drivers.UpgradeError) //nolint:errorlint // it is never wrapped
	return ok
}

// vendorWatch follows the drivers of all vendors: it watches the health of their GPUs,
// releases a driver that is to be replaced, and opens those that are there.
type vendorWatch struct {
	*plugin
	// watches are those for errors of GPUs.
	watches map[gpu.Vendor]*healthWatch
}

// healthWatch is a running WatchHealth.
type healthWatch struct {
	cancel context.CancelFunc
	// ended is closed when it has returned.
	ended chan struct{}
}

// watchVendors watches the health of all GPUs until ctx ends. From time to time, and
// when the node says that a driver is replaced, it looks at the drivers. GPUs of a
// driver that is installed, or loaded, after the plugin has started join the others;
// what the plugin does for those goes on undisturbed.
func (p *plugin) watchVendors(ctx context.Context) {
	w := &vendorWatch{plugin: p, watches: map[gpu.Vendor]*healthWatch{}}
	for _, o := range p.hardware.All() {
		w.watch(ctx, o)
	}
	tick := time.NewTicker(p.idleInterval())
	defer tick.Stop()
	for ctx.Err() == nil {
		w.step(ctx)
		select {
		case <-tick.C:
		case <-p.node.Upgraded:
		case <-ctx.Done():
		}
	}
	for vendor := range w.watches {
		w.stopWatch(ctx, vendor)
	}
}

// step releases the drivers that are to be replaced, and opens those that can be opened.
func (w *vendorWatch) step(ctx context.Context) {
	for vendor, signal := range w.node.Upgrades() {
		if o := w.hardware.Find(vendor); o != nil && o.Driver != nil {
			w.release(ctx, o, signal)
		}
	}
	added := w.openDrivers(ctx)
	for _, o := range added {
		w.driverFound(ctx, o)
		w.events.Note(ctx, v1alpha1.EventDriverFound, fmt.Sprintf("The driver of this node's %s GPUs is there now; Tranche gives them out", o.Name.Title()))
		w.watch(ctx, o)
	}
	if len(added) == 0 {
		return
	}
	w.hardware.Learn(w.claims.Ledger.List())
	w.looking.Lock()
	w.lookAtGPUs(ctx)
	w.looking.Unlock()
	w.reconcile(ctx) // finishes releases that waited for the driver
	w.follow.Nudge()
}

func (w *vendorWatch) watch(ctx context.Context, o *drivers.Opened) {
	ctx, cancel := context.WithCancel(ctx)
	h := &healthWatch{cancel: cancel, ended: make(chan struct{})}
	w.watches[o.Name] = h
	go func() {
		defer close(h.ended)
		w.watchHealth(ctx, o)
	}()
}

// stopWatch ends the watch for errors of a vendor's GPUs, and waits for its end, but
// not for a call that hangs.
func (w *vendorWatch) stopWatch(ctx context.Context, vendor gpu.Vendor) {
	h := w.watches[vendor]
	if h == nil {
		return
	}
	delete(w.watches, vendor)
	h.cancel()
	select {
	case <-h.ended:
	case <-time.After(w.patience()):
		klog.FromContext(ctx).Info("The watch for errors of the GPUs does not end; a call into the driver hangs", "vendor", vendor)
	}
}

// release gives up a driver that is to be replaced, when claims that are being prepared
// are done, and no profile is being applied. A driver that cannot be released, because a
// call hangs in it, is released by the end of this process; the next one does not open
// it.
func (w *vendorWatch) release(ctx context.Context, o *drivers.Opened, signal string) {
	w.looking.Lock()
	defer w.looking.Unlock()
	w.closeToClaims(ctx, o, &drivers.UpgradeError{Signal: signal})
	w.stopWatch(ctx, o.Name)
	closing, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	var err error
	if r, ok := o.Driver.(hardware.Releaser); ok {
		err = r.Release(closing)
	} else {
		err = o.Close(closing)
	}
	if err != nil && ctx.Err() == nil {
		w.stop(fmt.Errorf("the %s driver cannot be released for its upgrade, so the plugin ends and starts again without it: %w", o.Name.Title(), err))
		return
	}
	w.events.Note(ctx, v1alpha1.EventDriverReleased, fmt.Sprintf("The %s driver of this node was released for its upgrade, as %s asks for. Pods that hold its GPUs keep them and can leave; no new ones get any until that is gone and the driver can be used", o.Name.Title(), signal))
	w.lookAtGPUs(ctx)
}

// closeToClaims lets no claim at a driver any more. One that is being prepared is
// finished first, unless a GPU hangs.
func (w *vendorWatch) closeToClaims(ctx context.Context, o *drivers.Opened, why error) {
	var gpus []string
	for _, c := range w.gpus.List() {
		if c.Vendor == o.Name {
			gpus = append(gpus, c.PCIAddress)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	err := w.claims.Exclusive(waiting, gpus, "has its driver replaced", func([]ledger.Record) error {
		w.hardware.CannotUse(o.Name, o, why)
		return nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "A driver is released although claims are being prepared", "vendor", o.Name)
		w.hardware.CannotUse(o.Name, o, why)
	}
}
