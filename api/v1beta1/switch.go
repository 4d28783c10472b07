package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is a state of a switch.
//
// +kubebuilder:validation:Enum=Idle;Planning;Waiting;Tainted;Draining;Applying;Rebooting;Verifying;RollingBack;Failed
type State string

// The states, in the order of a switch.
const (
	// Idle: there is no switch.
	Idle State = "Idle"
	// Planning: the plugin computes what must change.
	Planning State = "Planning"
	// Waiting: the switch waits until the rollout admits the node.
	Waiting State = "Waiting"
	// Tainted: the plugin taints the devices that change, and computes the changes again.
	Tainted State = "Tainted"
	// Draining: pods that hold these devices are evicted.
	Draining State = "Draining"
	// Applying: the plugin changes the GPUs.
	Applying State = "Applying"
	// Rebooting: the plugin reboots the node, because a GPU needs it.
	Rebooting State = "Rebooting"
	// Verifying: the controller compares the node with the API server.
	Verifying State = "Verifying"
	// RollingBack: the plugin restores the previous profile.
	RollingBack State = "RollingBack"
	// Failed: the switch has failed, and is retried later. The newest record of the history says what
	// became of the GPUs.
	Failed State = "Failed"
)

// Switch is a change of a node from one profile to another.
type Switch struct {
	// ID identifies the attempt.
	//
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// From is the previous profile, which a rollback restores.
	From ProfileSnapshot `json:"from"`
	// To is the profile to apply.
	To ProfileSnapshot `json:"to"`
	// Policy is the policy of To, with defaults.
	Policy SwitchPolicy `json:"policy"`
	// GPUs are the names of the GPUs that change. The plugin taints all of their devices
	// during the switch. From state Tainted on, the list only grows.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	GPUs []string `json:"gpus,omitempty"`
	// ShrinkingGPUs are the names of other GPUs. They do not change, but To does not offer
	// all of their devices. The plugin taints those devices, so that no displaced pod
	// is scheduled to them. From state Tainted on, the list only grows, or a GPU moves
	// from it to GPUs. It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ShrinkingGPUs []string `json:"shrinkingGPUs,omitempty"`
	// Withhold is true if the plugin does not publish those devices of GPUs that no claim
	// holds. It is set if a claim that blocks the switch tolerates the taint, so that the
	// replacement of its evicted pod could get a device of these GPUs again.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	Withhold bool `json:"withhold,omitempty"`
	// TaintGeneration is the revision of GPUs, ShrinkingGPUs and Withhold, beginning with 1. In state
	// Tainted, the plugin reports the changes again for each revision, after the API server has accepted
	// the taints.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	TaintGeneration int32 `json:"taintGeneration,omitempty"`
	// RebootRequired is true if the remaining changes need a reboot, which the policy allows.
	// All GPUs are then drained, including those that do not change.
	//
	// +optional
	RebootRequired bool `json:"rebootRequired,omitempty"`
	// RebootRequested is true if the plugin was asked to reboot the node. A switch that fails
	// afterwards is not retried until the profile or its policy changes.
	//
	// +optional
	RebootRequested bool `json:"rebootRequested,omitempty"`
	// Blockers are pods that hold a GPU and could not be evicted, and devices that are still held. The
	// switch is not retried while one of them blocks it.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Blockers []Blocker `json:"blockers,omitempty"`
	// InputHash is the node report's InputHash at the time the plugin refused the profile. The
	// switch is retried when it changes.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InputHash string `json:"inputHash,omitempty"`
	// Attempt counts the attempts for the same profile, beginning with 1.
	Attempt int32 `json:"attempt"`
	// StartTime is the time at which the attempt began, or at which it tainted GPUs, so that
	// waiting for other nodes does not count.
	StartTime metav1.MicroTime `json:"startTime"`
	// StateChangeTime is the time at which the state began.
	StateChangeTime metav1.MicroTime `json:"stateChangeTime"`
	// DeadlineTime is the time by which the state must end.
	//
	// +optional
	DeadlineTime *metav1.MicroTime `json:"deadlineTime,omitempty"`
	// PausedLabels are the original values of the node labels that were changed to pause
	// monitoring. They are part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="must be names and values of labels"
	PausedLabels map[string]string `json:"pausedLabels,omitempty"`
	// NodeTaintRequired is true if the node is tainted regardless of the policy, because several pods
	// can use a claim on a GPU that changes: the next one would get the GPU despite the
	// device taint.
	// It is part of the protocol between controller and plugin, and can change in any version.
	//
	// +optional
	NodeTaintRequired bool `json:"nodeTaintRequired,omitempty"`
	// EvictedPodCount is the number of evicted pods.
	//
	// +optional
	EvictedPodCount int32 `json:"evictedPodCount,omitempty"`
	// Reason is a word for why the switch is being rolled back or has failed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains Reason. The controller truncates it to the maximum length.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// RetryTime is the time of the next attempt, after a failure.
	//
	// +optional
	RetryTime *metav1.MicroTime `json:"retryTime,omitempty"`
}

