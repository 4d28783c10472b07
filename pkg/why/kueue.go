package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Names of Kueue's API (apis/kueue/v1beta2 and pkg/controller/constants of its repository).
const (
	KueueGroup = "kueue.x-k8s.io"
	// KueueQueueLabel names the LocalQueue of a job or a pod.
	KueueQueueLabel = KueueGroup + "/queue-name"
	// workloadAnnotation names the Workload of a pod for which Kueue chooses the nodes.
	workloadAnnotation = KueueGroup + "/workload"
	// gatePrefix begins the names of Kueue's scheduling gates.
	gatePrefix = KueueGroup + "/"
	// topologyGate is on pods until Kueue has chosen their nodes, elasticGate on pods that a scaled-up
	// job has added.
	topologyGate = gatePrefix + "topology"
	elasticGate  = gatePrefix + "elastic-job"

	quotaReserved = "QuotaReserved"
	isAdmitted    = "Admitted"
	isEvicted     = "Evicted"
	isFinished    = "Finished"
)

// neverReasons are the reasons of QuotaReserved for Workloads that free quota does not help. Without
// the feature gate for detailed reasons, Inadmissible is the only one.
var neverReasons = []string{"Inadmissible", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota", "Suspended"}

// KueueVersions are the API versions to read Workloads in, the preferred one first. The fields of
// Workload are the same in all of them.
var KueueVersions = []string{"v1beta2", "v1beta1"}

// Workload has the fields of Kueue's Workload that this package uses.
type Workload struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		QueueName string `json:"queueName"`
		Active    *bool  `json:"active"`
	} `json:"spec"`
	Status struct {
		Conditions      []metav1.Condition `json:"conditions"`
		AdmissionChecks []struct {
			Name    string `json:"name"`
			State   string `json:"state"`
			Message string `json:"message"`
		} `json:"admissionChecks"`
	} `json:"status"`
}

// workloadOf returns the Workload of the object with a UID. An elastic job has one for each of its
// sizes, of which the latest unfinished one counts.
func workloadOf(all []Workload, uid types.UID) *Workload {
	var found *Workload
	for i := range all {
		w := &all[i]
		owned := slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
		if owned && (found == nil || w.later(found)) {
			found = w
		}
	}
	return found
}

func (w *Workload) later(o *Workload) bool {
	if finished := w.finished(); finished != o.finished() {
		return !finished
	}
	return w.CreationTimestamp.After(o.CreationTimestamp.Time)
}

func (w *Workload) finished() bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, isFinished)
}

// workloadOfPod returns the Workload of a pod: its own, its job's, or the one in its annotation.
func workloadOfPod(all []Workload, pod metav1.Object) *Workload {
	if w := workloadOf(all, pod.GetUID()); w != nil {
		return w
	}
	if job := metav1.GetControllerOf(pod); job != nil {
		if w := workloadOf(all, job.UID); w != nil {
			return w
		}
	}
	if i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == pod.GetAnnotations()[workloadAnnotation] }); i >= 0 {
		return &all[i]
	}
	return nil
}

// isKueueGate reports whether a scheduling gate is Kueue's.
func isKueueGate(name string) bool { return strings.HasPrefix(name, gatePrefix) }

// WorkloadState is the state of a Workload.
type WorkloadState string

// The states of a Workload.
const (
	// WorkloadPending: it waits for quota. WorkloadInadmissible: its queue can never admit it.
	WorkloadPending      WorkloadState = "Pending"
	WorkloadInadmissible WorkloadState = "Inadmissible"
	// WorkloadChecking: it has quota and waits for admission checks.
	WorkloadChecking WorkloadState = "Checking"
	// WorkloadDeactivated: spec.active is false.
	WorkloadDeactivated WorkloadState = "Deactivated"
	// WorkloadEvicted: it was admitted, and then evicted.
	WorkloadEvicted  WorkloadState = "Evicted"
	WorkloadAdmitted WorkloadState = "Admitted"
	WorkloadFinished WorkloadState = "Finished"
)

// pending is what a Workload waits for.
type pending struct {
	State WorkloadState
	// Reason and Message are Kueue's.
	Reason, Message string
	// Text explains it: "has no quota yet".
	Text string
}

