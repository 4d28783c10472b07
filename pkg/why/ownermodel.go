package why

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// The kinds that are explained, in addition to pods.
const (
	KindJob           = "Job"
	KindDeployment    = "Deployment"
	KindReplicaSet    = "ReplicaSet"
	KindStatefulSet   = "StatefulSet"
	KindJobSet        = "JobSet"
	KindResourceClaim = "ResourceClaim"
)

// JobSet has the fields of a JobSet (jobset.x-k8s.io/v1alpha2) that this package uses.
type JobSet struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend *bool `json:"suspend"`
	} `json:"spec"`
	Status struct {
		Conditions    []metav1.Condition `json:"conditions"`
		TerminalState string             `json:"terminalState"`
	} `json:"status"`
}

// OwnerInput contains the owner, which is of one of the kinds above, and objects of its namespace.
// Objects that could not be read are nil, and listed in Unread.
type OwnerInput struct {
	Job         *batchv1.Job
	Deployment  *appsv1.Deployment
	ReplicaSet  *appsv1.ReplicaSet
	StatefulSet *appsv1.StatefulSet
	JobSet      *JobSet
	Claim       *resourceapi.ResourceClaim

	Jobs        []batchv1.Job
	ReplicaSets []appsv1.ReplicaSet
	// Pods may include pods of others.
	Pods      []corev1.Pod
	Events    []corev1.Event
	Quotas    []corev1.ResourceQuota
	Workloads []Workload
	Unread    []text.Unread
	Now       time.Time
}

// OwnerExplanation explains why an owner's pods do not run. `-o json` prints its JSON form.
type OwnerExplanation struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"objectKind"`
	Name      string `json:"objectName"`
	State     State  `json:"state"`
	// Summary is the explanation in sentences.
	Summary string `json:"message"`
	// Workload is what Kueue waits for.
	Workload *WorkloadStatus `json:"workload,omitempty"`
	// Groups are the pods that do not run, by state.
	Groups []Group `json:"groups,omitempty"`
	// Pods explain the first pod of each group. The caller sets them.
	Pods []*Explanation `json:"pods,omitempty"`
	// Exceeded are the quotas that more pods would exceed.
	Exceeded []QuotaUsed   `json:"exceededQuotas,omitempty"`
	Quotes   []Quote       `json:"quotes,omitempty"`
	Remedies []fit.Remedy  `json:"remedies,omitempty"`
	Unread   []text.Unread `json:"unread,omitempty"`
}

// WorkloadStatus is the status of the owner's Workload.
type WorkloadStatus struct {
	Name   string        `json:"name"`
	Queue  string        `json:"queueName,omitempty"`
	State  WorkloadState `json:"state"`
	Reason string        `json:"reason,omitempty"`
}

// Group is a group of pods in the same state.
type Group struct {
	Waits State    `json:"state"`
	Pods  []string `json:"podNames"`
}

func (e *OwnerExplanation) remedy(text, command string) {
	e.Remedies = append(e.Remedies, fit.Remedy{Text: text, Command: command})
}

// podStates are the states of waiting pods, in the order in which they are explained. The message
// follows a number of pods.
var podStates = []struct {
	State
	message string
}{
	{Unscheduled, "waiting for a node"},
	{Gated, "not to be scheduled yet"},
	{Starting, "starting"},
	{NotReady, "not ready"},
	{Terminating, "being deleted"},
}

// podState returns the state of a waiting pod, or "" if it does not wait.
func podState(p *corev1.Pod) State {
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return ""
	case p.DeletionTimestamp != nil:
		return Terminating
	case p.Spec.NodeName == "" && len(p.Spec.SchedulingGates) > 0:
		return Gated
	case p.Spec.NodeName == "":
		return Unscheduled
	case p.Status.Phase == corev1.PodPending:
		return Starting
	case !ready(p):
		return NotReady
	}
	return ""
}

func ready(p *corev1.Pod) bool {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return i >= 0 && p.Status.Conditions[i].Status == corev1.ConditionTrue
}

// grouped returns waiting pods by state.
func grouped(pods []*corev1.Pod) []Group {
	var out []Group
	for _, w := range podStates {
		var names []string
		for _, p := range pods {
			if podState(p) == w.State {
				names = append(names, p.Name)
			}
		}
		if len(names) > 0 {
			out = append(out, Group{Waits: w.State, Pods: names})
		}
	}
	return out
}

func older(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
