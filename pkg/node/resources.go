package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

// writeResources writes GPU memory and compute into the node's status. Both are those of all GPUs,
// whatever is held or cannot be used. While claims are held, they do not become less: a kubelet that
// starts would end pods that request more than there is.
func (p *plugin) writeResources(ctx context.Context) {
	var wanted corev1.ResourceList
	if p.node.IsManaged() {
		wanted = noderesources.Of(p.monitor.gpus.Now()).List()
		if len(p.records.List()) > 0 {
			wanted = p.node.NotLess(wanted)
		}
	}
	if err := p.node.WriteResources(ctx, p.client, wanted); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the GPU resources of the node, which is retried")
	}
}
