package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// totalTimeout limits the search on all nodes.
const totalTimeout = 20 * time.Second

// Explain explains why a pod does not run.
func Explain(ctx context.Context, in Input) *Explanation {
	ctx, cancel := context.WithTimeout(ctx, totalTimeout)
	defer cancel()
	e := &Explanation{Namespace: in.Pod.Namespace, Pod: in.Pod.Name}
	d := in.demand()
	m := fit.NewModel(in.Objects, in.Partial || has(in.Unread, ResourceRules))
	drawn := m.Summary(ctx, cluster.View{})
	e.Holds = holdings(&in, drawn, d)
	finished := in.Pod.Status.Phase == corev1.PodSucceeded || in.Pod.Status.Phase == corev1.PodFailed
	switch pod := in.Pod; {
	// A pod that is deleted before it is scheduled becomes Failed by the pod garbage collector.
	case pod.DeletionTimestamp != nil && (!finished || len(pod.Finalizers) > 0):
		e.terminating(&in, withoutPlugin(drawn, pod.Spec.NodeName))
	case finished:
		e.finished(pod)
	case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) > 0:
		e.gated(&in)
	case pod.Spec.NodeName == "":
		e.unscheduled(ctx, &in, m, d, drawn.Nodes)
	case pod.Status.Phase == corev1.PodRunning:
		e.running(&in, d)
		if text := switchOf(m, in.Now, e.Holds); text != "" {
			e.Summary += " " + text
		}
	default:
		e.starting(&in, d, withoutPlugin(drawn, pod.Spec.NodeName))
	}
	if e.State != Finished && e.State != Terminating {
		e.withoutDevices(&in, d)
	}
	e.Unread = lack(in.Unread, e.State, e.Nodes)
	return e
}

// holdings returns the devices that the pod's claims hold.
func holdings(in *Input, drawn *cluster.Summary, d *demand.Demand) []Holding {
	var out []Holding
	mine := map[string]*resourceapi.ResourceClaim{}
	for _, c := range d.Allocated {
		mine[c.Namespace+"/"+c.Name] = c
	}
	take := func(held []cluster.Held, gone bool) {
		for _, h := range held {
			for _, o := range h.Holders {
				claim := mine[o.Namespace+"/"+o.Claim]
				if claim == nil {
					continue
				}
				holding := Holding{Claim: o.Claim, DeviceKind: h.DeviceKind, Device: h.Device, Pool: h.Pool, Problems: problems(claim, h)}
				if (gone || h.Unpublished) && in.Slices != nil {
					holding.Problems = []v1beta1.GPUProblem{{Cause: string(gpu.CauseHeldDevice), Message: "no longer published by any node"}}
				}
				out = append(out, holding)
			}
		}
	}
	for _, n := range drawn.Nodes {
		for _, g := range n.GPUs {
			take(g.Held, false)
		}
	}
	take(drawn.Lost, true)
	return out
}

// problems returns the problems of a device in the claim's status.
func problems(claim *resourceapi.ResourceClaim, h cluster.Held) (out []v1beta1.GPUProblem) {
	for _, d := range claim.Status.Devices {
		if d.Pool != h.Pool || d.Device != h.Device {
			continue
		}
		for _, condition := range d.Conditions {
			if condition.Status != "True" && condition.Message != "" {
				out = append(out, v1beta1.GPUProblem{Cause: string(gpu.CauseNotPrepared), Message: condition.Message})
			}
		}
	}
	return out
}

func (e *Explanation) finished(pod *corev1.Pod) {
	e.State = Finished
	e.Summary = fmt.Sprintf("%s/%s has finished (%s).", e.Namespace, e.Pod, pod.Status.Phase)
	if pod.Status.Message != "" {
		e.Summary += " " + pod.Status.Message
	}
	if len(e.Holds) > 0 {
		e.remedy("what it held is being released by kube-controller-manager; that takes seconds.", "")
	}
}

// withoutPlugin reports whether the kubelet plugin of a node with GPUs is gone.
func withoutPlugin(drawn *cluster.Summary, node string) bool {
	n := lists.Find(drawn.Nodes, func(n *cluster.Node) bool { return n.Name == node })
	return n != nil && n.Profile != nil && n.Profile.PluginGone()
}

// remedyPlugin says that pods wait for the plugin of the pod's node.
func (e *Explanation) remedyPlugin(in *Input) {
	e.Summary += fmt.Sprintf(" Tranche's kubelet plugin does not run on %s, and the kubelet can neither prepare nor release devices without it.", in.Pod.Spec.NodeName)
	e.remedy("start the plugin on the node again; the pod then continues automatically. To see its pod, if there is one:", pluginPod(in))
}

