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
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// exclude adds the reasons for which the pod cannot run on a node, even if the node were empty.
func (m *Model) exclude(n *Node, node *corev1.Node, d *demand.Demand) {
	pod := d.Pod
	for _, claim := range d.Allocated {
		if !accepts(claim.Status.Allocation.NodeSelector, node) {
			n.exclude("the claim "+claim.Name+" has its devices on another node, and the pod must follow", Remedy{})
		}
	}
	if m.Node(node.Name) == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if want := pod.Spec.NodeSelector[key]; node.Labels[key] != want {
			label := key + "=" + want
			remedy := Remedy{"correct the pod's nodeSelector, or label " + n.Name + ", which has the devices:", "kubectl label node " + n.Name + " " + label}
			if strings.Contains(key, "kubernetes.io/") { // Kubernetes sets these
				remedy = Remedy{Text: "correct the pod's nodeSelector: " + n.Name + " has the devices."}
			}
			n.exclude("the pod asks for nodes with the label "+label, remedy)
		}
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(nil, pod.Spec.Affinity)
	if ok, err := affinity.Match(node); err == nil && !ok {
		n.exclude("the pod asks for other nodes: "+terms(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution),
			Remedy{Text: "correct the pod's node affinity: " + n.Name + " has the devices."})
	}
	tolerated := func(t corev1.Taint) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return o.ToleratesTaint(logr.Discard(), &t, true) })
	}
	for _, t := range schedulingTaints(node) {
		if t.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(t) {
			continue
		}
		if t.Key == corev1.TaintNodeUnschedulable {
			n.exclude("the node is cordoned", Remedy{n.Name + " has the devices; when it no longer needs to be cordoned:", "kubectl uncordon " + n.Name})
			continue
		}
		reason := fmt.Sprintf("the node has the taint %s, which the pod does not tolerate", t.ToString())
		if t.Key == names.TaintNodeSwitching {
			n.switchTo, n.Reasons = &t.Value, append(n.Reasons, reason+".")
			continue
		}
		n.exclude(reason, Remedy{Text: fmt.Sprintf("if the pod may run on %s, which has the devices, add a toleration for the taint %s to it.", n.Name, t.ToString())})
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		have, known := node.Status.Allocatable[name]
		if asks := requests[name]; known && asks.Cmp(have) > 0 {
			n.exclude(fmt.Sprintf("the pod asks for more %s (%s) than the node has (%s)", name, asks.String(), have.String()),
				Remedy{Text: fmt.Sprintf("request less %s, or add a larger node: waiting does not help.", name)})
			c := n.causes[len(n.causes)-1]
			c.about, c.most, c.text = string(name), have, fmt.Sprintf("the pod asks for more %s (%s) than the largest of them has (%s)", name, asks.String(), have.String())
		}
	}
	asks, all := cluster.RequestsOf(pod), cluster.RequestedOn(node, nil)
	switch {
	case len(asks) > 0 && len(all.Of) == 0:
		n.exclude(fmt.Sprintf("the pod requests %s, and the status of the node has neither", cluster.AmountsText(asks)),
			Remedy{Text: "let the plugin of " + n.Name + " write GPU memory and compute: it is of an older release, or gpuResources.enabled is false."})
	case !all.Room(asks):
		n.exclude(fmt.Sprintf("the pod requests %s, and the node has %s in total", cluster.AmountsText(asks), cluster.AmountsText(all.Of)),
			Remedy{Text: "request less GPU memory or compute: waiting does not help."})
		n.causes[len(n.causes)-1].about = "requests"
	}
	for _, v := range d.Volumes {
		if !accepts(v.Nodes, node) {
			n.exclude(fmt.Sprintf("the pod's volume %s (PersistentVolumeClaim %s) can be reached from other nodes only: %s", v.Name, v.Claim, terms(v.Nodes)),
				Remedy{Text: "use a volume that " + n.Name + ", which has the devices, can reach."})
		}
	}
}

// exclude adds a reason for which the pod cannot run on the node, with what users can do.
func (n *Node) exclude(reason string, remedy Remedy) {
	n.Reasons, n.excluded = append(n.Reasons, reason+"."), true
	n.causes = append(n.causes, &Cause{about: reason, text: reason, remedy: remedy})
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
