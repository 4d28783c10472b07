package kueue

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names of Kueue's API (apis/kueue/v1beta2 and pkg/controller/constants of its repository).
const (
	Group = "kueue.x-k8s.io"
	// QueueLabel names the LocalQueue of a job or a pod.
	QueueLabel = Group + "/queue-name"
	// workloadAnnotation names the Workload of a pod for which Kueue chooses the nodes.
	workloadAnnotation = Group + "/workload"
	// gatePrefix begins the names of Kueue's scheduling gates.
	gatePrefix = Group + "/"
	// TopologyGate is on pods until Kueue has chosen their nodes, ElasticGate on the pods of a job that
	// has become larger.
	TopologyGate = gatePrefix + "topology"
	ElasticGate  = gatePrefix + "elastic-job"

	quotaReserved = "QuotaReserved"
	admitted      = "Admitted"
	evicted       = "Evicted"
	finished      = "Finished"
)

// neverReasons are those of QuotaReserved for Workloads that no free quota helps. Inadmissible is
// the only one without the feature gate for detailed reasons.
var neverReasons = []string{"Inadmissible", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota", "Suspended"}

// Versions of the API in which Workloads are read, the preferred one first. What is used of them is
// alike.
var Versions = []string{"v1beta2", "v1beta1"}

// Workload is what is used of a Workload.
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

// Of finds the Workload of an object. An elastic job has one for each of its sizes: the latest that is
// not over counts.
func Of(all []Workload, owner metav1.Object) *Workload { return ofUID(all, owner.GetUID()) }

func ofUID(all []Workload, uid types.UID) *Workload {
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
	if over := w.over(); over != o.over() {
		return !over
	}
	return w.CreationTimestamp.After(o.CreationTimestamp.Time)
}

func (w *Workload) over() bool { return meta.IsStatusConditionTrue(w.Status.Conditions, finished) }

// OfPod finds the Workload of a pod: its own, that of its job, or the one that Kueue has named on it.
func OfPod(all []Workload, pod metav1.Object) *Workload {
	if w := Of(all, pod); w != nil {
		return w
	}
	if job := metav1.GetControllerOf(pod); job != nil {
		if w := ofUID(all, job.UID); w != nil {
			return w
		}
	}
	if i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == pod.GetAnnotations()[workloadAnnotation] }); i >= 0 {
		return &all[i]
	}
	return nil
}

// IsGate tells whether a scheduling gate is Kueue's.
func IsGate(name string) bool { return strings.HasPrefix(name, gatePrefix) }

// State is how far a Workload is.
type State string

// The states of a Workload.
const (
	// Pending: it waits for quota. Inadmissible: its queue cannot admit it, whatever is free.
	Pending      State = "Pending"
	Inadmissible State = "Inadmissible"
	// Checking: it has quota and waits for admission checks.
	Checking State = "Checking"
	// Deactivated: spec.active is false.
	Deactivated State = "Deactivated"
	// Evicted: it was admitted and has lost that again.
	Evicted  State = "Evicted"
	Admitted State = "Admitted"
	Finished State = "Finished"
)

// Status is what a Workload waits for.
type Status struct {
	State State
	// Reason is Kueue's word for it, Message Kueue's sentence.
	Reason, Message string
	// Text is what it means: "has no quota yet".
	Text string
}

// Waits says what the Workload waits for.
func (w *Workload) Waits() Status {
	condition := func(kind string) *metav1.Condition { return meta.FindStatusCondition(w.Status.Conditions, kind) }
	is := func(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue }
	of := func(s State, c *metav1.Condition, text string) Status {
		out := Status{State: s, Text: text}
		if c != nil {
			out.Reason, out.Message = c.Reason, c.Message
		}
		return out
	}
	quota := condition(quotaReserved)
	switch {
	case is(condition(finished)):
		return of(Finished, condition(finished), "has finished")
	case w.Spec.Active != nil && !*w.Spec.Active:
		return of(Deactivated, condition(evicted), "is deactivated (spec.active of its Workload is false)")
	case is(condition(admitted)):
		return of(Admitted, condition(admitted), "is admitted")
	case is(quota):
		return of(Checking, w.check(), "has quota and waits for admission checks")
	case is(condition(evicted)):
		// The condition about the quota says what it waits for since then.
		c := quota
		if c == nil || c.Message == "" {
			c = condition(evicted)
		}
		return of(Evicted, c, "was admitted and then evicted ("+condition(evicted).Reason+"), and waits for quota again")
	case quota != nil && slices.Contains(neverReasons, quota.Reason):
		return of(Inadmissible, quota, "cannot be admitted by its queue as it is")
	}
	return of(Pending, quota, "waits for quota")
}

// check is the first admission check that is not ready, as a condition.
func (w *Workload) check() *metav1.Condition {
	for _, c := range w.Status.AdmissionChecks {
		if c.State != "Ready" {
			return &metav1.Condition{Reason: c.Name, Message: strings.TrimSpace(fmt.Sprintf("%s is %s. %s", c.Name, c.State, c.Message))}
		}
	}
	return nil
}
