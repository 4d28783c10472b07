package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Node is what is known of a node.
type Node struct {
	Name   string
	Labels map[string]string
	// Created is when its GPUNode was created.
	Created time.Time
	// Held is the number of claims that hold its GPUs, Free the number of free GPUs.
	Held, Free int32
	// Wanted is the hash of the profile for which the node asks to be admitted, Admitted that of the
	// profile to which it was. Desired is the profile that it is to have, Applied the one that it
	// has, and Reported what its plugin says of it.
	Wanted, Admitted, Desired, Applied, Reported string
	// To is the hash that the switch leads to, if there is one.
	To    string
	State v1beta1.State
	// Moving: GPUs are tainted or may be changing.
	Moving bool
	// Joining: the node never had a profile, and no claim holds its GPUs. First: the profile
	// that it has is its first one.
	Joining, First bool
	// Overridden: the node follows something else.
	Overridden bool
	// Kept: the node keeps its profile, whatever the plan gives it. Reason and Message say why.
	Kept bool
	// Ready: the node is ready, and its plugin has reported.
	Ready bool
	// Failed: the last attempt to reach To failed. Aside: it changed nothing, because of
	// something that is not the profile's fault. Reason and Message say why.
	// Changed: GPUs were changed, and rolled back if possible.
	Failed, Aside   bool
	Changed         bool
	Reason, Message string
	// Damaged: a rollout failed, and the profile from before could not be restored since.
	Damaged bool
	// Started and Ended are those of the switch to Applied, zero if they are not known.
	Started, Ended time.Time
	// Trouble is what went wrong after Started, or nil.
	Trouble *Trouble
	// Wake is when the node changes without an event. Zero means never.
	Wake time.Time
}

// Trouble is something that went wrong on a node after its switch.
type Trouble struct {
	Since           time.Time
	Reason, Message string
}

// UntaintPatience is how long a node counts as moving after its switch while its plugin still
// publishes the taints. A plugin that is gone does not keep other nodes waiting for longer.
const UntaintPatience = 30 * time.Second

// Joins reports whether a node never had a profile, and no claim holds its GPUs.
func Joins(s *v1beta1.GPUNodeStatus) bool {
	return s.Applied == nil && (s.Node == nil || s.Node.ClaimCount == 0)
}

// Observe says what is known of a node. The caller adds Overridden and Kept.
func Observe(gpuNode *v1beta1.GPUNode, labels map[string]string, ready bool, now time.Time) Node {
	s := &gpuNode.Status
	n := Node{
		Name: gpuNode.Name, Labels: labels, Created: gpuNode.CreationTimestamp.Time,
		State: s.State, Wanted: s.RequestedHash, Admitted: s.AdmittedHash, Desired: HashOf(s.Desired), Applied: HashOf(s.Applied),
		Joining: Joins(s), Ready: ready && s.Node != nil,
	}
	if s.Node != nil {
		n.Held, n.Free, n.Reported = s.Node.ClaimCount, s.Node.FreeGPUCount, s.Node.AppliedHash
	}
	n.move(s, now)
	n.judge(s)
	n.watch(s)
	return n
}

// HashOf returns the hash of a profile, empty if there is none.
func HashOf(p *v1beta1.ProfileSnapshot) string {
	if p == nil {
		return ""
	}
	return p.Hash
}

func (n *Node) move(s *v1beta1.GPUNodeStatus, now time.Time) {
	switch s.State {
	case v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack:
		n.Moving = true
	default:
		n.Moving = s.RequestsTaints()
	}
	if until := Untainted(s); !n.Moving && until.After(now) {
		n.Moving, n.Wake = true, until
	}
}

// Untainted returns when taints of an ended switch do not count any more. It is zero if none are
// published.
func Untainted(s *v1beta1.GPUNodeStatus) time.Time {
	if s.RequestsTaints() || s.StateChangeTime == nil || s.Node == nil || s.Node.PublishedTaints == nil {
		return time.Time{}
	}
	// A next attempt, which has a Since of its own, must not prolong it: a node that moves needs no
	// place, so it would get one beyond the limit.
	ended := s.StateChangeTime.Time
	if len(s.History) > 0 {
		ended = s.History[0].StartTime.Add(s.History[0].Duration.Duration)
	}
	return ended.Add(UntaintPatience)
}

