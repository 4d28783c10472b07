package node

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/nodewatch"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// watchLabels updates the node's labels until ctx ends.
func (p *plugin) watchLabels(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var labels map[string]string
		if p.node.IsManaged() {
			labels = nodewatch.LabelsOf(p.node.Vendors, p.offered())
		}
		if err := p.labels.Update(ctx, labels); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot update the GPU labels of the node, which is retried")
		}
	}, cmp.Or(p.LookInterval, defaultLookInterval))
}

// offered are the GPUs with the devices that pods can request.
func (p *plugin) offered() []hardware.OfferedGPU {
	gpus := p.gpus.Now()
	all := make([]hardware.OfferedGPU, len(gpus))
	for i, g := range gpus {
		settings := p.sharing.Of(g.PCIAddress)
		all[i] = hardware.OfferedGPU{
			GPU: g, Static: settings.Layout.Partitioning == profile.PartitioningStatic,
			Resource: func(q gpu.Placement) string {
				if settings.Means(q) {
					return string(g.Vendor) + ".com/gpu"
				}
				return settings.MIGResource(q)
			},
		}
	}
	return all
}
