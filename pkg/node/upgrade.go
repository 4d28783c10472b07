package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/follow"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// defaultReleasePatience limits each step of releasing a driver: the end of claims that are
// being prepared, of the watch for errors, and of calls into the driver.
const defaultReleasePatience = 30 * time.Second

func (c *Config) patience() time.Duration {
	return cmp.Or(c.releasePatience, defaultReleasePatience)
}

// vendorWatch watches the drivers of all vendors: the health of their GPUs, drivers that are to
// be upgraded, and drivers that become usable.
type vendorWatch struct {
	*monitor
	follow *follow.Follower
	// watches has the running health watches.
	watches map[gpu.Vendor]*healthWatch
	// unknown is what was last said about an unknown value of the label for upgrades.
	unknown string
}

type healthWatch struct {
	cancel context.CancelFunc
	// ended is closed when WatchHealth has returned.
	ended chan struct{}
}

// watchVendors watches the health of all GPUs until ctx ends. It checks the drivers at
// intervals, and when the node signals an upgrade. GPUs of a driver that is installed or loaded
// later are added without a restart.
func (p *plugin) watchVendors(ctx context.Context) {
	w := &vendorWatch{monitor: p.monitor, follow: p.follow, watches: map[gpu.Vendor]*healthWatch{}}
	for _, o := range p.drivers.All() {
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

// step releases the drivers that are to be upgraded, and opens those that can be opened.
func (w *vendorWatch) step(ctx context.Context) {
	if unknown := w.node.UnknownUpgrade(); unknown != w.unknown {
		if w.unknown = unknown; unknown != "" {
			w.events.Warn(ctx, names.EventLabelIgnored, unknown)
		}
	}
	for vendor, signal := range w.node.Upgrades() {
		if o := w.drivers.Find(vendor); o != nil && o.Driver != nil {
			w.release(ctx, o, signal)
		}
	}
	added := w.drivers.Open(ctx)
	for _, o := range added {
		w.claims.driverFound(ctx, o)
		w.events.DriverFound(ctx, o.Name)
		w.watch(ctx, o)
	}
	if len(added) == 0 {
		return
	}
	w.drivers.Learn(w.records.List())
	w.checkNow(ctx)
	w.claims.reconcile(ctx) // to finish releases that waited for the driver
	w.follow.Nudge()
}

func (w *vendorWatch) watch(ctx context.Context, o *inventory.VendorDriver) {
	ctx, cancel := context.WithCancel(ctx)
	h := &healthWatch{cancel: cancel, ended: make(chan struct{})}
	w.watches[o.Name] = h
	go func() {
		defer close(h.ended)
		w.watchHealth(ctx, o)
	}()
}

// stopWatch ends the health watch of a vendor, and waits for its end, but not for a call that
// hangs.
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
		klog.FromContext(ctx).Info("The health watch does not end, because a call into the driver hangs", "vendor", vendor)
	}
}

// release closes a driver that is to be upgraded, after claims that are being prepared, or a
// profile that is being applied. If a call hangs in the driver, only the end of this process
// releases it; the next process does not open it.
func (w *vendorWatch) release(ctx context.Context, o *inventory.VendorDriver, signal string) {
	w.looking.Lock()
	defer w.looking.Unlock()
	w.closeToClaims(ctx, o, &inventory.UpgradeError{Signal: signal})
	w.stopWatch(ctx, o.Name)
	closing, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	err := o.Release(closing)
	if err == nil {
		err = o.Close(closing)
	}
	if err != nil && ctx.Err() == nil {
		w.stop(fmt.Errorf("the %s driver cannot be released for its upgrade, so the plugin restarts without it: %w", o.Name.Title(), err))
		return
	}
	w.events.Note(ctx, names.EventDriverReleased, fmt.Sprintf("The %s driver of this node was released for its upgrade, which %s requests. Pods that hold its GPUs keep them and can end; claims are prepared again when the request is gone and the driver can be used", o.Name.Title(), signal))
	w.lookAtGPUs(ctx)
}

// closeToClaims makes the driver unusable for claims. It waits for claims that are being
// prepared, unless a GPU hangs.
func (w *vendorWatch) closeToClaims(ctx context.Context, o *inventory.VendorDriver, why error) {
	var gpus []string
	for _, g := range w.gpus.List() {
		if g.Vendor == o.Name {
			gpus = append(gpus, g.PCIAddress)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	err := w.claims.Exclusive(waiting, gpus, "has its driver replaced", func([]ledger.Record) error {
		w.drivers.CannotUse(o.Name, o, why)
		return nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Releasing a driver although claims are being prepared", "vendor", o.Name)
		w.drivers.CannotUse(o.Name, o, why)
	}
}
