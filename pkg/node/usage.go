package node

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

// newSampler returns what measures how much the GPUs are used. What is reported without measuring,
// such as the models of the GPUs, is reported in any case.
func newSampler(ctx context.Context, c *claims) *telemetry.Sampler {
	return telemetry.NewSampler(telemetry.SamplerConfig{
		Interval:   c.UsageInterval,
		GPUs:       c.gpus.Now,
		Read:       c.readUsage,
		Records:    func() []ledger.Record { return c.recordsNow(ctx) },
		PodOf:      c.tenantOf,
		Limited:    c.limiter.Used,
		Containers: telemetry.ContainersFromKubelet(c.podResources()),
		CheckPods:  c.checkPods,
	})
}

func (c *claims) readUsage(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	driver, err := c.drivers.Of(pciAddress)
	if err != nil {
		return gpu.Usage{}, err
	}
	return driver.Usage(ctx, pciAddress)
}

// recordsNow lists the records of the ledger. During a rolling update, the other plugin
// changes them, too.
func (c *claims) recordsNow(ctx context.Context) []ledger.Record {
	if err := c.Refresh(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read the changes of the ledger by another plugin", "err", err)
	}
	return c.records.List()
}

// tenantOf returns the pod of a process, empty for processes of the plugin, such as MPS daemons.
func (c *claims) tenantOf(pid int) (types.UID, error) {
	uid, err := inventory.PodOf(c.proc(), pid)
	if uid == c.PodUID {
		uid = ""
	}
	return uid, err
}

// checkPods corrects the pods in the record of a claim.
func (c *claims) checkPods(ctx context.Context, ref ledger.ClaimRef) {
	if err := c.UpdatePods(ctx, ref, "", c.getClaim); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot find out which pods use a claim, which is tried again", "claim", ref.String(), "claimUID", ref.UID, "err", err)
	}
}
