package why

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// gated explains a pod with scheduling gates.
func (e *Explanation) gated(in *Input) {
	e.State = Gated
	var gates []string
	for _, g := range in.Pod.Spec.SchedulingGates {
		gates = append(gates, g.Name)
	}
	e.Summary = fmt.Sprintf("%s/%s has scheduling gates (%s); the scheduler ignores it until they are removed.",
		e.Namespace, e.Pod, strings.Join(gates, ", "))
	e.Quotes = append(e.Quotes, warnings(in, involved(in, in.demand()))...)
	if i := slices.IndexFunc(gates, kueue.IsGate); i >= 0 {
		e.gatedByKueue(in, gates[i])
		return
	}
	e.remedy("the component that set the gates, for example Kueue, must remove them.", "")
}

// unscheduled explains a pod without a node.
func (e *Explanation) unscheduled(ctx context.Context, c *world, d demand.Demand, drawn *cluster.Summary) {
	in := c.in
	e.Asks = c.asks(ctx, d)
	e.Quotes = append(e.Quotes, schedulerSays(in)...)
	e.Quotes = append(e.Quotes, warnings(in, involved(in, d), "FailedScheduling")...)
	volumes := c.volumes()
	defer e.addVolumes(volumes)
	switch {
	case in.unread(unread.OwnClaims) && len(in.Pod.Spec.ResourceClaims) > 0:
		e.State = Unknown
		e.Summary = fmt.Sprintf("%s/%s has no node yet. The reason cannot be determined without its ResourceClaims.", e.Namespace, e.Pod)
		e.remedy("ask an administrator for the right to list resourceclaims in the namespace, or to run this command. Whether you have it:",
			"kubectl auth can-i list resourceclaims.resource.k8s.io -n "+e.Namespace)
		return
	case len(d.Missing) > 0:
		e.State = ClaimMissing
		e.Summary = fmt.Sprintf("%s/%s waits for a claim: %s", e.Namespace, e.Pod, strings.Join(d.Missing, " "))
		if !e.missingTemplate(in) {
			e.remedyMissing(in)
		}
		return
	case len(d.Unallocated) == 0 && len(d.Allocated) == 0:
		e.noDevices(in)
		return
	}
	if bad := c.invalid(d); len(bad) > 0 {
		e.State = Invalid
		e.Summary = fmt.Sprintf("%s/%s can run nowhere: %s", e.Namespace, e.Pod, strings.Join(bad, " "))
		if len(c.leaving(d)) > 0 {
			e.remedy("create the claim again when it is gone.", "")
		} else {
			e.remedy("see which classes there are:", "kubectl get deviceclass")
		}
		return
	}
	if in.Classes != nil { // otherwise nothing can be compared
		var only bool
		if only, e.others = c.ofOthers(ctx, d); only {
			e.State = OtherDriver
			e.Summary = fmt.Sprintf("%s/%s has no node yet. It asks for devices of another driver, which is not explained here.", e.Namespace, e.Pod)
			return
		}
		e.explainNodes(ctx, c, d, drawn)
	}
	e.judge(c, d)
	e.scheduling(in)
}

// noDevices explains a pod that asks for no devices, as far as is known.
func (e *Explanation) noDevices(in *Input) {
	odd := unservedResources(in)
	resources := strings.Join(odd, " and ")
	switch {
	case len(odd) == 0:
		e.State = NoDevices
		e.Summary = fmt.Sprintf("%s/%s has no node yet, and not because of Tranche: it asks for no device.", e.Namespace, e.Pod)
	case in.Classes == nil:
		e.State = Unknown
		e.Summary = fmt.Sprintf("%s/%s has no node yet. It asks for %s; without the DeviceClasses it cannot be told whether that is a device, and so not what is in its way.", e.Namespace, e.Pod, resources)
		e.remedyClasses()
	case in.unread(unread.Nodes):
		e.State = Unknown
		e.Summary = fmt.Sprintf("%s/%s has no node yet. It asks for %s, for which there is no DeviceClass; without the nodes it cannot be told whether a device plugin serves it.", e.Namespace, e.Pod, resources)
		e.remedy("ask an administrator for the right to list nodes, or to run this command.", "")
	default:
		e.State = Invalid
		e.Summary = fmt.Sprintf("%s/%s asks for %s, for which there is neither a DeviceClass nor a device plugin.", e.Namespace, e.Pod, resources)
		e.remedy("see which resources there are:", "kubectl get deviceclass -o custom-columns=CLASS:.metadata.name,RESOURCE:.spec.extendedResourceName")
	}
}

// explainNodes explains the nodes that publish GPUs, and others that matter. Without a picture, it does not
// say what they have.
func (e *Explanation) explainNodes(ctx context.Context, c *world, d demand.Demand, drawn *cluster.Summary) {
	for _, node := range c.nodes() {
		var picture cluster.Node
		if drawn != nil {
			picture = drawn.Nodes[slices.IndexFunc(drawn.Nodes, func(n cluster.Node) bool { return n.Name == node.Name })]
		}
		n := c.node(ctx, node, picture, d)
		c.addSwitch(&n)
		tainted := slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Verdict != Fits && len(r.Taints) > 0 })
		if n.Verdict == Unusable || tainted || len(n.Reasons) > 0 {
			e.Quotes = append(e.Quotes, nodeWarnings(c.in, node.Name)...)
		}
		e.Nodes = append(e.Nodes, n)
	}
	e.Nodes = append(e.Nodes, c.unpublished(e.Nodes)...)
	e.Nodes = append(e.Nodes, c.servedByPlugins(d, e.Nodes)...)
}

