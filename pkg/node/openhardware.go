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

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
)

// learnVendors finds the vendors whose GPUs the machine may have.
func (p *plugin) learnVendors(ctx context.Context) error {
	vendors, err := p.Machine.Vendors()
	if err != nil {
		p.events.LastWords(ctx, names.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
		return err
	}
	p.openers, p.node.Vendors = drivers.OpenersOf(vendors), vendors
	if p.NodeLabels {
		p.labels = nodewatch.NewLabeler(p.client, p.node)
	}
	return nil
}

// openDrivers opens the drivers that are not open and not being replaced. It returns those that
// it has opened.
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
	for vendor, err := range failed {
		if errors.Is(err, hardware.ErrRestart) {
			p.stop(fmt.Errorf("the %s driver was replaced, so the plugin restarts: %w", vendor.Title(), err))
			return added // the next process reports what it cannot use
		}
	}
	p.tellFailures(ctx, failed)
	return added
}

// waitForHardware waits until the node has a driver, GPUs of an earlier run, or claims that
// hold GPUs. If the driver cannot be used, the plugin serves the kubelet without it, because
// pods that hold GPUs must be able to end; the driver may be waiting for that. On nodes
// without GPUs, the plugin waits here for ever.
func (p *plugin) waitForHardware(ctx context.Context, records *ledger.Ledger) error {
	p.hardware = &drivers.Set{}
	said := ""
	err := wait.PollUntilContextCancel(ctx, p.idleInterval(), true, func(ctx context.Context) (bool, error) {
		if added := p.openDrivers(ctx); len(added) > 0 || p.drivers.Problem() != nil || len(records.List()) > 0 {
			return true, nil //nolint:nilerr // a driver is expected
		}
		p.registration.SetIdle()
		if reason := p.whyIdle(); reason != said {
			said = reason
			klog.FromContext(ctx).Info("No GPUs to publish; checking again at intervals", "reason", said, "every", p.idleInterval())
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
		klog.FromContext(ctx).Error(err, "Cannot close the drivers")
	}
}

// tellFailures records which drivers cannot be used, and reports each reason once.
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
			klog.FromContext(ctx).V(2).Info("No GPUs of this vendor; checking again at intervals", "vendor", vendor, "reason", told[vendor], "every", p.idleInterval())
		case errors.As(err, &upgrade): // reported when it was released
		default:
			p.events.Warn(ctx, names.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the %s GPUs of this node, which is retried: %v. Pods that hold some can end; no other claims are prepared", vendor.Title(), err))
		}
	}
	p.toldFailures = told
	p.drivers.Set(expected)
}

// expects tells whether the node should have a usable driver: it had GPUs of the vendor, or the
// driver's kernel module is loaded.
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

// resumeDrivers retries loading a driver that a change of the memory mode has unloaded and
// could not load again. openDrivers does not do that, because the driver is open.
func (p *plugin) resumeDrivers(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, o := range p.hardware.All() {
			if o.Resume == nil {
				continue
			}
			if err := o.Resume(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("Cannot load a driver again, which is retried", "vendor", o.Name, "reason", err.Error())
			}
		}
	}, p.idleInterval())
}
