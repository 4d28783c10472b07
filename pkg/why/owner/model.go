package owner

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/quota"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// The kinds that are explained, beside pods.
const (
	Job           = "Job"
	Deployment    = "Deployment"
	ReplicaSet    = "ReplicaSet"
	StatefulSet   = "StatefulSet"
	JobSetKind    = "JobSet"
	ResourceClaim = "ResourceClaim"
)

// JobSet is what is used of a JobSet (jobset.x-k8s.io/v1alpha2).
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

// JobSetName is the label of the jobs and pods of a JobSet.
const JobSetName = "jobset.sigs.k8s.io/jobset-name"

// Input has the owner, one of those of the kinds above, and objects of its namespace. What could not be
// read is nil, and Unread says so.
type Input struct {
	Job         *batchv1.Job
	Deployment  *appsv1.Deployment
	ReplicaSet  *appsv1.ReplicaSet
	StatefulSet *appsv1.StatefulSet
	JobSet      *JobSet
	Claim       *resourceapi.ResourceClaim

	Jobs        []batchv1.Job
	ReplicaSets []appsv1.ReplicaSet
	// Pods may be more than those of the owner.
	Pods      []corev1.Pod
	Events    []corev1.Event
	Quotas    []corev1.ResourceQuota
	Workloads []kueue.Workload
	Unread    []unread.Kind
	Now       time.Time
}

// State is the state of an owner, for programs.
type State string

// The states of an owner.
const (
	// Suspended: spec.suspend is true, and Kueue does not manage it.
	Suspended State = "Suspended"
	// NotAdmitted: Kueue has not admitted it. Workload says what it waits for.
	NotAdmitted State = "NotAdmitted"
	// PodsRefused: the API server refuses its pods.
	PodsRefused State = "PodsRefused"
	// NoPods: it has no pods, and nobody says why.
	NoPods State = "NoPods"
	// Idle: it asks for no pods.
	Idle State = "Idle"
	// Waiting: pods of it do not run.
	Waiting State = "Waiting"
	// Running: all its pods run.
	Running State = "Running"
	// Finished and Terminating: there is nothing to wait for.
	Finished    State = "Finished"
	Terminating State = "Terminating"
	// Unused, Allocated: of a ResourceClaim that no pod uses, and of one that has its devices.
	Unused    State = "Unused"
	Allocated State = "Allocated"
	// Unknown: the reason cannot be determined, because objects could not be read.
	Unknown State = "Unknown"
)

// Explanation is the answer. Its JSON form is what `-o json` prints: fields may be
// added, and never change their meaning.
type Explanation struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Summary is the answer in sentences.
	Summary string `json:"summary"`
	// Workload is what Kueue waits for.
	Workload *Workload `json:"workload,omitempty"`
	// Groups are the pods that do not run, by how they wait.
	Groups []Group `json:"groups,omitempty"`
	// Pods explain the first pod of each group, for a caller who has explained them.
	Pods []*why.Explanation `json:"pods,omitempty"`
	// Exceeded are limits of quotas that have no room.
	Exceeded []quota.Used  `json:"exceeded,omitempty"`
	Quotes   []why.Quote   `json:"quotes,omitempty"`
	Remedies []why.Remedy  `json:"remedies,omitempty"`
	Unread   []unread.Kind `json:"unread,omitempty"`
	Notes    []string      `json:"notes,omitempty"`
}

// Workload is Kueue's of the owner.
type Workload struct {
	Name   string      `json:"name"`
	Queue  string      `json:"queue,omitempty"`
	State  kueue.State `json:"state"`
	Reason string      `json:"reason,omitempty"`
}

// Group are pods that wait in the same way.
type Group struct {
	Waits Waits    `json:"waits"`
	Pods  []string `json:"pods"`
}

func (e *Explanation) remedy(text, command string) {
	e.Remedies = append(e.Remedies, why.Remedy{Text: text, Command: command})
}
