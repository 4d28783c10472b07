package node

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

// openUsage prepares to measure how much the GPUs are used. watchOver begins. What is reported
// without measuring, such as the models of the GPUs, is reported in any case.
func (p *plugin) openUsage(ctx context.Context) {
	p.usage = telemetry.NewSampler(telemetry.SamplerConfig{
		Interval:   p.UsageInterval,
		GPUs:       p.measurable,
		Read:       p.readUsage,
		Records:    func() []ledger.Record { return p.ledgerNow(ctx) },
		PodOf:      p.tenantOf,
		Containers: telemetry.ContainersFromKubelet(p.podResources()),
		CheckPods:  p.checkPods,
	})
	p.metrics.Register(p.NodeName, p.usage)
}

func (p *plugin) readUsage(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	driver, err := p.hardware.Of(pciAddress)
	if err != nil {
		return gpu.Usage{}, err
	}
	return driver.Usage(ctx, pciAddress)
}

// ledgerNow lists the records of the ledger. During a rolling update, the other plugin
// changes them, too.
func (p *plugin) ledgerNow(ctx context.Context) []ledger.Record {
	if err := p.claims.Refresh(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read the changes of the ledger by another plugin", "err", err)
	}
	return p.claims.Ledger.List()
}

// tenantOf returns the pod of a process, empty for processes of the plugin, such as MPS daemons.
func (p *plugin) tenantOf(pid int) (types.UID, error) {
	uid, err := nodewatch.PodOf(p.proc(), pid)
	if uid == p.PodUID {
		uid = ""
	}
	return uid, err
}

// checkPods corrects the pods in the record of a claim.
func (p *plugin) checkPods(ctx context.Context, c ledger.ClaimRef) {
	if err := p.claims.UpdatePods(ctx, c, p.getClaim); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot find out which pods use a claim, which is tried again", "claim", c.String(), "claimUID", c.UID, "err", err)
	}
}

// measurable lists the GPUs of the node.
func (p *plugin) measurable() []gpu.GPU {
	known := p.gpus.List()
	gpus := make([]gpu.GPU, len(known))
	for i := range known {
		gpus[i] = known[i].GPU
	}
	return gpus
}
