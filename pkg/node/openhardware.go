package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
)

// learnVendors learns whose GPUs the machine may have.
func (p *plugin) learnVendors(ctx context.Context) error {
	vendors, err := p.Machine.Vendors()
	if err != nil {
		p.events.LastWords(ctx, v1alpha1.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
		return err
	}
	p.openers, p.node.Vendors = drivers.OpenersOf(vendors), vendors
	if p.NodeLabels {
		p.labels = nodewatch.NewLabeler(p.client, p.node)
	}
	return nil
}

// openDrivers opens the drivers that are not open, but for those that are being
// replaced. It returns those that now are.
func (p *plugin) openDrivers(ctx context.Context) (added []*drivers.Opened) {
	upgrades := p.node.Upgrades()
	openers := slices.DeleteFunc(slices.Clone(p.openers), func(o *drivers.Opener) bool { return upgrades[o.Name] != "" })
	added, failed := p.hardware.OpenMissing(ctx, openers, drivers.OpenPatience)
	for _, o := range p.openers {
		if why := upgrades[o.Name]; why != "" && !p.hardware.Has(o.Name) {
			failed[o.Name] = &drivers.UpgradeError{Signal: why}
			p.hardware.CannotUse(o.Name, nil, failed[o.Name])
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
	p.hardware = &drivers.Set{}
	said := ""
	err := wait.PollUntilContextCancel(ctx, p.idleInterval(), true, func(ctx context.Context) (bool, error) {
		if added := p.openDrivers(ctx); len(added) > 0 || p.drivers.Problem() != nil || len(records.List()) > 0 {
			return true, nil //nolint:nilerr // a problem is something to serve
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
		if err := p.hardware.WhyNot(o.Name); err != nil {
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
		upgrade := (*drivers.UpgradeError)(nil)
		switch {
		case p.toldFailures[vendor] == told[vendor]:
		case !isExpected:
			klog.FromContext(ctx).V(2).Info("No GPUs of this vendor; looking again from time to time", "vendor", vendor, "reason", told[vendor], "every", p.idleInterval())
		case errors.As(err, &upgrade): // told when it was released
		default:
			p.events.Warn(ctx, v1alpha1.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the %s GPUs of this node, and tries again: %v. Pods that hold some can leave; no new ones get any", vendor.Title(), err))
		}
	}
	p.toldFailures = told
	p.drivers.Set(expected)
}

// expects tells whether the node should have a driver that can be used: it had GPUs of
// the vendor, or the driver's module is loaded.
func (p *plugin) expects(vendor gpu.Vendor, err error) bool {
	if !errors.Is(err, hardware.ErrNoDriver) && !errors.As(err, new(*drivers.UpgradeError)) {
		return true
	}
	if slices.ContainsFunc(p.roster.All(), func(g gpu.GPU) bool { return g.Vendor == vendor }) {
		return true
	}
	o := p.hardware.Find(vendor)
	return o != nil && o.Load() != ""
}

// resumeDrivers puts in, as long as that fails, what a change of the memory mode has
// taken out: a driver that is open is not looked for.
func (p *plugin) resumeDrivers(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, o := range p.hardware.All() {
			if o.Resume == nil {
				continue
			}
			if err := o.Resume(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("A driver is not there", "vendor", o.Name, "reason", err.Error())
			}
		}
	}, p.idleInterval())
}
