package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// GPUNode is a node with GPUs: its desired profile, its applied profile, and the switch
// from one to the other. It has the name of its node. The node's plugin creates it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=gpun
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.status.desired.profileName`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.applied.profileName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.stateChangeTime`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.node.gpuCount`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.node.freeGPUCount`
// +kubebuilder:printcolumn:name="Claims",type=integer,JSONPath=`.status.node.claimCount`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.desired.source`,priority=1
// +kubebuilder:printcolumn:name="Plan",type=string,JSONPath=`.status.desired.planName`,priority=1
// +kubebuilder:printcolumn:name="Set By",type=string,JSONPath=`.metadata.annotations.tranche\.dev/profile-from`,priority=1
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.status.switch.deadlineTime`,priority=1
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.switch.attempt`,priority=1
// +kubebuilder:printcolumn:name="Next Attempt",type=string,JSONPath=`.status.switch.retryTime`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the node.
	//
	// +optional
	Spec GPUNodeSpec `json:"spec,omitempty"`
	// Status is the observed state of the node. The controller and the node's plugin write it.
	//
	// +optional
	Status GPUNodeStatus `json:"status,omitempty"`
}

// EventObject returns a GPUNode with only what an event refers to. Without a resource version, equal
// events are counted as one.
func (g *GPUNode) EventObject() *GPUNode {
	return &GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: NodeKind},
		ObjectMeta: metav1.ObjectMeta{Name: g.Name, UID: g.UID},
	}
}

// GPUNodeList is a list of GPUNodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUNode `json:"items"`
}

// GPUNodeSpec is the desired state of the node.
type GPUNodeSpec struct {
	// ProfileName is the name of the desired PartitionProfile. The controller sets it from the node's
	// label tranche.dev/profile and those of other projects that it follows, and records the
	// label in the annotation tranche.dev/profile-from. Without a profile, the PartitionPlan that
	// selects the node applies, and without one the profile "default", if it exists.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ProfileName string `json:"profileName,omitempty"`
	// Paused is true if the node is to keep its applied profile. A switch that has begun to
	// change GPUs completes. Default: false.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// GPUNodeStatus is the observed state of the node. The controller writes everything
// except Node, which the node's plugin writes.
type GPUNodeStatus struct {
	// ObservedGeneration is the generation that the controller's part of the status belongs to.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Desired is the profile that the node should have. It changes when the rollout admits the
	// node.
	//
	// +optional
	Desired *ProfileSnapshot `json:"desired,omitempty"`
	// RequestedHash is the hash of the profile that the node waits to be admitted to. It is empty if the
	// node waits for none.
	// It is part of the protocol of the controller, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RequestedHash string `json:"requestedHash,omitempty"`
	// AdmittedHash is the hash of the profile that the rollout has admitted the node to. The node may
	// begin to switch to it.
	// It is part of the protocol of the controller, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AdmittedHash string `json:"admittedHash,omitempty"`
	// Applied is the profile that the node has, as of the time it was applied.
	//
	// +optional
	Applied *ProfileSnapshot `json:"applied,omitempty"`
	// State is the step of the switch from one to the other. It is part of the protocol between
	// controller and plugin; programs should read the conditions instead.
	//
	// +optional
	State State `json:"state,omitempty"`
	// StateChangeTime is the time at which State began.
	//
	// +optional
	StateChangeTime *metav1.Time `json:"stateChangeTime,omitempty"`
	// Switch is the switch in progress, or the failed one to retry.
	//
	// +optional
	Switch *Switch `json:"switch,omitempty"`
	// History lists the last switches, the newest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []SwitchRecord `json:"history,omitempty"`
	// Defragmentation is the last defragmentation of the node, which moves pods to make room for
	// another pod.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	Defragmentation *Defragmentation `json:"defragmentation,omitempty"`
	// Conditions are Ready, Switching, RolloutPending, Overridden and Conflicted.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.type) <= 64 && size(c.reason) <= 128 && size(c.message) <= 2048)",message="a condition has a type of at most 64 characters, a reason of 128 and a message of 2048"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Node is what the node's plugin reports.
	//
	// +optional
	Node *NodeReport `json:"node,omitempty"`
}

// Bounds of what the controller writes. Texts are in bytes.
const (
	// MaxConditionMessage is the maximum length of the message of a condition.
	MaxConditionMessage = 2048
	// MaxRecordMessage is the maximum length of the message of a finished switch.
	MaxRecordMessage = 1024
	// MaxPausedLabels is the maximum number of labels that a switch pauses.
	MaxPausedLabels = 16
)

// Source says where the name of a node's profile comes from.
//
// +kubebuilder:validation:Enum=Spec;Label;Plan;Default;None
type Source string

// The sources of a node's profile.
const (
	// FromSpec is the GPUNode's spec, which a person wrote.
	FromSpec Source = "Spec"
	// FromLabel is a label of the node, which the controller copied to the GPUNode's spec. The
	// annotation tranche.dev/profile-from has it.
	FromLabel Source = "Label"
	// FromPlan is a PartitionPlan that selects the node.
	FromPlan Source = "Plan"
	// FromDefault is the profile "default", if it exists, when none of them names one.
	FromDefault Source = "Default"
	// FromNone is no profile.
	FromNone Source = "None"
)

// ProfileSnapshot is a copy of a profile. A switch in progress does not depend on later
// changes of the profile, and can be rolled back after the profile is deleted.
type ProfileSnapshot struct {
	// ProfileName is its name. It is absent for the source None.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ProfileName string `json:"profileName,omitempty"`
	// Source says where the name comes from: Spec (a person wrote it), Label (of the node), Plan, Default
	// (the profile "default"), or None (no profile).
	Source Source `json:"source"`
	// PlanName is the name of the PartitionPlan, for the source Plan.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PlanName string `json:"planName,omitempty"`
	// Hash is a hash of name and rules.
	//
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
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
}
