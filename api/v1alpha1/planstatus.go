package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PartitionPlanStatus is the observed state of a plan. The controller writes it.
type PartitionPlanStatus struct {
	// ObservedGeneration is the generation that the status belongs to.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision is the newest revision. Each change of the profile makes one.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Target is the revision that nodes get: the newest one, except after an undo. 0: the plan
	// gives the nodes no profile.
	//
	// +optional
	Target int64 `json:"target,omitempty"`
	// Step is the current step, beginning with 1. Steps is the number of steps, including the
	// last one with all nodes.
	//
	// +optional
	Step int32 `json:"step,omitempty"`
	// +optional
	Steps int32 `json:"steps,omitempty"`
	// Started is when the rollout of the target began.
	//
	// +optional
	Started *metav1.Time `json:"started,omitempty"`
	// StepReached is when the step's nodes all had the target: its soak began.
	//
	// +optional
	StepReached *metav1.Time `json:"stepReached,omitempty"`
	// EstimatedCompletion is when the last node will have the target, by the duration of the
	// switches so far. Absent while that is not known.
	//
	// +optional
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// SwitchDuration is the mean duration of the switches to the target so far.
	//
	// +optional
	SwitchDuration *metav1.Duration `json:"switchDuration,omitempty"`
	// Nodes counts the nodes.
	//
	// +optional
	Nodes PlanNodes `json:"nodes,omitempty"`
	// Failed are nodes that have failed, the first ones only.
	//
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=20
	Failed []PlanNode `json:"failed,omitempty"`
	// SetAside are nodes that cannot be switched now, the first ones only. They do not count
	// for maxUnavailable, and are tried again when what blocks them changes.
	//
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=20
	SetAside []PlanNode `json:"setAside,omitempty"`
	// Stopped says that and why the plan has stopped.
	//
	// +optional
	Stopped *PlanStop `json:"stopped,omitempty"`
	// History are the last revisions, the newest first.
	//
	// +optional
	// +listType=map
	// +listMapKey=revision
	// +kubebuilder:validation:MaxItems=6
	History []PlanRevision `json:"history,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlanNodes counts the nodes of a plan. Each of the plan's nodes is counted as one of updated,
// switching, waiting, failed, setAside, notReady and overruled.
type PlanNodes struct {
	// Selected is the number of nodes that the selector matches and that no other plan has.
	//
	// +optional
	Selected int32 `json:"selected"`
	// Updated have the target.
	//
	// +optional
	Updated int32 `json:"updated"`
	// Switching are being switched, or have just been admitted.
	//
	// +optional
	Switching int32 `json:"switching"`
	// Waiting have not been admitted yet.
	//
	// +optional
	Waiting int32 `json:"waiting"`
	// Failed have failed: their switch was rolled back or failed, or they became unhealthy, or
	// could not prepare claims, while the plan watched them.
	//
	// +optional
	Failed int32 `json:"failed"`
	// SetAside cannot be switched now, because pods cannot be evicted for example.
	//
	// +optional
	SetAside int32 `json:"setAside"`
	// NotReady are not ready, or their plugin has not reported.
	//
	// +optional
	NotReady int32 `json:"notReady"`
	// Overruled follow a label or the spec of their GPUNode instead.
	//
	// +optional
	Overruled int32 `json:"overruled"`
}

// PlanNode is a node of a plan, and what is wrong with it.
type PlanNode struct {
	Node string `json:"node"`
	// Reason is that of the failed switch, Unhealthy or ClaimsNotPrepared.
	Reason string `json:"reason"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PlanStop is why a plan has stopped. It remains until the failures are accepted or there is
// another revision. If the nodes go back from the revision, it no longer stops them.
type PlanStop struct {
	// Revision is the revision with which the nodes failed, Failures how many did.
	Revision int64 `json:"revision"`
	Failures int32 `json:"failures"`
	// Time is when the plan stopped.
	Time metav1.Time `json:"time"`
}

// PlanRevision is a version of the profile of a plan.
type PlanRevision struct {
	// Revision is its number, beginning with 1.
	Revision int64 `json:"revision"`
	// Profile is the name of the profile.
	Profile string `json:"profile"`
	// Hash is a hash of name and rules.
	Hash string `json:"hash"`
	// Rules are those of the profile, which validates them.
	//
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Rules []Rule `json:"rules,omitempty"`
	// Created is when the controller saw it first, Completed when its last step was over.
	Created metav1.Time `json:"created"`
	// +optional
	Completed *metav1.Time `json:"completed,omitempty"`
	// Rejected: the plan went back from it, by spec.undo or onFailure.
	//
	// +optional
	Rejected bool `json:"rejected,omitempty"`
}
