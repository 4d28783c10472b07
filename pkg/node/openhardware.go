package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// opener opens the driver of one vendor.
type opener struct {
	name gpu.Vendor
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

// openPatience is how long one driver may take to be opened. Opening the library
// of eight GPUs that sleep takes a while.
const openPatience = 30 * time.Second

// try opens the driver, and returns when that is done or patience ends. A driver
// that hangs is not opened a second time: the next try waits for the same answer.
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

// learnVendors learns whose GPUs the machine may have.
func (p *plugin) learnVendors(ctx context.Context) error {
	vendors, err := p.Machine.Vendors()
	if err != nil {
		p.events.lastWords(ctx, v1alpha1.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
		return err
	}
	p.openers, p.node.vendors = openersOf(vendors), vendors
	if p.NodeLabels {
		p.labels = newLabeler(p.client, p.node)
	}
	return nil
}

// openersOf are the openers of vendors.
func openersOf(vendors []hardware.Vendor) []*opener {
	openers := make([]*opener, len(vendors))
	for i, v := range vendors {
		openers[i] = &opener{name: v.Name(), open: v.Open}
	}
	return openers
}

// openMissing opens the drivers that are not open yet, all at once. It returns
// those that now are, and why the others are not, by vendor.
func (h *nodeGPUs) openMissing(ctx context.Context, openers []*opener, patience time.Duration) (added []*opened, failed map[gpu.Vendor]error) {
	failed = map[gpu.Vendor]error{}
	attempts := make([]attempt, len(openers))
	var wg sync.WaitGroup
	for i, vendor := range openers {
		if !h.has(vendor.name) {
			wg.Go(func() { attempts[i].driver, attempts[i].err = vendor.try(ctx, time.After(patience)) })
		}
	}
	wg.Wait()
	for i, vendor := range openers {
		switch o, err := openedBy(vendor.name, attempts[i].driver), attempts[i].err; {
		case err != nil:
			h.cannotUse(vendor.name, o, err)
			failed[vendor.name] = err
		case o != nil:
			h.add(o)
			added = append(added, o)
		}
	}
	return added, failed
}

// openDrivers opens the drivers that are not open, but for those that are being
// replaced. It returns those that now are.
func (p *plugin) openDrivers(ctx context.Context) (added []*opened) {
	upgrades := p.node.upgrades()
	openers := slices.DeleteFunc(slices.Clone(p.openers), func(o *opener) bool { return upgrades[o.name] != "" })
	added, failed := p.hardware.openMissing(ctx, openers, openPatience)
	for _, o := range p.openers {
		if why := upgrades[o.name]; why != "" && !p.hardware.has(o.name) {
			failed[o.name] = &upgradeError{why}
			p.hardware.cannotUse(o.name, nil, failed[o.name])
		}
	}
	p.tellFailures(ctx, failed)
	return added
}

// waitForHardware returns when there is something to serve: GPUs and a driver for them,
// or GPUs that were here before, claims that hold some, or a driver that is loaded and
// cannot be used. Then the kubelet is served without that driver until it can be used:
// pods that hold GPUs must be able to leave, which may be what the driver waits for.
// Most nodes of a cluster have none of that; there the plugin idles.
func (p *plugin) waitForHardware(ctx context.Context, records *ledger.Ledger) error {
	p.hardware = &nodeGPUs{}
	said := ""
	err := wait.PollUntilContextCancel(ctx, p.idleInterval(), true, func(ctx context.Context) (bool, error) {
		if added := p.openDrivers(ctx); len(added) > 0 || p.drivers.problem() != nil || len(records.List()) > 0 {
			return true, nil
		}
		p.registration.SetIdle()
		if reason := p.whyIdle(); reason != said {
			said = reason
			klog.FromContext(ctx).Info("Nothing to publish, looking again from time to time", "reason", said, "every", p.idleInterval())
		}
		return false, nil
	})
	p.serving = err == nil
	return err
}

// whyIdle says why no driver is open.
func (p *plugin) whyIdle() string {
	var reasons []string
	for _, o := range p.openers {
		if err := p.hardware.whyNot(o.name); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	return strings.Join(reasons, "; ")
}

func (p *plugin) closeHardware(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.hardware.Close(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Closing the hardware failed")
	}
}

// tellFailures takes in which drivers cannot be used, and says once why.
func (p *plugin) tellFailures(ctx context.Context, failed map[gpu.Vendor]error) {
	told, expected := map[gpu.Vendor]string{}, map[gpu.Vendor]error{}
	for vendor, err := range failed {
		told[vendor] = err.Error()
		isExpected := p.expects(vendor, err)
		if isExpected {
			expected[vendor] = err
		}
		upgrade := (*upgradeError)(nil)
		switch {
		case p.toldFailures[vendor] == told[vendor]:
		case !isExpected:
			klog.FromContext(ctx).V(2).Info("No GPUs of this vendor; looking again from time to time", "vendor", vendor, "reason", told[vendor], "every", p.idleInterval())
		case errors.As(err, &upgrade): // told when it was released
		default:
			p.events.warn(ctx, v1alpha1.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the %s GPUs of this node, and tries again: %v. Pods that hold some can leave; no new ones get any", vendor.Title(), err))
		}
	}
	p.toldFailures = told
	p.drivers.set(expected)
}

// expects tells whether the node should have a driver that can be used: it had GPUs of
// the vendor, or the driver's module is loaded.
func (p *plugin) expects(vendor gpu.Vendor, err error) bool {
	if !errors.Is(err, hardware.ErrNoDriver) && !errors.As(err, new(*upgradeError)) {
		return true
	}
	if slices.ContainsFunc(p.roster.all(), func(g gpu.GPU) bool { return g.Vendor == vendor }) {
		return true
	}
	o := p.hardware.find(vendor)
	return o != nil && o.load() != ""
}

// resumeDrivers puts in, as long as that fails, what a change of the memory mode has
// taken out: a driver that is open is not looked for.
func (p *plugin) resumeDrivers(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, o := range p.hardware.all() {
			if o.resume == nil {
				continue
			}
			if err := o.resume(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("A driver is not there", "vendor", o.name, "reason", err.Error())
			}
		}
	}, p.idleInterval())
}
