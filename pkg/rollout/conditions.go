package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// report sets what informs people: counts, nodes, and when the rollout will be complete.
func (e *evaluation) report() {
	s := &e.Status
	s.NodeCounts = e.tally.counts
	// Those that were admitted just now.
	for _, n := range e.tally.candidates {
		if e.Admitted[n.Name] == "" || n.Moving || n.retries(e.tally.target) {
			continue
		}
		s.NodeCounts.Switching++
		if n.setAside(e.tally.target) {
			s.NodeCounts.SetAside--
		} else {
			s.NodeCounts.Waiting--
		}
	}
	aside := slices.DeleteFunc(e.tally.aside, func(n v1beta1.PlanNode) bool { return e.Admitted[n.NodeName] != "" })
	s.FailedNodes, s.SetAsideNodes = listed(e.tally.failed), listed(aside)
	if e.tally.arrived > 0 {
		mean := e.tally.took / time.Duration(e.tally.arrived)
		s.MeanSwitchDuration = &metav1.Duration{Duration: mean.Round(100 * time.Millisecond)}
	}
	e.estimate()
}

// estimate estimates when the last node has the target. An estimate that is about right stays.
func (e *evaluation) estimate() {
	s := &e.Status
	before := s.EstimatedCompletionTime
	s.EstimatedCompletionTime = nil
	left := int(s.NodeCounts.Waiting + s.NodeCounts.Switching)
	if !e.open || s.MeanSwitchDuration == nil || left == 0 {
		return
	}
	most := e.unavailable()
	lasts := time.Duration((left+most-1)/most) * s.MeanSwitchDuration.Duration
	for i := int(s.CurrentStep) - 1; i < len(e.steps)-1; i++ {
		if e.steps[i].approval && (i > int(s.CurrentStep)-1 || !e.approved()) {
			return // Nobody knows.
		}
		lasts += e.steps[i].soak
	}
	if s.StepReachedTime != nil && !e.current().last {
		lasts -= min(e.Now.Sub(s.StepReachedTime.Time), e.current().soak)
	}
	at := metav1.NewTime(e.Now.Add(lasts).Truncate(time.Second))
	if before != nil && before.Sub(at.Time).Abs() <= max(lasts/10, 5*time.Second) {
		at = *before
	}
	s.EstimatedCompletionTime = &at
}

func (e *evaluation) describe() {
	set := func(kind string, status bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: text.Cut(message, v1beta1.MaxConditionMessage),
			ObservedGeneration: e.Generation, LastTransitionTime: metav1.NewTime(e.Now),
		}
		if status {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&e.Status.Conditions, c)
	}
	moves, reason, message := e.progress()
	set(names.ConditionProgressing, moves, reason, message)
	if e.Spec.Paused {
		set(names.ConditionPaused, true, names.ReasonPaused, "spec.paused is true")
	} else {
		set(names.ConditionPaused, false, names.ReasonNone, "")
	}
	if s := e.Status.Stopped; s != nil {
		set(names.ConditionStopped, true, names.ReasonTooManyFailures, fmt.Sprintf("%s failed with revision %d", text.Count(int(s.FailedNodeCount), "node"), s.Revision))
	} else {
		set(names.ConditionStopped, false, names.ReasonNone, "")
	}
	if n := len(e.tally.failed); n > 0 {
		set(names.ConditionDegraded, true, names.ReasonNodesFailed, text.Count(int(e.tally.counts.Failed), "node")+" failed: status.failedNodes says why")
	} else {
		set(names.ConditionDegraded, false, names.ReasonNone, "")
	}
	complete := reason == names.ReasonComplete
	if c := meta.FindStatusCondition(e.Status.Conditions, names.ConditionDegraded); complete && c.Status == metav1.ConditionTrue {
		set(names.ConditionReady, false, c.Reason, c.Message)
	} else {
		set(names.ConditionReady, complete || reason == names.ReasonNoNodes, reason, message)
	}
}

