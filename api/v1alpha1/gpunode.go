package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// Profile is the name of the desired PartitionProfile. The node's label
	// tranche.dev/profile has precedence. Without either, the profile "default"
	// applies, if it exists.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Profile string `json:"profile,omitempty"`
	// Enabled: if false, the node keeps its applied profile, whatever label and profile
	// say. Default: true.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// GPUNodeStatus is the observed state of the node. The controller writes everything
// except Node, which the node's plugin writes.
type GPUNodeStatus struct {
	// Desired is the profile that the node should have.
	//
	// +optional
	Desired *ProfileSnapshot `json:"desired,omitempty"`
	// Applied is the profile that the node has, as it was when it was applied.
	//
	// +optional
	Applied *ProfileSnapshot `json:"applied,omitempty"`
	// State is the step of the switch from one to the other.
	//
	// +optional
	State State `json:"state,omitempty"`
	// Since is when State began.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Switch is the switch in progress, or the failed one that is to be retried.
	//
	// +optional
	Switch *Switch `json:"switch,omitempty"`
	// History lists the last switches, the newest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []SwitchRecord `json:"history,omitempty"`
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
// +kubebuilder:validation:Enum=Label;Spec;Default
type Source string

// The sources of a node's profile.
const (
	// FromLabel is the node's label tranche.dev/profile.
	FromLabel Source = "Label"
	// FromSpec is the GPUNode's spec.
	FromSpec Source = "Spec"
	// FromDefault: neither names one, so the profile "default" applies, if it exists.
	FromDefault Source = "Default"
)

// ProfileSnapshot is a copy of a profile. A switch in progress does not depend on later
// changes of the profile, and can be rolled back after the profile is deleted.
type ProfileSnapshot struct {
	// Profile is its name, empty for no profile.
	//
	// +optional
	Profile string `json:"profile,omitempty"`
	// Source says where the name comes from.
	Source Source `json:"source"`
	// Hash is a hash of name and rules.
	Hash string `json:"hash"`
	// Rules are those of the profile, which validates them.
	//
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Rules []Rule `json:"rules,omitempty"`
}

// State is a state of a switch.
//
// +kubebuilder:validation:Enum=Idle;Planning;Waiting;Tainted;Draining;Applying;Rebooting;Verifying;RollingBack;Failed
type State string

// The states, in the order of a switch.
const (
	// Idle: there is no switch.
	Idle State = "Idle"
	// Planning: the plugin plans what has to change.
	Planning State = "Planning"
	// Waiting: as many other nodes are being switched as may be at once.
	Waiting State = "Waiting"
	// Tainted: the plugin taints the devices that change, and plans again.
	Tainted State = "Tainted"
	// Draining: pods that hold them are evicted.
	Draining State = "Draining"
	// Applying: the plugin changes them.
	Applying State = "Applying"
	// Rebooting: the plugin reboots the node, because a GPU needs it.
	Rebooting State = "Rebooting"
	// Verifying: the controller compares the node with the API server.
	Verifying State = "Verifying"
	// RollingBack: the plugin restores the previous profile.
	RollingBack State = "RollingBack"
	// Failed: the node has its previous profile, and the switch is retried later.
	Failed State = "Failed"
)

// Switch is a change of a node from one profile to another.
type Switch struct {
	// ID identifies the attempt.
	ID string `json:"id"`
	// From is the previous profile, which a rollback restores.
	From ProfileSnapshot `json:"from"`
	// To is the profile to apply.
	To ProfileSnapshot `json:"to"`
	// Policy is that of To, with defaults filled in.
	Policy SwitchPolicy `json:"policy"`
	// GPUs are the names of the GPUs that change. The plugin taints all of their devices
	// during the switch. From state Tainted on, the list only grows.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	GPUs []string `json:"gpus,omitempty"`
	// Shrinking are the names of other GPUs. They do not change, but To does not offer
	// all of their devices. The plugin taints those devices, so that no displaced pod
	// is scheduled to them. From state Tainted on, the list only grows, or a GPU moves
	// from it to GPUs.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Shrinking []string `json:"shrinking,omitempty"`
	// Withhold: the plugin does not publish devices of GPUs that no claim holds. A claim
	// that blocks the switch tolerates the taint, so the pod that replaces the evicted
	// one would be allocated a device of these GPUs again.
	//
	// +optional
	Withhold bool `json:"withhold,omitempty"`
	// Order counts the changes of GPUs, Shrinking and Withhold. The plugin answers each order
	// in state Tainted with a new plan, after the API server has accepted the taints.
	//
	// +optional
	Order int32 `json:"order,omitempty"`
	// RebootRequired: the remaining changes need a reboot, which the policy allows. All
	// GPUs are drained then, whatever the plan keeps.
	//
	// +optional
	RebootRequired bool `json:"rebootRequired,omitempty"`
	// Rebooted: the plugin was asked to reboot the node. A switch that fails afterwards
	// is not retried until the profile or its policy changes.
	//
	// +optional
	Rebooted bool `json:"rebooted,omitempty"`
	// Blockers are pods that hold a GPU and could not be evicted. The switch is not
	// retried while one of them cannot be evicted.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Blockers []Blocker `json:"blockers,omitempty"`
	// InputHash is the node report's InputHash when the plugin refused the profile. The
	// switch is retried when that changes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InputHash string `json:"inputHash,omitempty"`
	// Attempt counts the attempts for the same profile, beginning with 1.
	Attempt int32 `json:"attempt"`
	// Started is when the attempt began, or when it tainted GPUs: waiting for other nodes
	// does not count.
	Started metav1.MicroTime `json:"started"`
	// Since is when the state began, Deadline when it ends at the latest.
	Since metav1.MicroTime `json:"since"`
	// +optional
	Deadline *metav1.MicroTime `json:"deadline,omitempty"`
	// Paused has the original values of the node's labels that were changed to pause
	// clients of the GPUs.
	//
	// +optional
	Paused map[string]string `json:"paused,omitempty"`
	// NodeTaint: the whole node is tainted, whatever the policy says. Several pods can use
	// a claim on a GPU that changes, so the next one would get the GPU in spite of the
	// device taint.
	//
	// +optional
	NodeTaint bool `json:"nodeTaint,omitempty"`
	// Evicted counts evicted pods.
	//
	// +optional
	Evicted int32 `json:"evicted,omitempty"`
	// Reason and Message say why the switch is being rolled back or has failed.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// Retry is when the next attempt begins, after a failure.
	//
	// +optional
	Retry *metav1.MicroTime `json:"retry,omitempty"`
}

// Blocker is a pod that holds a GPU of a switch and cannot be evicted. Without a
// namespace, it is a device that the node still holds although no pod needs it.
type Blocker struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Message says why, for example the disruption budget that refused the eviction.
	//
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// How a switch can end.
const (
	// ResultSucceeded: the profile is applied.
	ResultSucceeded = "Succeeded"
	// ResultRolledBack: the previous profile was restored.
	ResultRolledBack = "RolledBack"
	// ResultFailed: the GPUs were not changed, or the previous profile could not be
	// restored. Reason and Message say which.
	ResultFailed = "Failed"
)

// SwitchRecord is a finished switch.
type SwitchRecord struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Result is Succeeded, RolledBack or Failed.
	Result string `json:"result"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string           `json:"message,omitempty"`
	Started metav1.MicroTime `json:"started"`
	// Duration is the time from the first taint, or from the plan if nothing was tainted,
	// to the end.
	Duration metav1.Duration `json:"duration"`
	// Evicted counts evicted pods.
	//
	// +optional
	Evicted int32 `json:"evicted,omitempty"`
}

// NodeReport is what the node's plugin observes.
type NodeReport struct {
	// BootID is the kernel's boot ID, to notice a reboot.
	//
	// +optional
	BootID string `json:"bootID,omitempty"`
	// GPUs are the node's GPUs in PCI order.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	GPUs []GPUReport `json:"gpus,omitempty"`
	// Count is the number of GPUs. It and the next two numbers are present even if 0,
	// because tables show them.
	//
	// +optional
	Count int32 `json:"count"`
	// Free is the number of healthy GPUs of which no claim holds anything.
	//
	// +optional
	Free int32 `json:"free"`
	// Held is the number of claims that hold a device of the GPUs.
	//
	// +optional
	Held int32 `json:"held"`
	// Owners describe other systems that serve GPUs of the node.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Owners []string `json:"owners,omitempty"`
	// Applied is the hash of the applied profile.
	//
	// +optional
	Applied string `json:"applied,omitempty"`
	// Taints says which order of which Switch the device taints in the node's
	// ResourceSlices belong to. It is reported after the API server has accepted the
	// slices. Absent: no device is tainted for a switch.
	//
	// +optional
	Taints *PublishedTaints `json:"taints,omitempty"`
	// InputHash is a hash of everything that a plan depends on, except claims: the GPUs,
	// their drivers and modes, and the plugin's settings.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InputHash string `json:"inputHash,omitempty"`
	// Task is the plugin's last answer to the Switch.
	//
	// +optional
	Task *Task `json:"task,omitempty"`
}

// PublishedTaints identifies the order that the published device taints carry out.
type PublishedTaints struct {
	// Switch is the ID of the Switch.
	//
	// +kubebuilder:validation:MaxLength=64
	Switch string `json:"switch"`
	// Order is the Order of that Switch.
	Order int32 `json:"order"`
	// Withheld: the API server drops device taints, so the plugin publishes only those of
	// these devices that claims hold. Another pod with the same claim can still get one,
	// which only a node taint prevents.
	//
	// +optional
	Withheld bool `json:"withheld,omitempty"`
}

// MaxReportText is the maximum length of each text of a report: an owner, a problem, what
// is pending.
const MaxReportText = 4096

// GPUReport is one GPU.
type GPUReport struct {
	// Name is the name of the GPU, made of its PCI address as in device names.
	//
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +kubebuilder:validation:MaxLength=64
	Vendor string `json:"vendor"`
	// Product is the product name.
	//
	// +kubebuilder:validation:MaxLength=256
	Product string `json:"product"`
	// Index is the GPU's index in the vendor's enumeration.
	Index int32 `json:"index"`
	// Mode is the current mode of the hardware: "MIG on", "MIG off", "CPX NPS1"; empty for
	// a GPU without modes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Mode string `json:"mode,omitempty"`
	// Partitions are the names of the partitions that exist now.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Partitions []string `json:"partitions,omitempty"`
	// Held are the names of the devices that claims hold.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Held []string `json:"held,omitempty"`
	// Slice is a hash of the devices that the plugin publishes of the GPU, to compare with
	// the API server's ResourceSlices.
	//
	// +optional
	Slice string `json:"slice,omitempty"`
	// Problem says why the GPU cannot be used, or not fully.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Problem string `json:"problem,omitempty"`
	// Pending says what part of the applied profile waits until claims are released.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Pending string `json:"pending,omitempty"`
}

// TaskPhase is the progress of a task.
//
// +kubebuilder:validation:Enum=Planned;Refused;Done;Failed;RebootRequired
type TaskPhase string

// The phases of a task.
const (
	// TaskPlanned: Changes says what has to change.
	TaskPlanned TaskPhase = "Planned"
	// TaskRefused: the profile does not fit the node. Message says why. Nothing was
	// changed.
	TaskRefused TaskPhase = "Refused"
	// TaskDone: the profile is applied, the hardware was read back, and the slices are
	// published.
	TaskDone TaskPhase = "Done"
	// TaskFailed: the profile could not be applied. Message says why.
	TaskFailed TaskPhase = "Failed"
	// TaskRebootRequired: the profile can be applied after a reboot. Pending modes were
	// reset unless the policy allows the reboot.
	TaskRebootRequired TaskPhase = "RebootRequired"
)

// Task is the plugin's answer to a Switch.
type Task struct {
	// Switch is the ID of the answered Switch.
	//
	// +kubebuilder:validation:MaxLength=64
	Switch string `json:"switch"`
	// State is the answered state of the Switch: Planning, Tainted, Applying, Rebooting or
	// RollingBack.
	State State `json:"state"`
	// Order is the answered Order of the Switch, for Tainted.
	//
	// +optional
	Order int32 `json:"order,omitempty"`
	// Phase is the progress of the task.
	Phase TaskPhase `json:"phase"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message says why. The plugin truncates longer ones.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
	// Changes are the GPUs whose hardware has to change, for Planned. Changes that disturb
	// no pod are not listed.
	//
	// +optional
	// +listType=map
	// +listMapKey=gpu
	// +kubebuilder:validation:MaxItems=64
	Changes []GPUChange `json:"changes,omitempty"`
	// Shrinking are the names of other GPUs whose hardware does not change, and of which
	// the profile no longer offers some devices, for Planned.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Shrinking []string `json:"shrinking,omitempty"`
}

// GPUChange is what has to change on a GPU.
type GPUChange struct {
	// GPU is the GPU's name.
	//
	// +kubebuilder:validation:MaxLength=253
	GPU string `json:"gpu"`
	// What describes the change: "MIG mode off", "partitions 1g.10gb x 7", "memory mode
	// NPS4".
	//
	// +kubebuilder:validation:MaxLength=4096
	What string `json:"what"`
	// Keeps are the names of the devices whose pods are not evicted.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=253
	Keeps []string `json:"keeps,omitempty"`
}
