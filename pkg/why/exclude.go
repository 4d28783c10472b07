package why

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
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// excludePod says why the pod may not go to a node, or could not even if the node were empty.
func (c *world) excludePod(n *Node, node *corev1.Node) {
	say := func(format string, args ...any) {
		n.Reasons, n.barred = append(n.Reasons, fmt.Sprintf(format, args...)), true
	}
	pod := c.in.Pod
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if want := pod.Spec.NodeSelector[key]; node.Labels[key] != want {
			say("the pod asks for nodes with the label %s=%s.", key, want)
		}
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(nil, pod.Spec.Affinity)
	if ok, err := affinity.Match(node); err == nil && !ok {
		say("the pod asks for other nodes: %s.", wanted(pod))
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
		barred := n.barred
		say("the node has the taint %s, which the pod does not tolerate.", t.ToString())
		if t.Key == names.TaintRepartitioning {
			n.switchTo, n.barred = &t.Value, barred
		}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		have, known := node.Status.Allocatable[name]
		if asks := requests[name]; known && asks.Cmp(have) > 0 {
			say("the pod asks for %s of %s, and the node has %s in all.", asks.String(), name, have.String())
		}
	}
	for _, v := range c.volumes() {
		if v.Nodes == nil {
			continue
		}
		if s, err := nodeaffinity.NewNodeSelector(v.Nodes); err == nil && !s.Match(node) {
			say("the pod's volume %s (PersistentVolumeClaim %s) can be reached from other nodes only: %s.", v.Name, v.Claim, terms(v.Nodes))
		}
	}
}

// schedulingTaints are the taints that the scheduler heeds. A cordoned node has a field for it, to
// which the node lifecycle controller adds a taint a moment later.
func schedulingTaints(node *corev1.Node) []corev1.Taint {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if !node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&cordoned) }) {
		return node.Spec.Taints
	}
	return append(slices.Clone(node.Spec.Taints), cordoned)
}

// volumes are the pod's that are PersistentVolumeClaims.
func (c *world) volumes() []demand.Volume { return demand.Volumes(c.in.Pod, c.in.Storage) }

// addVolumes says which volumes the pod waits for. No device helps as long as one is not ready.
func (e *Explanation) addVolumes(volumes []demand.Volume) {
	var waits []string
	claims := ""
	for _, v := range volumes {
		claim := "the PersistentVolumeClaim " + v.Claim
		switch v.State {
		case demand.VolumeMissing:
			waits = append(waits, claim+" does not exist")
		case demand.VolumeTerminating:
			waits = append(waits, claim+" is being deleted")
		case demand.VolumeLost:
			waits = append(waits, "the volume of "+claim+" is lost")
		case demand.VolumeUnbound:
			waits = append(waits, claim+" is not bound to a volume")
			if v.Class == "" {
				waits[len(waits)-1] += ", and names no StorageClass"
			}
		case demand.VolumeReady, demand.VolumeUnknown:
			continue
		}
		claims += " " + v.Claim
	}
	if len(waits) == 0 {
		return
	}
	also := ""
	if e.State == NoRoom || e.State == Invalid || e.State == ClaimMissing {
		also = " Besides: " + e.Summary
	}
	e.State = VolumeNotReady
	e.Summary = fmt.Sprintf("%s/%s waits for its volumes: %s.%s", e.Namespace, e.Pod, strings.Join(waits, "; "), also)
	if also == "" {
		e.Remedies = nil
	}
	e.Remedies = slices.Insert(e.Remedies, 0, Remedy{
		Text:    "create what is missing, or see what the volumes wait for; the pod continues automatically:",
		Command: "kubectl describe pvc -n " + e.Namespace + claims,
	})
}

// wanted describes a required node affinity.
func wanted(pod *corev1.Pod) string {
	return terms(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
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
