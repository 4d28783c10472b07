package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// scheduler is the name of the scheduler in quotes.
const scheduler = "the scheduler"

// maxQuotes is the maximum number of events to quote.
const maxQuotes = 3

// schedulerQuotes quotes why the scheduler found no node.
func schedulerQuotes(in *Input) []Quote {
	for _, c := range in.Pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status == corev1.ConditionTrue || c.Message == "" {
			continue
		}
		q := Quote{Who: scheduler, Object: corev1.ObjectReference{Kind: "Pod", Namespace: in.Pod.Namespace, Name: in.Pod.Name}, Reason: c.Reason, Message: c.Message}
		for _, event := range in.Events {
			if event.Reason == "FailedScheduling" && event.InvolvedObject.Name == in.Pod.Name && last(event).After(c.LastTransitionTime.Time) {
				q.Component = component(event)
				q.at(in.Now, last(event))
				q.Count = max(q.Count, count(event))
			}
		}
		return []Quote{q}
	}
	return nil
}

// involved returns the objects whose events matter for the pod, as KIND/NAME.
func involved(in *Input, d *demand.Demand) map[string]bool {
	out := map[string]bool{"Pod/" + in.Pod.Name: true}
	for _, c := range slices.Concat(d.Unallocated, d.Allocated) {
		out["ResourceClaim/"+c.Name] = true
	}
	for _, v := range d.Volumes {
		out["PersistentVolumeClaim/"+v.Claim] = true
	}
	return out
}

// warnings quotes the latest warnings about objects, one for each reason except those in but.
func warnings(in *Input, about map[string]bool, but ...string) []Quote {
	return quotes(in.Events, in.Now, func(e corev1.Event) bool {
		stale := e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.UID != "" && e.InvolvedObject.UID != in.Pod.UID
		ours := component(e) == names.ControllerName && isAnswer(e.Reason) // the explanation has it already
		return about[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] && !stale && !ours && !slices.Contains(but, e.Reason)
	})
}

// nodeWarnings quotes the events of the plugin and the controller about a node, except those with reasons in
// but, and those that are over.
func nodeWarnings(in *Input, node string, but ...string) []Quote {
	sick := in.sick(node)
	return quotes(in.NodeEvents, in.Now, func(e corev1.Event) bool {
		ours := component(e) == names.DriverName || component(e) == names.ControllerName
		over := isOver(e, in.NodeEvents) && (!sick || !aboutGPU[e.Reason])
		return ours && e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == node && !over && !slices.Contains(but, e.Reason)
	})
}

// aboutRunning are the reasons of warnings about pods that run. They keep no pod from its devices.
var aboutRunning = []string{
	names.EventSharesNotLimited, names.EventShareLimitRestored, names.EventShareLimitFailed, names.EventMPSDaemonDied,
	names.EventStrayDaemonStopped, names.EventGPUError, names.EventPreparedAgain, names.EventOrphanFileRemoved, names.EventRecordRebuilt,
}

// endedBy has the reasons of warnings about nodes with those of the events that end them.
var endedBy = map[string]string{
	names.EventGPUUnhealthy:     names.EventGPUHealthy,
	names.EventGPUBusy:          names.EventGPUNoLongerBusy,
	names.EventPartitionMissing: names.EventPartitionFound,
	names.EventDevicesFail:      names.EventDevicesWork,
	names.EventHeldDeviceGone:   names.EventHeldDeviceReleased,
	names.EventOtherSystem:      names.EventOtherSystemGone,
	names.EventHardwareUnusable: names.EventDriverFound,
	names.EventSharesNotLimited: names.EventSharesLimited,
	names.EventMPSDaemonDied:    names.EventMPSDaemonRestarted,
}

// aboutGPU are the reasons of warnings about one GPU. An event that ends one may be about another GPU.
var aboutGPU = map[string]bool{names.EventGPUUnhealthy: true, names.EventPartitionMissing: true, names.EventDevicesFail: true, names.EventHeldDeviceGone: true}

