package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// judgeRequests adds the verdict about a node with free devices on which pods request too much GPU
// memory or compute. Pods that request no more than they hold leave room where devices are free.
func (m *Model) judgeRequests(n *Node, node *corev1.Node, d *demand.Demand) {
	asks, all := cluster.RequestsOf(d.Pod), cluster.RequestedOn(node, m.objects.Requesting)
	if n.Verdict != Fits || m.objects.Requesting == nil || all.Room(asks) {
		return
	}
	n.Verdict = Excluded
	reason := fmt.Sprintf("devices are free, but pods here request %s, and this one requests %s", all, cluster.AmountsText(asks))
	if pods := m.holdingLess(node.Name); len(pods) > 0 {
		reason += ". These request more than they hold: " + text.List(pods, maxNames)
	}
	n.Reasons = append(n.Reasons, reason+".")
	n.causes = []*Cause{{
		about: "requests", text: "devices are free, but other pods request too much GPU memory or compute",
		remedy: Remedy{"delete the pods on " + n.Name + " that request more than they hold, and create them again. How much all request:", "kubectl tranche node " + n.Name},
	}}
}

// holdingLess returns the pods of a node that request more compute than their claims hold, or GPU memory
// without holding a device. A fraction counts as one of a whole GPU, a memory share as no compute.
func (m *Model) holdingLess(node string) (out []string) {
	if m.objects.Partial {
		return nil
	}
	held := map[string]int64{}
	for _, p := range m.Pools {
		for _, d := range p.Devices {
			compute := noderesources.ComputeOf(gpu.Placement{Type: d.Type, Profile: d.Profile})
			for _, h := range d.Holders {
				if d.Shared() {
					fraction := h.Consumed[names.CapacityFraction]
					compute = fraction.MilliValue() // of 1000, as compute is
				}
				for _, pod := range h.Pods {
					if !h.Admin && p.Node == node {
						held[h.Namespace+"/"+pod] += compute
					}
				}
			}
		}
	}
	for i := range m.objects.Requesting {
		pod := &m.objects.Requesting[i]
		asks := cluster.RequestsOf(pod)
		has, holds := held[pod.Namespace+"/"+pod.Name]
		compute := asks[names.ResourceGPUCompute]
		if pod.Spec.NodeName == node && (compute.Value() > has || len(asks) > 0 && !holds) {
			out = append(out, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(out)
	return out
}
