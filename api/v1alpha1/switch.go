package v1alpha1

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
	// Repair: both are the same version of a profile, which the GPUs had lost.
	//
	// +optional
	Repair bool `json:"repair,omitempty"`
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

// AwaitsPlugin tells whether a switch waits for an answer of the node's plugin. last is
// the plugin's last answer, nil if there is none.
func (s *GPUNodeStatus) AwaitsPlugin(last *Task) bool {
	if s.Switch == nil {
		return false
	}
	switch s.State {
	case Planning, Applying, Rebooting, RollingBack:
		return last == nil || last.Switch != s.Switch.ID || last.State != s.State
	case Tainted:
		// The first order is 1. A controller of version 0.1 orders nothing and awaits nothing.
		return s.Switch.Order > 0 &&
			(last == nil || last.Switch != s.Switch.ID || last.State != s.State || last.Order != s.Switch.Order)
	}
	return false
}

// OrdersTaints tells whether the node's plugin must taint devices for the switch: all
// devices of Switch.GPUs, and of Switch.Shrinking those that Switch.To does not offer.
// A switch that replaces another one in the middle of a drain orders the taints of the
// old one until its own plan is known.
func (s *GPUNodeStatus) OrdersTaints() bool {
	if s.Switch == nil || len(s.Switch.GPUs)+len(s.Switch.Shrinking) == 0 {
		return false
	}
	switch s.State {
	case Planning, Waiting, Tainted, Draining, Applying, Rebooting, Verifying, RollingBack:
		return true
	}
	return false
}

// Target is the profile that the node has after the plugin has completed a state.
func (s *Switch) Target(state State) *ProfileSnapshot {
	if state == RollingBack {
		return &s.From
	}
	return &s.To
}