// servedByPlugins are nodes without GPUs of Tranche's, on which a device plugin serves what the pod asks
// for.
func (c *world) servedByPlugins(d demand.Demand, shown []Node) []Node {
	var out []Node
	for i := range c.in.Nodes {
		node := &c.in.Nodes[i]
		if slices.ContainsFunc(shown, func(n Node) bool { return n.Name == node.Name }) {
			continue
		}
		n := Node{Name: node.Name, Verdict: Excluded}
		for _, name := range slices.Sorted(maps.Keys(d.Extended)) {
			if have := node.Status.Allocatable[name]; !have.IsZero() {
				n.Reasons = append(n.Reasons, fmt.Sprintf(servedByPlugin, name, have.String()))
			}
		}
		if len(n.Reasons) > 0 {
			out = append(out, n)
		}
	}
	return out
}

// servedByPlugin is why nothing of Tranche's counts on a node.
const servedByPlugin = "a device plugin serves %s on this node (%s in all), so nothing of Tranche's counts for it here."

// scheduling adds what else the pod says about its scheduling.
func (e *Explanation) scheduling(in *Input) {
	pod := in.Pod
	tried := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	named := pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName
	switch {
	case e.State == Invalid:
	case pod.Status.NominatedNodeName != "" && !preempts(in):
		e.Summary += fmt.Sprintf(" The scheduler is placing it on %s.", pod.Status.NominatedNodeName)
	case pod.Status.NominatedNodeName != "":
		e.State = Preempting
		e.Summary = fmt.Sprintf("%s/%s waits until pods of lower priority leave %s: the scheduler has asked them to.", e.Namespace, e.Pod, pod.Status.NominatedNodeName)
		e.Remedies = nil
		e.remedy("wait: it lasts at most as long as the pods take to end.", "")
	case named && !tried && e.State != NoRoom:
		e.State = SchedulerSilent
		e.Summary = fmt.Sprintf("%s/%s asks for the scheduler %s, which has not said anything about it.", e.Namespace, e.Pod, pod.Spec.SchedulerName)
		e.Remedies = nil
		e.remedy("see whether that scheduler runs, and whether the pod belongs to a queue or group that it waits for; or leave out schedulerName.", "")
	case named && !tried:
		e.Summary += fmt.Sprintf(" Besides, the scheduler that it asks for, %s, has not said anything about it.", pod.Spec.SchedulerName)
	}
}

// preempts tells whether the scheduler makes room for the pod. Since Kubernetes 1.35 it also nominates the
// node of a pod for which it only has to prepare something there (KEP-5278).
func preempts(in *Input) bool {
	failed := slices.ContainsFunc(in.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
	return failed || slices.ContainsFunc(in.Events, func(e corev1.Event) bool {
		return e.Reason == "Preempted" && e.Related != nil && e.Related.UID == in.Pod.UID
	})
}

// invalid says what no node can ever satisfy.
func (c *world) invalid(d demand.Demand) []string {
	out := c.leaving(d)
	for _, claim := range d.Unallocated {
		for _, r := range claim.Spec.Devices.Requests {
			for _, ch := range demand.Choices(r) {
				if c.in.Classes != nil && c.DeviceClasses[ch.Class] == nil {
					out = union(out, fmt.Sprintf("there is no DeviceClass %s.", ch.Class))
				}
			}
		}
	}
	return out
}

// leaving says which claims are being deleted.
func (c *world) leaving(d demand.Demand) (out []string) {
	for _, claim := range d.Unallocated {
		if claim.DeletionTimestamp != nil {
			out = append(out, fmt.Sprintf("the claim %s is being deleted.", claim.Name))
		}
	}
	return out
}

// unservedResources lists extended resources of the pod that no device plugin serves. If the classes
// are known, only resources of GPU vendors count; otherwise each may belong to a class.
func unservedResources(in *Input) []string {
	names := map[string]bool{}
	for _, c := range demand.Containers(in.Pod) {
		for name := range c.Resources.Requests {
			domain, _, extended := strings.Cut(string(name), "/")
			ofGPU := domain == "nvidia.com" || domain == "amd.com"
			plugin := slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool { _, ok := n.Status.Allocatable[name]; return ok })
			if extended && !plugin && (ofGPU || in.Classes == nil) {
				names[string(name)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// WaitsForKueue tells whether a pod has a scheduling gate of Kueue's.
func WaitsForKueue(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return kueue.IsGate(g.Name) })
}

// WaitsForClaims tells whether claims of a pod are still to be created from templates.
func WaitsForClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
		return c.ResourceClaimTemplateName != nil &&
			!slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
	})
}
