package node

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
)

// findVendors finds the vendors whose GPUs the machine may have.
func (p *plugin) findVendors(ctx context.Context) error {
	vendors, err := p.Machine.Vendors()
	if err != nil {
		p.events.LastWords(ctx, names.EventHardwareUnusable, fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
		return err
	}
	p.node.Vendors = vendors
	p.hardware = drivers.New(drivers.Config{
		Vendors: vendors, Upgrades: p.node.Upgrades, Warn: p.events.Warn, Stop: p.stop,
		HadGPUs: func(v gpu.Vendor) bool {
			return slices.ContainsFunc(p.roster.All(), func(g gpu.GPU) bool { return g.Vendor == v })
		},
	})
	if p.NodeLabels {
		p.labels = nodewatch.NewLabeler(p.client, p.node)
	}
	return nil
}

// waitForHardware waits until the node has a driver, GPUs of an earlier run, or claims that
// hold GPUs. If the driver cannot be used, the plugin serves the kubelet without it, because
// pods that hold GPUs must be able to end; the driver may be waiting for that. On nodes
// without GPUs, the plugin waits here for ever.
func (p *plugin) waitForHardware(ctx context.Context, records *ledger.Ledger) error {
	said := ""
	err := wait.PollUntilContextCancel(ctx, p.idleInterval(), true, func(ctx context.Context) (bool, error) {
		if added := p.hardware.Open(ctx); len(added) > 0 || p.hardware.Problem() != nil || len(records.List()) > 0 {
			return true, nil //nolint:nilerr // a driver is expected
		}
		p.registration.SetIdle()
		if reason := p.hardware.WhyNone(); reason != said {
			said = reason
			klog.FromContext(ctx).Info("No GPUs to publish; checking again at intervals", "reason", said, "every", p.idleInterval())
		}
		return false, nil
	})
	p.serving = err == nil
	return err
}

func (p *plugin) closeHardware(ctx context.Context) {
	if err := p.hardware.Close(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot close the drivers")
	}
}
