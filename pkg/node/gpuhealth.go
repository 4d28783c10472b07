package node

import (
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

// gpuHealth returns the health of all GPUs that the node has, also of those that were found by an
// earlier run only. While their driver is being replaced, GPUs count as healthy.
func (p *plugin) gpuHealth() (all []telemetry.Health) {
	known := p.gpus.List()
	for _, g := range p.roster.All() {
		h := telemetry.Health{GPU: g.Name(), Unavailable: p.monitor.publisher.UnavailableBecause(g.PCIAddress)}
		now := lists.Find(known, func(k *inventory.GPU) bool { return k.PCIAddress == g.PCIAddress })
		switch {
		case p.drivers.IsUpgrading(g.Vendor):
		case now == nil:
			h.Cause = gpu.CauseMissing
		case now.Unhealthy():
			h.Cause = now.Cause()
		}
		all = append(all, h)
	}
	return all
}
