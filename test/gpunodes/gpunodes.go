// Package gpunodes makes GPUNodes for tests: nodes that follow a profile, are
// being switched, or have failed to. Conditions are worded as the controller does.
package gpunodes

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	ours "github.com/tranche-dev/tranche/pkg/profile"
)

// Now is the time at which all of them are looked at.
var Now = time.Date(2026, 11, 20, 13, 57, 0, 0, time.UTC)

// Node is a GPUNode to which things are added.
type Node struct{ v1beta1.GPUNode }

// WithProfile is a node to which the profile of its label is applied; empty: none.
func WithProfile(name, profile string, rules ...v1beta1.Rule) *Node {
	n := &Node{}
	n.Name = name
	snapshot := ours.Snapshot(profile, rules)
	snapshot.Source, snapshot.Hash = v1beta1.FromLabel, "hash-"+profile
	if profile == "" {
		snapshot.Source = v1beta1.FromNone
	}
	applied := snapshot
	if profile != "" {
		n.Spec.ProfileName = profile
		n.Annotations = map[string]string{names.AnnotationProfileFrom: names.LabelProfile + "=" + profile}
	}
	n.Status.Desired, n.Status.Applied, n.Status.State = &snapshot, &applied, v1beta1.Idle
	n.Status.Node = &v1beta1.NodeReport{}
	return n.Says(names.ConditionReady, true, "Applied", "profile "+profile+" is applied")
}

// Says sets a condition.
func (n *Node) Says(kind string, status bool, reason, message string) *Node {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(Now)}
	if status {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&n.Status.Conditions, c)
	return n
}

// The modes of NVIDIA's GPUs.
var (
	MIGOn  = v1beta1.GPUModes{MIGMode: v1beta1.MIGModeEnabled}
	MIGOff = v1beta1.GPUModes{MIGMode: v1beta1.MIGModeDisabled}
)

// XCP are the modes of AMD's GPUs.
func XCP(compute, memory string) v1beta1.GPUModes {
	return v1beta1.GPUModes{ComputePartition: compute, MemoryPartition: memory}
}

// GPUs reports GPUs in the same modes.
func (n *Node) GPUs(modes v1beta1.GPUModes, names ...string) *Node {
	for _, name := range names {
		n.Status.Node.GPUs = append(n.Status.Node.GPUs, v1beta1.GPUReport{Name: name, GPUModes: modes, ProductName: "NVIDIA H100 80GB HBM3"})
	}
	n.Status.Node.GPUCount = int32(len(n.Status.Node.GPUs))
	return n
}

// Switches is on the way to a profile: in a state since two minutes, with eight
// left.
func (n *Node) Switches(state v1beta1.State, to, doing string, gpus ...string) *Node {
	deadline := at(8 * time.Minute)
	n.Status.State = state
	n.Spec.ProfileName = to
	n.Annotations = map[string]string{names.AnnotationProfileFrom: names.LabelProfile + "=" + to}
	n.Status.Desired = &v1beta1.ProfileSnapshot{ProfileName: to, Source: v1beta1.FromLabel, Hash: "hash-" + to}
	n.Status.Switch = &v1beta1.Switch{
		ID: "1", From: *n.Status.Applied, To: *n.Status.Desired, GPUs: gpus, Attempt: 1,
		StartTime: at(-3 * time.Minute), StateChangeTime: at(-2 * time.Minute), DeadlineTime: &deadline,
	}
	n.Says(names.ConditionReady, false, "Switching", "from profile "+n.Status.Applied.ProfileName+" to profile "+to+": "+doing)
	return n.Says(names.ConditionSwitching, true, string(state), doing)
}

// Plan is what the plugin says has to change, the same on all GPUs of the switch.
func (n *Node) Plan(what string) *Node {
	task := &v1beta1.Task{SwitchID: n.Status.Switch.ID, State: v1beta1.Planning, Phase: v1beta1.TaskPlanned}
	for _, gpuID := range n.Status.Switch.GPUs {
		task.Changes = append(task.Changes, v1beta1.GPUChange{GPU: gpuID, Description: what})
	}
	n.Status.Node.Task = task
	return n
}

// Fails has failed three minutes ago, and is tried again in a minute if so.
func (n *Node) Fails(to, reason, message string, again bool) *Node {
	n.Switches(v1beta1.Failed, to, "no switch is in progress")
	sw := n.Status.Switch
	sw.StateChangeTime, sw.DeadlineTime, sw.Reason, sw.Message = at(-3*time.Minute), nil, reason, message
	if again {
		retry := at(time.Minute)
		sw.RetryTime = &retry
	}
	n.Says(names.ConditionReady, false, reason, message)
	n.Says(names.ConditionSwitching, false, string(v1beta1.Failed), "no switch is in progress")
	result := v1beta1.ResultNotApplied
	if reason == names.ReasonRollbackFailed {
		result = v1beta1.ResultRollbackFailed
	}
	return n.Had(n.Status.Applied.ProfileName, to, result, reason, message, 10*time.Minute, 1)
}

// Had adds a switch to the history, as the newest.
func (n *Node) Had(from, to string, result v1beta1.SwitchResult, reason, message string, took time.Duration, evicted int32) *Node {
	n.Status.History = append([]v1beta1.SwitchRecord{{
		FromProfileName: from, ToProfileName: to, Result: result, Reason: reason, Message: message,
		StartTime: at(-time.Hour), Duration: metav1.Duration{Duration: took}, EvictedPodCount: evicted,
	}}, n.Status.History...)
	return n
}

func at(later time.Duration) metav1.MicroTime { return metav1.NewMicroTime(Now.Add(later)) }
