package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// exclude adds the reasons for which the pod cannot run on a node, even if the node were empty.
func (m *Model) exclude(n *Node, node *corev1.Node, d *Demand) {
	say := func(format string, args ...any) {
		n.Reasons, n.excluded = append(n.Reasons, fmt.Sprintf(format, args...)), true
	}
	for _, claim := range d.Allocated {
		if !accepts(claim.Status.Allocation.NodeSelector, node) {
			say("the claim %s has its devices on another node, and the pod must follow.", claim.Name)
		}
	}
	if m.Node(node.Name) == nil {
		return
	}
	pod := d.pod
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if want := pod.Spec.NodeSelector[key]; node.Labels[key] != want {
			say("the pod asks for nodes with the label %s=%s.", key, want)
		}
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(nil, pod.Spec.Affinity)
	if ok, err := affinity.Match(node); err == nil && !ok {
		say("the pod asks for other nodes: %s.", terms(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution))
	}
	tolerated := func(t corev1.Taint) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return o.ToleratesTaint(logr.Discard(), &t, true) })
	}
	for _, t := range schedulingTaints(node) {
		if t.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(t) {
			continue
		}
		if t.Key == corev1.TaintNodeUnschedulable {
			say("the node is cordoned.")
			n.cordoned = true
			continue
		}
		excluded := n.excluded
		say("the node has the taint %s, which the pod does not tolerate.", t.ToString())
		if t.Key == names.TaintNodeSwitching {
			n.switchTo, n.excluded = &t.Value, excluded
		}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		have, known := node.Status.Allocatable[name]
		if asks := requests[name]; known && asks.Cmp(have) > 0 {
			say("the pod asks for %s of %s, and the node has %s in total.", asks.String(), name, have.String())
		}
	}
	asks, all := cluster.RequestsOf(pod), cluster.RequestedOn(node, nil)
	switch {
	case len(asks) > 0 && len(all.Of) == 0:
		say("the pod requests %s, and the status of the node has neither.", cluster.AmountsText(asks))
		n.unlisted = true
	case !all.Room(asks):
		say("the pod requests %s, and the node has %s in total.", cluster.AmountsText(asks), cluster.AmountsText(all.Of))
	}
	for _, v := range d.Volumes {
		if !accepts(v.Nodes, node) {
			say("the pod's volume %s (PersistentVolumeClaim %s) can be reached from other nodes only: %s.", v.Name, v.Claim, terms(v.Nodes))
		}
	}
}

func accepts(selector *corev1.NodeSelector, node *corev1.Node) bool {
	if selector == nil {
		return true
	}
	s, err := nodeaffinity.NewNodeSelector(selector)
	return err != nil || s.Match(node)
}

// schedulingTaints returns the taints that the scheduler considers, including that of a cordoned node
// to which the node lifecycle controller has not added it yet.
func schedulingTaints(node *corev1.Node) []corev1.Taint {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if !node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&cordoned) }) {
		return node.Spec.Taints
	}
	return append(slices.Clone(node.Spec.Taints), cordoned)
}

// terms describes a selector of nodes.
func terms(s *corev1.NodeSelector) string {
	var all []string
	for _, t := range s.NodeSelectorTerms {
		var parts []string
		for _, e := range slices.Concat(t.MatchExpressions, t.MatchFields) {
			text := e.Key + " " + string(e.Operator)
			if len(e.Values) > 0 {
				text += " " + strings.Join(e.Values, ", ")
			}
			parts = append(parts, text)
		}
		all = append(all, strings.Join(parts, " and "))
	}
	return strings.Join(all, ", or ")
}
