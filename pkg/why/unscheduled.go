package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// gated explains a pod with scheduling gates.
func (e *Explanation) gated(in *Input) {
	e.State = Gated
	gates := lists.Map(in.Pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) string { return g.Name })
	e.Summary = fmt.Sprintf("%s has scheduling gates (%s); the scheduler ignores it until they are removed.",
		e.who(), strings.Join(gates, ", "))
	e.Quotes = append(e.Quotes, warnings(in, involved(in, in.demand()))...)
	if i := slices.IndexFunc(gates, isKueueGate); i >= 0 {
		e.gatedByKueue(in, gates[i])
		return
	}
	e.remedy("the component that set the gates, for example Kueue, must remove them.", "")
}

// unscheduled explains a pod without a node.
func (e *Explanation) unscheduled(ctx context.Context, in *Input, m *fit.Model, d *demand.Demand, drawn []cluster.Node) {
	e.Asks = d.Asks()
	e.Quotes = append(e.Quotes, schedulerQuotes(in)...)
	e.Quotes = append(e.Quotes, warnings(in, involved(in, d), "FailedScheduling")...)
	e.devices(ctx, in, m, d, drawn)
	e.addVolumes(d.Volumes)
}

// devices explains the role of claims and devices.
func (e *Explanation) devices(ctx context.Context, in *Input, m *fit.Model, d *demand.Demand, drawn []cluster.Node) {
	invalid, unserved := d.Invalid(in.Classes), unservedResources(in)
	switch {
	case has(in.Unread, ResourceOwnClaims) && len(in.Pod.Spec.ResourceClaims) > 0:
		if e.answered(in) {
			return
		}
		e.say(Unknown, "%s has no node yet. The reason cannot be determined without its ResourceClaims.", e.who())
		e.remedy("ask an administrator for the role view or tranche-user-namespace in the namespace, or to run this command.", "")
	case len(d.Missing) > 0:
		e.say(ClaimMissing, "%s waits for a claim: %s", e.who(), text.Clause(d.Missing))
		e.Answer = names.EventClaimNotCreated
		if !e.missingTemplate(in) {
			e.remedyMissing(in)
		}
	case len(d.Unallocated) == 0 && len(d.Allocated) == 0:
		e.noDevices(in, unserved)
	case len(unserved) > 0 && in.Classes != nil && !has(in.Unread, ResourceNodes):
		e.unserved(in, unserved)
	case len(invalid) > 0:
		e.say(Invalid, "%s cannot run on any node: %s", e.who(), text.Clause(invalid))
		e.Answer = names.EventRequestInvalid
		if len(d.Deleted()) > 0 {
			e.remedy("create the claim again when it is gone.", "")
			break
		}
		if slices.ContainsFunc(e.Asks, ofVendor) {
			e.remedy("to translate what is written for another driver of GPUs:", "kubectl tranche convert -f FILE")
		}
		e.remedy("see which classes there are:", "kubectl get deviceclass")
	case in.Classes == nil:
		if e.answered(in) {
			return
		}
		e.say(Unknown, "%s has no node yet. The reason cannot be determined without the DeviceClasses.", e.who())
		e.remedyClasses()
		e.scheduling(in)
	default:
		only, others := m.OtherDrivers(ctx, d)
		if only {
			e.say(OtherDriver, "%s has no node yet. It asks for devices of another driver, which is not explained here.", e.who())
			return
		}
		e.explainNodes(in, m.Nodes(ctx, d, drawn))
		e.judge(in, d, others)
		e.scheduling(in)
	}
}

// ofVendor reports whether a request names a class in the domain of a vendor, such as those of its own driver.
func ofVendor(a demand.Ask) bool {
	_, domain, _ := strings.Cut(a.Class, ".")
	_, is := gpu.VendorOf(domain + "/")
	return is
}

func (e *Explanation) who() string { return e.Namespace + "/" + e.Pod }

func (e *Explanation) say(s State, format string, args ...any) {
	e.State, e.Summary = s, fmt.Sprintf(format, args...)
}

// explainNodes adds the nodes, and the events of nodes with problems.
func (e *Explanation) explainNodes(in *Input, nodes []fit.Node) {
	e.Nodes = nodes
	for _, n := range nodes {
		tainted := slices.ContainsFunc(n.Requests, func(r fit.Request) bool { return r.Verdict != fit.Fits && len(r.Taints) > 0 })
		if tainted || len(n.Reasons) > 0 {
			e.Quotes = append(e.Quotes, nodeWarnings(in, n.Name, aboutRunning...)...)
		}
	}
}

