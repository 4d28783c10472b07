package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PartitionPlanStatus is the observed state of a plan. The controller writes it.
type PartitionPlanStatus struct {
	// ObservedGeneration is the generation that the status belongs to.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision is the newest revision. Each change of the profile creates one.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// TargetRevision is the revision that nodes get: the newest one, unless it was rejected. Absent: there
	// is none yet, or none to go back to, so the plan gives the nodes no profile (reason Undone).
	//
	// +optional
	TargetRevision *int64 `json:"targetRevision,omitempty"`
	// CurrentStep is the current step, beginning with 1.
	//
	// +optional
	CurrentStep int32 `json:"currentStep,omitempty"`
	// StepCount is the number of steps, including the last one with all nodes.
	//
	// +optional
	StepCount int32 `json:"stepCount,omitempty"`
	// StartTime is the time at which the rollout of the target began.
	//
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// StepReachedTime is the time at which all nodes of the step had the target and its soak began.
	//
	// +optional
	StepReachedTime *metav1.Time `json:"stepReachedTime,omitempty"`
	// EstimatedCompletionTime is the time at which the last node will have the target, estimated
	// from the switches so far. It is absent until one is complete.
	//
	// +optional
	EstimatedCompletionTime *metav1.Time `json:"estimatedCompletionTime,omitempty"`
	// MeanSwitchDuration is the mean duration of the switches to the target so far: "1m30s".
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	MeanSwitchDuration *metav1.Duration `json:"meanSwitchDuration,omitempty"`
	// NodeCounts counts the nodes.
	//
	// +optional
	NodeCounts PlanNodeCounts `json:"nodeCounts,omitempty"`
	// FailedNodes lists the first nodes that have failed.
	//
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=20
	FailedNodes []PlanNode `json:"failedNodes,omitempty"`
	// SetAsideNodes lists the first nodes that cannot be switched now. They do not count against
	// maxUnavailable, and are retried when what blocks them changes.
	//
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=20
	SetAsideNodes []PlanNode `json:"setAsideNodes,omitempty"`
	// Stopped is set if the plan has stopped, with the cause.
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
	// Conditions are Ready, Progressing, Paused, Stopped and Degraded.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.type) <= 64 && size(c.reason) <= 128 && size(c.message) <= 2048)",message="a condition has a type of at most 64 characters, a reason of 128 and a message of 2048"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlanNodeCounts counts the nodes of a plan. Each of the plan's nodes is counted as one of updated,
// switching, waiting, failed, setAside, notReady and overridden.
type PlanNodeCounts struct {
	// Selected is the number of nodes that the selector matches and that no other plan has.
	//
	// +optional
	Selected int32 `json:"selected"`
	// Updated is the number of nodes that have the target.
	//
	// +optional
	Updated int32 `json:"updated"`
	// Switching is the number of nodes that are being switched, or were just admitted.
	//
	// +optional
	Switching int32 `json:"switching"`
	// Waiting is the number of nodes that have not been admitted yet.
	//
	// +optional
	Waiting int32 `json:"waiting"`
	// Failed is the number of nodes whose switch failed or was rolled back, or that became
	// unhealthy or could not prepare claims while the plan watched them.
	//
	// +optional
	Failed int32 `json:"failed"`
	// SetAside is the number of nodes that cannot be switched now, for example because pods
	// cannot be evicted.
	//
	// +optional
	SetAside int32 `json:"setAside"`
	// NotReady is the number of nodes that are not ready, or whose plugin has not reported.
	//
	// +optional
	NotReady int32 `json:"notReady"`
	// Overridden is the number of nodes that follow a label or their GPUNode's spec instead.
	//
	// +optional
	Overridden int32 `json:"overridden"`
}

// PlanNode is a node of a plan, and what is wrong with it.
type PlanNode struct {
	// NodeName is the name of the node.
	//
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// Reason is the reason of the failed switch or of what blocks the node, Unhealthy or
	// ClaimsNotPrepared.
	//
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// Message explains Reason. The controller truncates it to the maximum length.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PlanStop is the cause for which a plan has stopped. It remains until the failures are
// accepted or there is another revision, and does not stop nodes that go back.
type PlanStop struct {
	// Revision is the revision with which nodes failed.
	Revision int64 `json:"revision"`
	// FailedNodeCount is the number of nodes that failed.
	FailedNodeCount int32 `json:"failedNodeCount"`
	// StopTime is the time at which the plan stopped.
	StopTime metav1.Time `json:"stopTime"`
}

// PlanRevision is a version of the profile of a plan.
type PlanRevision struct {
	// RevisionReference is what spec.approved, spec.accepted and spec.rejected refer to.
	RevisionReference `json:",inline"`
	// ProfileName is the name of the profile.
	//
	// +kubebuilder:validation:MaxLength=63
	ProfileName string `json:"profileName"`
	// RulesVersion is the version of the API in whose shape rules are.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RulesVersion string `json:"rulesVersion,omitempty"`
	// Rules are the profile's rules, in the shape of rulesVersion. The profile validates them.
	//
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Rules *runtime.RawExtension `json:"rules,omitempty"`
	// CreationTime is the time at which the controller first saw the revision.
	CreationTime metav1.Time `json:"creationTime"`
	// CompletionTime is the time at which its last step ended.
	//
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Rejected is true if the plan went back from the revision, by spec.rejected or onFailure.
	//
	// +optional
	Rejected bool `json:"rejected,omitempty"`
}
