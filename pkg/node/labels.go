package node

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func (p *plugin) writeLabels(ctx context.Context) {
	var labels map[string]string
	if p.node.IsManaged() {
		labels = inventory.LabelsOf(p.node.Vendors, p.monitor.offered())
	}
	if err := p.labels.Update(ctx, labels); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot update the GPU labels of the node, which is retried")
	}
}

// offered are the GPUs with the devices that pods can request.
func (m *monitor) offered() []hardware.OfferedGPU {
	gpus := m.gpus.Now()
	all := make([]hardware.OfferedGPU, len(gpus))
	for i, g := range gpus {
		settings := m.sharing.Of(g.PCIAddress)
		all[i] = hardware.OfferedGPU{
			GPU: g, Static: settings.Layout.Partitioning == profile.PartitioningStatic || settings.Layout.Compute != "",
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