// isOver reports whether a later event ends a warning about a node.
func isOver(e corev1.Event, all []corev1.Event) bool {
	return slices.ContainsFunc(all, func(o corev1.Event) bool {
		return o.Reason != "" && o.Reason == endedBy[e.Reason] && o.InvolvedObject.Name == e.InvolvedObject.Name && component(o) == component(e) && last(o).After(last(e))
	})
}

// sick reports whether a GPU of a node has a problem, or may have one.
func (in *Input) sick(node string) bool {
	n := lists.Find(in.GPUNodes, func(n *v1beta1.GPUNode) bool { return n.Name == node })
	return n == nil || n.Status.Node == nil || slices.ContainsFunc(n.Status.Node.GPUs, func(g v1beta1.GPUReport) bool { return len(g.Problems) > 0 })
}

// quotes quotes the latest wanted warnings, one for each reason and object.
func quotes(events []corev1.Event, now time.Time, wanted func(corev1.Event) bool) []Quote {
	all := slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool {
		return e.Type != corev1.EventTypeWarning || !wanted(e)
	})
	slices.SortFunc(all, func(a, b corev1.Event) int {
		return cmp.Or(last(b).Compare(last(a)), cmp.Compare(a.Name, b.Name))
	})
	var out []Quote
	for _, e := range all {
		q := quoteOf(e, now)
		same := func(o Quote) bool { return o.Reason == q.Reason && o.Who == q.Who }
		if len(out) < maxQuotes && !slices.ContainsFunc(out, same) {
			out = append(out, q)
		}
	}
	return out
}

// quoteOf quotes an event.
func quoteOf(e corev1.Event, now time.Time) Quote {
	o := e.InvolvedObject
	q := Quote{
		Who: fmt.Sprintf("%s about the %s %s", speaker(e), strings.ToLower(o.Kind), o.Name), Component: component(e),
		Object: corev1.ObjectReference{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, Reason: e.Reason, Count: count(e), Message: e.Message,
	}
	q.at(now, last(e))
	return q
}

// at sets when the message was last reported.
func (q *Quote) at(now, then time.Time) {
	if !then.IsZero() {
		q.Time = &metav1.Time{Time: then}
	}
	q.Age = ageOf(now, then)
}

// speaker returns a name for the component that reported an event.
func speaker(e corev1.Event) string {
	switch who := component(e); who {
	case "":
		return "an event"
	case "kubelet":
		return "the kubelet"
	case "default-scheduler":
		return scheduler
	case "resource_claim", "resourceclaim", "job-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller":
		return "kube-controller-manager"
	case names.DriverName:
		return "Tranche's plugin"
	case names.ControllerName:
		return "Tranche's controller"
	default:
		return who
	}
}

// component returns the component that reported an event, in all versions of the API.
func component(e corev1.Event) string { return cmp.Or(e.ReportingController, e.Source.Component) }

// last returns the time at which an event was last seen, in all versions of the API.
func last(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func count(e corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return max(1, e.Count)
}

func ageOf(now, then time.Time) string {
	if now.IsZero() || then.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}

// isAnswer reports whether the reason of a controller's event explains why a pod waits for its claims.
func isAnswer(reason string) bool {
	return reason == names.EventClaimNotCreated || reason == names.EventRequestInvalid || fit.IsEvent(reason)
}

// Renewal is the interval at which the controller repeats an unchanged event.
const Renewal = 45 * time.Minute

// stale is the age at which an event no longer counts, because the controller would have renewed it.
const stale = time.Hour

// latestAnswer returns the controller's latest event that explains why the pod waits, or nil if devices
// have become free since then.
func latestAnswer(in *Input) *corev1.Event {
	var latest *corev1.Event
	for i := range in.Events {
		e := &in.Events[i]
		mine := e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == in.Pod.Name && e.InvolvedObject.UID == in.Pod.UID
		said := isAnswer(e.Reason) || e.Reason == names.EventDevicesFree
		if component(*e) == names.ControllerName && mine && said && (latest == nil || last(*e).After(last(*latest))) {
			latest = e
		}
	}
	if latest == nil || !isAnswer(latest.Reason) || in.Now.Sub(last(*latest)) > stale {
		return nil
	}
	return latest
}
