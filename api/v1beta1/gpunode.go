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
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.status.desired.profile`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.applied.profile`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.node.count`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.node.free`
// +kubebuilder:printcolumn:name="Claims",type=integer,JSONPath=`.status.node.held`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.desired.source`,priority=1
// +kubebuilder:printcolumn:name="Plan",type=string,JSONPath=`.status.desired.plan`,priority=1
// +kubebuilder:printcolumn:name="Set By",type=string,JSONPath=`.metadata.annotations.tranche\.dev/profile-from`,priority=1
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.status.switch.deadline`,priority=1
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.switch.attempt`,priority=1
// +kubebuilder:printcolumn:name="Next Attempt",type=string,JSONPath=`.status.switch.retry`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GPUNodeSpec `json:"spec,omitempty"`
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
	// Profile is the name of the desired PartitionProfile. The controller sets it from the node's
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
	// Desired is the profile that the node should have. It changes when the rollout admits the
	// node.
	//
	// +optional
	Desired *ProfileSnapshot `json:"desired,omitempty"`
	// Wanted is the hash of the profile that the node waits to be admitted to. It is empty if the
	// node waits for none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RequestedHash string `json:"requestedHash,omitempty"`
	// Admitted is the hash of the profile that the rollout has admitted the node to. The node may
	// begin to switch to it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AdmittedHash string `json:"admittedHash,omitempty"`
	// Applied is the profile that the node has, as of the time it was applied.
	//
	// +optional
	Applied *ProfileSnapshot `json:"applied,omitempty"`
	// State is the step of the switch from one to the other.
	//
	// +optional
	State State `json:"state,omitempty"`
	// Since is the time at which State began.
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
	// Defragmentation is the last one on the node, which moves pods to make room for another.
	//
	// +optional
	Defragmentation *Defragmentation `json:"defragmentation,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Node is what the node's plugin reports.
	//
	// +optional
	Node *NodeReport `json:"node,omitempty"`
}

// Source says where the name of a node's profile comes from.
//
// +kubebuilder:validation:Enum=Spec;Plan;Default
type Source string

// The sources of a node's profile.
const (
	// FromSpec is the GPUNode's spec.
	FromSpec Source = "Spec"
	// FromPlan is a PartitionPlan that selects the node.
	FromPlan Source = "Plan"
	// FromDefault is the profile "default", if it exists, when neither names one.
	FromDefault Source = "Default"
)

// ProfileSnapshot is a copy of a profile. A switch in progress does not depend on later
// changes of the profile, and can be rolled back after the profile is deleted.
type ProfileSnapshot struct {
	// Profile is its name, or empty for no profile.
	//
	// +optional
	ProfileName string `json:"profileName,omitempty"`
	// Source says where the name comes from.
	Source Source `json:"source"`
	// Plan is the name of the PartitionPlan, for the source Plan.
	//
	// +optional
	PlanName string `json:"planName,omitempty"`
	// Hash is a hash of name and rules.
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