// pending returns what the Workload waits for.
func (w *Workload) pending() pending {
	condition := func(kind string) *metav1.Condition { return meta.FindStatusCondition(w.Status.Conditions, kind) }
	is := func(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue }
	of := func(s WorkloadState, c *metav1.Condition, text string) pending {
		out := pending{State: s, Text: text}
		if c != nil {
			out.Reason, out.Message = c.Reason, c.Message
		}
		return out
	}
	quota := condition(quotaReserved)
	switch {
	case is(condition(isFinished)):
		return of(WorkloadFinished, condition(isFinished), "has finished")
	case w.Spec.Active != nil && !*w.Spec.Active:
		return of(WorkloadDeactivated, condition(isEvicted), "is deactivated (spec.active of its Workload is false)")
	case is(condition(isAdmitted)):
		return of(WorkloadAdmitted, condition(isAdmitted), "is admitted")
	case is(quota):
		return of(WorkloadChecking, w.check(), "has quota and waits for admission checks")
	case is(condition(isEvicted)):
		// QuotaReserved has what it has waited for since then.
		c := quota
		if c == nil || c.Message == "" {
			c = condition(isEvicted)
		}
		return of(WorkloadEvicted, c, "was admitted and then evicted ("+condition(isEvicted).Reason+"), and waits for quota again")
	case quota != nil && slices.Contains(neverReasons, quota.Reason):
		return of(WorkloadInadmissible, quota, "cannot be admitted by its queue as it is")
	}
	return of(WorkloadPending, quota, "waits for quota")
}

// check returns the first admission check that is not ready, as a condition.
func (w *Workload) check() *metav1.Condition {
	for _, c := range w.Status.AdmissionChecks {
		if c.State != "Ready" {
			return &metav1.Condition{Reason: c.Name, Message: strings.TrimSpace(fmt.Sprintf("%s is %s. %s", c.Name, c.State, c.Message))}
		}
	}
	return nil
}

// gatesOfKueue are the conditions under which Kueue removes its gates.
var gatesOfKueue = map[string]string{
	topologyGate: "when it has admitted the pod's job and chosen the nodes for its pods",
	elasticGate:  "when it has quota for the current size of the pod's job",
}

// gatedByKueue explains what Kueue waits for before it removes a gate.
func (e *Explanation) gatedByKueue(in *Input, gate string) {
	e.Summary += " Kueue removes its gate " + cmp.Or(gatesOfKueue[gate], "when it admits the pod or its job")
	w := workloadOfPod(in.Workloads, in.Pod)
	switch {
	case w != nil:
		e.Summary += fmt.Sprintf(": the Workload %s %s.", w.Name, w.pending().Text)
		e.Quotes = append(e.Quotes, kueueQuotes(w, in.Now)...)
		e.Remedies = append(e.Remedies, kueueRemedies(e.Namespace, w)...)
	case has(in.Unread, ResourceWorkloads):
		e.Summary += "."
		e.remedy("ask an administrator what Kueue waits for, or for the right to list workloads.kueue.x-k8s.io in the namespace.", "")
	default:
		e.Summary += "; no Workload of theirs was found."
		e.remedy("see whether Kueue runs, and manages objects of this kind. Its Workloads:", "kubectl get workloads -n "+e.Namespace)
	}
}

// kueueQuotes quotes Kueue's message about a Workload.
func kueueQuotes(w *Workload, now time.Time) []Quote {
	said := w.pending()
	if said.Message == "" {
		return nil
	}
	q := Quote{Who: "Kueue about the workload " + w.Name, Object: corev1.ObjectReference{Kind: "Workload", Namespace: w.Namespace, Name: w.Name}, Reason: said.Reason, Message: said.Message}
	for _, c := range w.Status.Conditions {
		if c.Message == said.Message {
			q.at(now, c.LastTransitionTime.Time)
		}
	}
	return []Quote{q}
}

// kueueRemedies returns what users can do about a Workload that is not admitted.
func kueueRemedies(namespace string, w *Workload) []fit.Remedy {
	describe := "kubectl describe workload " + w.Name + " -n " + namespace
	queue := fit.Remedy{Text: "see what the queue has and who waits in it:", Command: "kubectl describe localqueue " + w.Spec.QueueName + " -n " + namespace}
	switch w.pending().State {
	case WorkloadPending, WorkloadEvicted:
		return []fit.Remedy{{Text: "wait: Kueue starts it when other jobs of the queue end, or ask for less."}, queue}
	case WorkloadInadmissible:
		return []fit.Remedy{{Text: "change the job or its queue as Kueue's message says, or ask the administrator of the queue."}, queue}
	case WorkloadChecking:
		return []fit.Remedy{{Text: "wait until the admission checks are done:", Command: describe}}
	case WorkloadDeactivated:
		return []fit.Remedy{{Text: "when the cause is resolved, queue it again:",
			Command: fmt.Sprintf(`kubectl patch workload %s -n %s --type=merge -p '{"spec":{"active":true}}'`, w.Name, namespace)}}
	case WorkloadAdmitted:
		return []fit.Remedy{{Text: "wait: that takes seconds. If it takes longer, see the Workload:", Command: describe}}
	case WorkloadFinished:
	}
	return nil
}