// judge finds out how the last attempt ended.
func (n *Node) judge(s *v1beta1.GPUNodeStatus) {
	if s.Node != nil && len(s.Node.OtherSystems) > 0 {
		n.Aside, n.Reason, n.Message = true, names.ReasonOtherSystem, s.Node.OtherSystemsText()
	}
	n.Damaged = damaged(s.History)
	sw := s.Switch
	if sw == nil {
		return
	}
	n.To = sw.To.Hash
	var last v1beta1.SwitchRecord
	if len(s.History) > 0 {
		last = s.History[0]
	}
	switch {
	case s.State == v1beta1.Failed:
		n.Reason, n.Message = sw.Reason, sw.Message
	case sw.Attempt > 1 && last.ToProfileName == sw.To.ProfileName && last.Result != v1beta1.ResultSucceeded:
		n.Reason, n.Message = last.Reason, last.Message
	default:
		return
	}
	n.Changed = last.Result != v1beta1.ResultNotApplied
	// Nor is a rollout to blame for GPUs that lost the profile that they had.
	lost := sw.From.Hash == sw.To.Hash && !n.Damaged
	n.Aside = lost || last.Result == v1beta1.ResultNotApplied && slices.Contains(notTheProfile, n.Reason)
	n.Failed = !n.Aside
}

// damaged reports whether the last rollout that is in the history could not be rolled back.
func damaged(history []v1beta1.SwitchRecord) bool {
	for i := range history {
		switch r := &history[i]; {
		case r.Result == v1beta1.ResultSucceeded, r.Result == v1beta1.ResultRolledBack:
			return false
		case r.Result == v1beta1.ResultRollbackFailed && !r.Repair:
			return true
		}
	}
	return false
}

// notTheProfile are reasons of switches that ended before anything changed, for which the
// profile is not to blame.
var notTheProfile = []string{
	names.ReasonDrainBlocked, names.ReasonDrainDeadline, names.ReasonPluginSilent,
	names.ReasonTaintFailed, names.ReasonInUse, names.ReasonOtherSystem,
}

// watch finds what went wrong after the switch to the applied profile.
func (n *Node) watch(s *v1beta1.GPUNodeStatus) {
	if s.Applied == nil || len(s.History) == 0 || s.Node == nil {
		return
	}
	last := &s.History[0]
	if last.Result != v1beta1.ResultSucceeded || last.ToProfileName != s.Applied.ProfileName {
		return
	}
	n.First = len(s.History) == 1
	n.Started, n.Ended = last.StartTime.Time, last.StartTime.Add(last.Duration.Duration)
	// Reports have whole seconds.
	from := n.Started.Truncate(time.Second)
	add := func(since time.Time, reason, message string) {
		if !since.Before(from) && (n.Trouble == nil || since.Before(n.Trouble.Since)) {
			n.Trouble = &Trouble{Since: since, Reason: reason, Message: message}
		}
	}
	for _, g := range s.Node.UnhealthyGPUs {
		add(g.DetectionTime.Time, names.ReasonUnhealthy, g.Name+" became unhealthy")
	}
	for _, c := range s.Node.UnpreparedClaims {
		add(c.FirstFailureTime.Time, names.ReasonClaimsNotPrepared, fmt.Sprintf("claim %s/%s could not be prepared: %s", c.Namespace, c.Name, c.Message))
	}
}

// broken reports whether the node has neither its old nor its new profile, and is not moving.
func (n *Node) broken() bool {
	return !n.Moving && !n.Joining && n.Ready && n.Applied != "" && n.Reported != n.Applied
}

// starting reports whether the node waits for permission to begin its switch.
func (n *Node) starting() bool {
	return n.State == v1beta1.Planning || n.State == v1beta1.Waiting
}

// Keeps returns the admission that the node keeps though no decision renews it: it has begun, or is
// done.
func (n *Node) Keeps() string {
	if n.Moving || n.Admitted == n.Applied {
		return n.Admitted
	}
	return ""
}

// target returns what a node without a plan is to have. A node that rests and asks for nothing keeps
// what it has, even if it was to have something else.
func (n *Node) target() (hash string, keeps bool) {
	resting := n.State == v1beta1.Idle || n.State == ""
	switch {
	case n.Wanted != "":
		return n.Wanted, false
	case !resting && n.To != "":
		return n.To, false
	}
	return n.Desired, resting && !n.Moving && !n.Joining && !n.settled(n.Desired)
}

// retries reports whether the node failed to reach a target, and is about to try again.
func (n *Node) retries(target string) bool {
	return n.Desired == target && n.To == target && n.Failed && n.starting()
}

// settled reports whether the node has a profile and nothing is under way.
func (n *Node) settled(target string) bool {
	return !n.Moving && n.Applied == target && n.Reported == target
}
