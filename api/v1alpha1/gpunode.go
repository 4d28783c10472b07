package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GPUNode is a node with GPUs: which profile it should follow, and how far that is.
// It is named like its node. The node's plugin creates it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=gpun
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.status.wanted.profile`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.applied.profile`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.node.count`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.node.free`
// +kubebuilder:printcolumn:name="Claims",type=integer,JSONPath=`.status.node.held`
// +kubebuilder:printcolumn:name="Named By",type=string,JSONPath=`.status.wanted.source`,priority=1
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.status.switch.deadline`,priority=1
// +kubebuilder:printcolumn:name="Try",type=integer,JSONPath=`.status.switch.attempt`,priority=1
// +kubebuilder:printcolumn:name="Next Try",type=string,JSONPath=`.status.switch.retry`,priority=1
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

// GPUNodeSpec is what a person wants of the node.
type GPUNodeSpec struct {
	// Profile names the PartitionProfile. The node's label tranche.dev/profile beats
	// it; without either the profile "default" holds, if there is one.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Profile string `json:"profile,omitempty"`
	// Enabled false keeps what is applied, whatever label and profile say. Default:
	// true.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// GPUNodeStatus is how far it is. The controller writes all of it but Node, which
// is the plugin's.
type GPUNodeStatus struct {
	// Wanted is the profile that the node should follow.
	//
	// +optional
	Wanted *Wish `json:"wanted,omitempty"`
	// Applied is the profile that the node follows, as it was when it was applied.
	//
	// +optional
	Applied *Wish `json:"applied,omitempty"`
	// State is where the node is on the way from one to the other.
	//
	// +optional
	State State `json:"state,omitempty"`
	// Since is when State was entered.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Switch is the change that is under way, or that has failed and is tried again.
	//
	// +optional
	Switch *Switch `json:"switch,omitempty"`
	// History has the last changes, the newest first.
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

// Source is who names a node's profile.
//
// +kubebuilder:validation:Enum=Label;Spec;Default
type Source string

// Who can name a node's profile.
const (
	// FromLabel is the node's label tranche.dev/profile.
	FromLabel Source = "Label"
	// FromSpec is the GPUNode's spec.
	FromSpec Source = "Spec"
	// FromDefault is nobody: the profile "default", or none.
	FromDefault Source = "Default"
)

// Wish is a profile as it was at one moment. What it says is copied: a profile that
// is changed or deleted changes nothing that is under way, and can be gone back to.
type Wish struct {
	// Profile is its name, empty where nothing is wanted.
	//
	// +optional
	Profile string `json:"profile,omitempty"`
	// Source is who named it.
	Source Source `json:"source"`
	// Hash tells two wishes apart.
	Hash string `json:"hash"`
	// Rules are the profile's. They were validated there.
	//
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Rules []Rule `json:"rules,omitempty"`
}

// State is where a node is on the way to its profile.
//
// +kubebuilder:validation:Enum=Idle;Planning;Waiting;Tainted;Draining;Applying;Rebooting;Verifying;RollingBack;Failed
type State string

// The states, in the order of a switch.
const (
	// Idle: nothing is to be done.
	Idle State = "Idle"
	// Planning: the plugin works out what has to change.
	Planning State = "Planning"
	// Waiting: other nodes are being switched, and no more may be at once.
	Waiting State = "Waiting"
	// Tainted: the plugin taints the devices that change, and plans again.
	Tainted State = "Tainted"
	// Draining: pods are asked to leave them.
	Draining State = "Draining"
	// Applying: the plugin changes them.
	Applying State = "Applying"
	// Rebooting: the plugin reboots the node, since a GPU needs it.
	Rebooting State = "Rebooting"
	// Verifying: it is looked whether node and API server agree.
	Verifying State = "Verifying"
	// RollingBack: the plugin puts back what was.
	RollingBack State = "RollingBack"
	// Failed: the node is as it was before, and the switch is tried again later.
	Failed State = "Failed"
)

// Switch is a change of a node from one profile to another.
type Switch struct {
	// ID tells one try from the next.
	ID string `json:"id"`
	// From is what was applied before, and is gone back to.
	From Wish `json:"from"`
	// To is what is to be applied.
	To Wish `json:"to"`
	// Policy is To's, with the defaults filled in.
	Policy SwitchPolicy `json:"policy"`
	// GPUs are the names of the GPUs that change. The node's plugin taints all of
	// their devices while the switch is under way. From state Tainted on the list only
	// grows.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	GPUs []string `json:"gpus,omitempty"`
	// Shrinking are the names of other GPUs. They do not change, but To does not offer
	// all of their devices. The plugin taints those devices, so that no displaced pod
	// is scheduled to them. From state Tainted on the list only grows, or a GPU of it
	// becomes one of GPUs.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Shrinking []string `json:"shrinking,omitempty"`
	// Withhold: the plugin does not publish the devices of GPUs that no claim holds. A
	// claim that is in the way tolerates the taint, so the pod that replaces the evicted
	// one would get a device of these GPUs again.
	//
	// +optional
	Withhold bool `json:"withhold,omitempty"`
	// Order counts the changes of GPUs, Shrinking and Withhold. The plugin answers each order
	// in state Tainted with a new plan, after the API server has accepted the taints.
	//
	// +optional
	Order int32 `json:"order,omitempty"`
	// RebootRequired: the plugin has changed what it could, and the rest changes only
	// after a reboot, which the policy allows. All GPUs are drained then, whatever the
	// plan keeps.
	//
	// +optional
	RebootRequired bool `json:"rebootRequired,omitempty"`
	// Rebooted: the plugin was asked to reboot the node. A switch that fails afterwards
	// is not tried again until the profile or its policy changes.
	//
	// +optional
	Rebooted bool `json:"rebooted,omitempty"`
	// Blockers are the pods that hold a GPU and could not be evicted. The switch is not
	// tried again while one of them cannot be evicted.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Blockers []Blocker `json:"blockers,omitempty"`
	// Basis is the node report's Basis when the plugin refused the profile. The switch
	// is tried again when it changes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Basis string `json:"basis,omitempty"`
	// Attempt counts the tries for the same wish, the first is 1.
	Attempt int32 `json:"attempt"`
	// Started is when the try began, and for one that taints GPUs when it did: the
	// wait for other nodes does not count.
	Started metav1.MicroTime `json:"started"`
	// Since is when the state was entered, Deadline when it ends at the latest.
	Since metav1.MicroTime `json:"since"`
	// +optional
	Deadline *metav1.MicroTime `json:"deadline,omitempty"`
	// Paused has the node's labels that were changed to pause clients of the GPUs,
	// as they were.
	//
	// +optional
	Paused map[string]string `json:"paused,omitempty"`
	// NodeTaint: the whole node is kept from new pods, whatever the policy says. A claim
	// on a GPU that changes is not of one pod, and the next pod that has it would come
	// to the GPU in spite of the GPU's taint.
	//
	// +optional
	NodeTaint bool `json:"nodeTaint,omitempty"`
	// Evicted counts the pods that were asked to leave.
	//
	// +optional
	Evicted int32 `json:"evicted,omitempty"`
	// Reason and Message say why the switch is rolled back or has failed.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// Retry is when the next try begins, after a failure.
	//
	// +optional
	Retry *metav1.MicroTime `json:"retry,omitempty"`
}

// Blocker is a pod that holds a GPU of a switch and cannot be evicted. One without a
// namespace is a device that the node still holds although no pod needs it.
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
	// ResultSucceeded: the node follows the profile.
	ResultSucceeded = "Succeeded"
	// ResultRolledBack: it was put back to what was before.
	ResultRolledBack = "RolledBack"
	// ResultFailed: the GPUs were not changed, or could not be put back; Reason and
	// Message tell.
	ResultFailed = "Failed"
)

// SwitchRecord is a switch that is over.
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
	// Duration is from the first taint, or the plan where nothing was tainted, to
	// the end.
	Duration metav1.Duration `json:"duration"`
	// Evicted counts the pods that were asked to leave.
	//
	// +optional
	Evicted int32 `json:"evicted,omitempty"`
}

// NodeReport is what the node's plugin knows.
type NodeReport struct {
	// BootID is the machine's, to notice a reboot.
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
	// Count is the number of GPUs. It and the numbers that follow are there also if
	// they are 0: tables show them.
	//
	// +optional
	Count int32 `json:"count"`
	// Free is the number of GPUs that work and of which no claim holds anything.
	//
	// +optional
	Free int32 `json:"free"`
	// Held is the number of claims that hold something of the GPUs.
	//
	// +optional
	Held int32 `json:"held"`
	// Owners are other systems that serve GPUs of the node, in words.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Owners []string `json:"owners,omitempty"`
	// Applied is the hash of the wish that the node follows.
	//
	// +optional
	Applied string `json:"applied,omitempty"`
	// Taints says which order of which Switch the device taints in the node's
	// ResourceSlices belong to. It is reported after the API server has accepted the
	// slices. Absent: no device is tainted for a switch.
	//
	// +optional
	Taints *PublishedTaints `json:"taints,omitempty"`
	// Basis is a digest of everything but claims that a plan depends on: the GPUs,
	// their drivers and modes, and the settings of the plugin.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Basis string `json:"basis,omitempty"`
	// Task is how far the plugin is with what the controller's Switch says.
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
	// Withheld: the API server drops device taints, so the plugin does not publish
	// these devices unless a claim holds them. A pod of a claim that holds one can still
	// be replaced by another pod of the same claim, which only a node taint prevents.
	//
	// +optional
	Withheld bool `json:"withheld,omitempty"`
}

// MaxReportText is how many characters each text of a report has at most: an owner, a
// problem, what is pending.
const MaxReportText = 4096

// GPUReport is one GPU.
type GPUReport struct {
	// Name is the GPU's: its PCI address as it is spelled in the names of devices.
	//
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +kubebuilder:validation:MaxLength=64
	Vendor string `json:"vendor"`
	// Product is the marketing name.
	//
	// +kubebuilder:validation:MaxLength=256
	Product string `json:"product"`
	// Index is the GPU's place in the vendor's own enumeration.
	Index int32 `json:"index"`
	// Mode is that of the hardware now: "MIG on", "MIG off", "CPX NPS1"; empty for a
	// GPU without modes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Mode string `json:"mode,omitempty"`
	// Partitions are the names of those that exist now.
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
	// Slice is a digest of the devices that the plugin publishes of the GPU, to
	// compare with what the API server has.
	//
	// +optional
	Slice string `json:"slice,omitempty"`
	// Problem says what is wrong with the GPU.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Problem string `json:"problem,omitempty"`
	// Pending says what of the applied profile waits until claims are released.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Pending string `json:"pending,omitempty"`
}

// TaskPhase is how far the plugin is.
//
// +kubebuilder:validation:Enum=Planned;Refused;Done;Failed;RebootRequired
type TaskPhase string

// How far the plugin can be.
const (
	// TaskPlanned: Changes says what has to change.
	TaskPlanned TaskPhase = "Planned"
	// TaskRefused: the profile does not fit the node, Message says why. Nothing was
	// touched.
	TaskRefused TaskPhase = "Refused"
	// TaskDone: the hardware follows the wish, as it was read back, and the slices
	// are published.
	TaskDone TaskPhase = "Done"
	// TaskFailed: it does not, Message says why.
	TaskFailed TaskPhase = "Failed"
	// TaskRebootRequired: it does after a reboot. The modes that are pending were
	// put back unless the policy allows the reboot.
	TaskRebootRequired TaskPhase = "RebootRequired"
)

// Task is the plugin's answer to a Switch.
type Task struct {
	// Switch is the ID of the Switch that is answered.
	//
	// +kubebuilder:validation:MaxLength=64
	Switch string `json:"switch"`
	// State is the Switch's state that is answered: Planning, Tainted, Applying,
	// Rebooting, RollingBack.
	State State `json:"state"`
	// Order is the Switch's Order that is answered, for Tainted.
	//
	// +optional
	Order int32 `json:"order,omitempty"`
	// Phase is how far it is.
	Phase TaskPhase `json:"phase"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message says why. The plugin cuts what is longer.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
	// Changes are the GPUs whose hardware has to change, for Planned. What changes
	// without disturbing anybody is not among them.
	//
	// +optional
	// +listType=map
	// +listMapKey=gpu
	// +kubebuilder:validation:MaxItems=64
	Changes []GPUChange `json:"changes,omitempty"`
	// Shrinking are the names of other GPUs whose hardware stays as it is, and of which
	// the profile does not offer devices that are offered now, for Planned.
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
	// What says it for people: "MIG mode off", "partitions 1g.10gb x 7", "memory
	// mode NPS4".
	//
	// +kubebuilder:validation:MaxLength=4096
	What string `json:"what"`
	// Keeps are the names of the devices whose holders need not leave.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=253
	Keeps []string `json:"keeps,omitempty"`
}