// progress says whether the plan makes progress, and what it does or waits for.
func (e *evaluation) progress() (moves bool, reason, message string) {
	s := &e.Status
	c := &s.NodeCounts
	have := fmt.Sprintf("step %d of %d: %d of %s revision %d", s.CurrentStep, s.StepCount, c.Updated, nodesHave(e.tally.eligible()), ptr.Deref(s.TargetRevision, 0))
	over := e.target() != nil && s.StepReachedTime != nil && e.current().last && !e.Now.Before(s.StepReachedTime.Add(e.current().soak))
	switch {
	case e.Invalid != "":
		return false, names.ReasonInvalidSelector, e.Invalid
	case e.lost:
		f := e.Spec.Rejected.Fallback
		return false, names.ReasonFallbackNotFound, fmt.Sprintf(
			"revision %d is rejected, and its fallback, revision %d with the hash %s, is not in status.history, so no nodes start; correct or remove spec.rejected.fallback", s.Revision, f.Revision, f.RevisionHash)
	case s.TargetRevision == nil && s.Revision > 0:
		return false, names.ReasonUndone, fmt.Sprintf(
			"revision %d was undone, and none before it was complete, so nodes have what they would have without the plan; change profile %s to go on", s.Revision, e.Spec.ProfileName)
	case e.Profile == nil && !e.undoing():
		return false, names.ReasonProfileNotFound, fmt.Sprintf("PartitionProfile %s does not exist, so the nodes keep what they have", e.Spec.ProfileName)
	case Stopped(&e.Status):
		return false, names.ReasonTooManyFailures, fmt.Sprintf("%s; after the repair, kubectl tranche rollout resume %s goes on", e.stoppedText(), e.Name)
	case e.Spec.Paused:
		return false, names.ReasonPaused, "spec.paused is true; " + have
	case e.tally.eligible() == 0:
		return false, names.ReasonNoNodes, "no node follows the plan"
	case over && c.Waiting+c.Switching+c.SetAside == 0 && e.undoing():
		return false, names.ReasonUndone, fmt.Sprintf("revision %d was undone; %s; change profile %s to go on", s.Revision, have, e.Spec.ProfileName)
	case over && c.Waiting+c.Switching+c.SetAside == 0:
		return false, names.ReasonComplete, have
	case s.StepReachedTime != nil && e.Now.Before(s.StepReachedTime.Add(e.current().soak)):
		return true, names.ReasonSoaking, have + "; they are watched until " + clock(s.StepReachedTime.Add(e.current().soak))
	case s.StepReachedTime != nil && !e.current().last:
		return false, names.ReasonWaitsForApproval, fmt.Sprintf("%s; kubectl tranche rollout approve %s begins the next step", have, e.Name)
	case e.closed.problem != nil:
		return false, names.ReasonInvalidWindow, e.closed.problem.Error()
	case e.closed.outside && c.Waiting > 0:
		return false, names.ReasonOutsideWindow, have + "; " + e.nextWindow()
	case c.Waiting+c.Switching > 0 && e.undoing():
		return true, names.ReasonUndoing, fmt.Sprintf("revision %d is undone; %s", s.Revision, have)
	case c.Waiting+c.Switching > 0 && e.tally.failures+e.tally.damaged > e.tally.limit:
		return true, names.ReasonRollingOut, have + "; other nodes wait for those whose earlier profile could not be restored"
	case c.Waiting+c.Switching > 0:
		return true, names.ReasonRollingOut, have
	}
	return false, names.ReasonBlocked, fmt.Sprintf("%s; the others cannot be switched now (failed: %d, set aside: %d, not ready: %d)", have, c.Failed, c.SetAside, c.NotReady)
}

// clock formats a time that can be days away.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func nodesHave(n int) string {
	if n == 1 {
		return "1 node has"
	}
	return fmt.Sprintf("%d nodes have", n)
}

func (e *evaluation) nextWindow() string {
	if e.closed.until.IsZero() {
		return "no window follows"
	}
	return "more nodes start at " + clock(e.closed.until)
}