// BlockerKind is what blocks a switch.
//
// +kubebuilder:validation:Enum=Pod;Device
type BlockerKind string

// What can block a switch.
const (
	// BlockerPod is a pod that holds a GPU and cannot be evicted.
	BlockerPod BlockerKind = "Pod"
	// BlockerDevice is a device that is held, although no pod needs it.
	BlockerDevice BlockerKind = "Device"
)

// Blocker is a pod or a device that blocks a switch.
type Blocker struct {
	// Kind is Pod (it holds a GPU and cannot be evicted) or Device (it is held, although no pod needs
	// it).
	Kind BlockerKind `json:"kind"`
	// Namespace is the namespace of the pod.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the pod, or of the device.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// UID is the UID of the pod.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:-]*$`
	UID types.UID `json:"uid,omitempty"`
	// Message says why, for example the disruption budget that refused the eviction.
	//
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// SwitchResult is how a switch ended.
//
// +kubebuilder:validation:Enum=Succeeded;RolledBack;NotApplied;RollbackFailed
type SwitchResult string

// How a switch can end.
const (
	// ResultSucceeded: the profile is applied.
	ResultSucceeded SwitchResult = "Succeeded"
	// ResultRolledBack: the previous profile was restored.
	ResultRolledBack SwitchResult = "RolledBack"
	// ResultNotApplied: no GPU was changed. Pods may have been evicted.
	ResultNotApplied SwitchResult = "NotApplied"
	// ResultRollbackFailed: the previous profile could not be restored.
	ResultRollbackFailed SwitchResult = "RollbackFailed"
)

// SwitchRecord is a finished switch.
type SwitchRecord struct {
	// FromProfileName is the name of the previous profile, or empty for no profile.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	FromProfileName string `json:"fromProfileName,omitempty"`
	// ToProfileName is the name of the profile to apply, or empty for no profile.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ToProfileName string `json:"toProfileName,omitempty"`
	// Repair is true if both are the same version of a profile, which the GPUs had lost.
	//
	// +optional
	Repair bool `json:"repair,omitempty"`
	// Result is Succeeded, RolledBack (the previous profile was restored), NotApplied (no GPU
	// was changed) or RollbackFailed (the previous profile could not be restored).
	Result SwitchResult `json:"result"`
	// Reason is a word for why it did not succeed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message explains Reason. The controller truncates it to the maximum length.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// StartTime is the StartTime of the Switch.
	StartTime metav1.MicroTime `json:"startTime"`
	// Duration is the time from the first taint, or from Planning if nothing was tainted, to
	// the end: "1m30s".
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	Duration metav1.Duration `json:"duration"`
	// EvictedPodCount is the number of evicted pods.
	//
	// +optional
	EvictedPodCount int32 `json:"evictedPodCount,omitempty"`
}

// AwaitsPlugin reports whether a switch waits for a report of the node's plugin. last is the
// plugin's last report, or nil.
func (s *GPUNodeStatus) AwaitsPlugin(last *Task) bool {
	if s.Switch == nil {
		return false
	}
	switch s.State {
	case Planning, Applying, Rebooting, RollingBack:
		return last == nil || last.SwitchID != s.Switch.ID || last.State != s.State
	case Tainted:
		return last == nil || last.SwitchID != s.Switch.ID || last.State != s.State || last.TaintGeneration != s.Switch.TaintGeneration
	}
	return false
}

// RequestsTaints reports whether the node's plugin must taint devices for the switch: all devices
// of Switch.GPUs, and those of Switch.ShrinkingGPUs that Switch.To does not offer. A switch that
// replaces another one in the middle of a drain keeps its taints until its own changes are
// known.
func (s *GPUNodeStatus) RequestsTaints() bool {
	if s.Switch == nil || len(s.Switch.GPUs)+len(s.Switch.ShrinkingGPUs) == 0 {
		return false
	}
	switch s.State {
	case Planning, Waiting, Tainted, Draining, Applying, Rebooting, Verifying, RollingBack:
		return true
	}
	return false
}

// Target returns the profile that the node has after the plugin has completed a state.
func (s *Switch) Target(state State) *ProfileSnapshot {
	if state == RollingBack {
		return &s.From
	}
	return &s.To
}
