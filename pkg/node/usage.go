package node

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/node/usage"
)

// openUsage prepares to measure how much the GPUs are used. watchOver begins.
func (p *plugin) openUsage() {
	if p.UsageInterval <= 0 {
		return
	}
	p.usage = usage.New(usage.Config{
		Interval:   p.UsageInterval,
		GPUs:       p.measurable,
		Read:       p.hardware.Usage,
		Records:    p.claims.Ledger.List,
		PodOf:      func(pid int) types.UID { return nodewatch.PodOf(p.proc(), pid) },
		Containers: usage.FromKubelet(p.podResources()),
	})
	p.metrics.Register(p.NodeName, p.usage)
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
