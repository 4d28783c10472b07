package cluster

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Rollout is the progress of a PartitionPlan.
type Rollout struct {
	Plan    string
	Profile string
	// Revision is the newest revision, Target the one that nodes get.
	Revision int64
	Target   *int64
	// Step is the current step, of Steps.
	Step  int32
	Steps int32
	// Reason and Message are those of the condition Progressing.
	Reason  string
	Message string
	// Result is empty while the rollout is not over.
	Result   RolloutResult
	Nodes    v1beta1.PlanNodeCounts
	Failed   []v1beta1.PlanNode
	SetAside []v1beta1.PlanNode
	Done     *time.Time
}

// RolloutResult says how a rollout has ended.
type RolloutResult string

// How a rollout can end.
const (
	// RolloutComplete: all nodes have the newest revision.
	RolloutComplete RolloutResult = "Complete"
	// RolloutStopped: too many nodes failed, and the plan waits for a person.
	RolloutStopped RolloutResult = "Stopped"
	// RolloutUndone: the nodes have an earlier revision again.
	RolloutUndone RolloutResult = "Undone"
	// RolloutInvalid: the plan cannot be carried out until it is corrected.
	RolloutInvalid RolloutResult = "Invalid"
)

// invalid are reasons for which a plan cannot be carried out.
var invalid = []string{names.ReasonFallbackNotFound, names.ReasonInvalidSelector, names.ReasonInvalidWindow, names.ReasonNoNodes, names.ReasonProfileNotFound}

// RolloutOf returns the progress of a plan. known is false while the controller has not seen
// the last change of the plan.
func RolloutOf(p *v1beta1.PartitionPlan) (r Rollout, known bool) {
	s := &p.Status
	r = Rollout{
		Plan: p.Name, Profile: p.Spec.ProfileName, Revision: s.Revision, Target: s.TargetRevision, Step: s.CurrentStep, Steps: s.StepCount,
		Nodes: s.NodeCounts, Failed: s.FailedNodes, SetAside: s.SetAsideNodes,
	}
	if e := s.EstimatedCompletionTime; e != nil {
		r.Done = &e.Time
	}
	if i := slices.IndexFunc(s.History, func(h v1beta1.PlanRevision) bool { return ptr.Equal(&h.Revision, s.TargetRevision) }); i >= 0 {
		r.Profile = s.History[i].ProfileName
	}
	c := meta.FindStatusCondition(s.Conditions, names.ConditionProgressing)
	if c == nil || s.ObservedGeneration < p.Generation {
		return r, false
	}
	r.Reason, r.Message = c.Reason, c.Message
	switch {
	case c.Reason == names.ReasonComplete:
		r.Result = RolloutComplete
	case c.Reason == names.ReasonUndone:
		r.Result = RolloutUndone
	case c.Reason == names.ReasonTooManyFailures:
		r.Result = RolloutStopped
	case slices.Contains(invalid, c.Reason):
		r.Result = RolloutInvalid
	}
	return r, true
}

// Counts says how many nodes are how far: "12 of 40 nodes updated, 2 switching".
func (r Rollout) Counts() string {
	n := r.Nodes
	out := fmt.Sprintf("%d of %d nodes updated", n.Updated, n.Selected)
	for _, c := range []struct {
		count int32
		what  string
	}{{n.Switching, "switching"}, {n.Failed, "failed"}, {n.SetAside, "set aside"}, {n.NotReady, "not ready"}, {n.Overridden, "overridden"}} {
		if c.count > 0 {
			out += fmt.Sprintf(", %d %s", c.count, c.what)
		}
	}
	return out
}

// Line returns the progress in one line: "step 2 of 3: 12 of 40 nodes updated (Soaking)".
func (r Rollout) Line() string {
	line := r.Counts()
	if r.Steps > 1 {
		line = fmt.Sprintf("step %d of %d: %s", r.Step, r.Steps, line)
	}
	if r.Reason != "" {
		line += " (" + r.Reason + ")"
	}
	return line
}