// judge sets the summary and the remedies from the verdicts about the nodes. others is true if other
// drivers may serve all of the pod's requests.
func (e *Explanation) judge(in *Input, d *demand.Demand, others bool) {
	var fitting []string
	var failing *fit.Node
	for i, n := range e.Nodes {
		switch n.Verdict {
		case fit.Fits:
			fitting = append(fitting, n.Name)
		case fit.SelectorFails, fit.Unclear:
			failing = cmp.Or(failing, &e.Nodes[i])
		case fit.Full, fit.NotTogether, fit.Switching, fit.Tainted, fit.Unusable, fit.Excluded, fit.Never, fit.Lacking:
		}
	}
	on, doubts := text.List(fitting, maxNamed), in.doubts()
	switch {
	case in.Slices == nil:
		e.say(Unknown, "%s has no node yet. The reason cannot be determined without the ResourceSlices.", e.who())
	case len(e.Nodes) == 0:
		e.say(NoRoom, "%s waits for a GPU, and no node publishes any.", e.who())
		e.remedy("see whether the plugin runs on the nodes with GPUs:", "kubectl get daemonsets "+cluster.InSystem(cluster.SystemNamespace(in.Classes))+" -l "+cluster.PluginLabel)
	case len(d.Unallocated) == 0 && len(fitting) > 0:
		e.say(NoRoom, "%s has its devices, on %s, and waits for something else there.", e.who(), on)
	case len(d.Unallocated) == 0:
		e.say(NoRoom, "%s has its devices, and no node yet: it must go where they are.", e.who())
	case len(fitting) > 0 && len(doubts) > 0:
		e.doubtful(in, on, doubts)
	case len(fitting) > 0:
		e.roomNow(on, in.Pod)
		return
	case failing != nil:
		e.say(Unknown, "%s has no node yet: %s", e.who(), whyNot(*failing))
	case len(d.Extended) > 0 && has(in.Unread, ResourceNodes):
		e.say(Unknown, "%s has no node yet. %s. Without the nodes it cannot be determined whether a device plugin could serve it.", e.who(), text.Capital(fit.Summary(e.Nodes)))
	default:
		e.say(NoRoom, "%s waits for %s: %s.", e.who(), demand.Asked(e.Asks), fit.Summary(e.Nodes))
	}
	if e.State == NoRoom && e.Answer == "" {
		e.Answer = fit.CountsOf(e.Nodes).Event(!others)
		if e.Answer == "" && others {
			e.Summary += " Whether devices of another driver can serve it is not explained here."
		}
	}
	e.Remedies = append(e.Remedies, fit.Remedies(e.Nodes)...)
}

// whyNot returns the reason for which a node could not be evaluated.
func whyNot(n fit.Node) string {
	for _, r := range n.Requests {
		if r.Verdict == n.Verdict {
			return r.Text
		}
	}
	return strings.Join(n.Reasons, " ")
}

// answered explains a pod to a user who cannot see all objects by what the controller, which sees all, has
// reported, if it has.
func (e *Explanation) answered(in *Input) bool {
	event := latestAnswer(in)
	if event == nil {
		return false
	}
	e.say(NoRoom, "%s waits for a device, according to Tranche's controller, which sees all objects (%s).", e.who(), event.Reason)
	e.Answer = event.Reason
	e.Quotes = append(e.Quotes, quoteOf(*event, in.Now))
	return true
}

// doubtful explains devices that look free to a user who cannot see all objects.
func (e *Explanation) doubtful(in *Input, nodes string, doubts []string) {
	if !e.answered(in) {
		e.say(Unknown, "%s has no node yet. As far as you may see, its devices are free on %s; but %s, which you may not see.", e.who(), nodes, strings.Join(doubts, ", and "))
		e.remedy("wait for the event that Tranche's controller writes on pods that wait for longer than a minute, or ask an administrator to run this command.", "")
		return
	}
	e.Summary += fmt.Sprintf(" As far as you may see, its devices are free on %s.", nodes)
}

// roomNow explains devices that would fit now. The scheduler may not have tried again since then, so
// it also names what else decides where the pod can run.
func (e *Explanation) roomNow(nodes string, pod *corev1.Pod) {
	e.say(RoomNow, "%s would get its devices on %s now. Either the scheduler has not tried again yet, or something else keeps the pod away.", e.who(), nodes)
	e.remedy("wait: the scheduler tries again when something changes, and every five minutes at the latest.", "")
	otherwise := "if this persists, the devices are not the cause; see the scheduler's message."
	if others := demand.Others(pod); len(others) > 0 {
		otherwise += " Besides devices, the pod asks for: " + strings.Join(others, "; ") + "."
	}
	e.remedy(otherwise, "")
}

// remedyClasses adds the remedies for users who may not list DeviceClasses.
func (e *Explanation) remedyClasses() {
	e.remedy("ask an administrator for the role tranche-user, bound for the whole cluster, or to run this command.", "")
}

// scheduling adds what else the pod's spec and status say about its scheduling.
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
		e.Summary = fmt.Sprintf("%s waits until pods of lower priority leave %s: the scheduler has asked them to.", e.who(), pod.Status.NominatedNodeName)
		e.Answer, e.Remedies = "", nil
		e.remedy("wait: it lasts at most as long as the pods take to end.", "")
	case named && !tried && e.State != NoRoom:
		e.State = SchedulerSilent
		e.Summary = fmt.Sprintf("%s asks for the scheduler %s, which has not reported anything about it.", e.who(), pod.Spec.SchedulerName)
		e.Remedies = nil
		e.remedy("see whether that scheduler runs, and whether the pod belongs to a queue or group that it waits for; or leave out schedulerName.", "")
	case named && !tried:
		e.Summary += fmt.Sprintf(" Besides, the scheduler that it asks for, %s, has not reported anything about it.", pod.Spec.SchedulerName)
	}
}

// preempts reports whether the scheduler preempts pods for the pod. Since Kubernetes 1.35, a nominated
// node can also mean that something has to be prepared there (KEP-5278).
func preempts(in *Input) bool {
	failed := slices.ContainsFunc(in.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
	return failed || slices.ContainsFunc(in.Events, func(e corev1.Event) bool {
		return e.Reason == "Preempted" && e.Related != nil && e.Related.UID == in.Pod.UID
	})
}