// starting explains a pod that is scheduled but does not run yet.
func (e *Explanation) starting(in *Input, d *demand.Demand, pluginGone bool) {
	e.State = Starting
	e.Summary = fmt.Sprintf("%s/%s is scheduled to %s and is being started.", e.Namespace, e.Pod, in.Pod.Spec.NodeName)
	if len(d.Missing) > 0 && !has(in.Unread, ResourceOwnClaims) {
		e.Summary += " But " + text.Clause(d.Missing)
	}
	var waits []string
	for _, s := range slices.Concat(in.Pod.Status.InitContainerStatuses, in.Pod.Status.ContainerStatuses) {
		if s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating" && s.State.Waiting.Reason != "PodInitializing" {
			waits = append(waits, e.container(in, s)...)
		}
	}
	if len(waits) > 0 {
		e.Summary = fmt.Sprintf("%s/%s has its devices on %s and waits for something else: %s.", e.Namespace, e.Pod, in.Pod.Spec.NodeName, strings.Join(waits, "; "))
	}
	e.Quotes = append(e.Quotes, warnings(in, involved(in, d), "FailedScheduling")...)
	prepare := slices.ContainsFunc(e.Quotes, func(q Quote) bool { return q.Reason == "FailedPrepareDynamicResources" })
	switch {
	case pluginGone && len(waits) == 0:
		e.remedyPlugin(in)
	case prepare:
		e.Summary = fmt.Sprintf("%s/%s is scheduled to %s, but the node could not prepare its devices.", e.Namespace, e.Pod, in.Pod.Spec.NodeName)
		e.remedy("follow the message of FailedPrepareDynamicResources; the kubelet retries automatically.", "")
		e.remedyLog(in, "see the plugin's log for details")
	case len(waits) == 0 && has(in.Unread, ResourceEvents):
		e.Summary += " Without its events it cannot be determined whether anything prevents that."
		e.remedy("ask an administrator for the right to list events in the namespace, or to run this command.", "")
	case len(waits) == 0 && len(e.Quotes) == 0:
		e.remedyLog(in, "wait: preparing a partition takes seconds. If it takes longer, see the plugin's log")
	}
}

// terminating explains a pod that is being deleted.
func (e *Explanation) terminating(in *Input, pluginGone bool) {
	e.State = Terminating
	pod := in.Pod
	e.Summary = fmt.Sprintf("%s/%s is being deleted", e.Namespace, e.Pod)
	switch {
	case pod.Spec.NodeName == "":
		e.Summary += "."
	case has(in.Unread, ResourceOwnClaims):
		e.Summary += "; without its claims it cannot be determined whether it holds a GPU."
	case len(e.Holds) > 0:
		e.Summary += fmt.Sprintf(" and %s has not released its devices yet.", pod.Spec.NodeName)
	default:
		e.Summary += fmt.Sprintf("; it holds no GPU, so it waits for something else on %s.", pod.Spec.NodeName)
	}
	over := in.Now.Sub(pod.DeletionTimestamp.Time)
	if over > 0 {
		e.Summary += fmt.Sprintf(" Its grace period ended %s ago.", duration.HumanDuration(over))
	} else {
		e.Summary += " Its grace period has not ended."
	}
	if len(pod.Finalizers) > 0 {
		e.Summary += " It also waits for its finalizers: " + strings.Join(pod.Finalizers, ", ") + "."
	}
	e.Quotes = append(e.Quotes, warnings(in, involved(in, in.demand()), "FailedScheduling")...)
	if pod.Spec.NodeName != "" {
		e.Quotes = append(e.Quotes, nodeWarnings(in, pod.Spec.NodeName)...)
		if pluginGone && len(e.Holds) > 0 {
			e.remedyPlugin(in)
			return
		}
		if over < releaseTime {
			e.remedy("wait: releasing a partition takes seconds.", "")
			return
		}
		e.remedyLog(in, "a process that still uses the GPU prevents its release; the plugin's log names it")
	}
}

// releaseTime is the time after its grace period from which a pod counts as stuck.
const releaseTime = 15 * time.Second

// switchOf returns a sentence if a GPU of a running pod is being switched.
func switchOf(m *fit.Model, now time.Time, holds []Holding) string {
	for _, h := range holds {
		gpuID := cluster.GPUOf(h.Device)
		if far := m.Progress(h.Pool); far != nil && far.KeepsOff(gpuID) {
			return fmt.Sprintf("Its GPU %s is being switched to %s (%s); the pod is evicted unless its device is kept.",
				gpuID, text.Profile(far.Switch.To.ProfileName), far.During(now))
		}
	}
	return ""
}

// remedyLog adds a command that shows the log of the plugin on the pod's node, or lists the plugin's
// pod if its namespace is unknown.
func (e *Explanation) remedyLog(in *Input, text string) {
	system, command := cluster.SystemNamespace(in.Classes), pluginPod(in)
	if system == "" {
		e.remedy(text+" (of the pod that this command lists):", command)
		return
	}
	e.remedy(text+":", "kubectl -n "+system+" logs $("+command+" -o name)")
}

// pluginPod is the command that lists the plugin's pod on the pod's node.
func pluginPod(in *Input) string {
	return "kubectl get pods " + cluster.InSystem(cluster.SystemNamespace(in.Classes)) + " -l " + cluster.PluginLabel + " --field-selector spec.nodeName=" + in.Pod.Spec.NodeName
}
