package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// report sets what informs people: counts, nodes, and when the rollout will be complete.
func (t *turn) report() {
	s := &t.Status
	s.Nodes = t.tally.counts
	// Those that were admitted just now.
	for _, n := range t.tally.candidates {
		if t.Admitted[n.Name] == "" || n.Moving || n.retries(t.tally.target) {
			continue
		}
		s.Nodes.Switching++
		if n.setAside(t.tally.target) {
			s.Nodes.SetAside--
		} else {
			s.Nodes.Waiting--
		}
	}
	aside := slices.DeleteFunc(t.tally.aside, func(n v1alpha1.PlanNode) bool { return t.Admitted[n.Node] != "" })
	s.Failed, s.SetAside = listed(t.tally.failed), listed(aside)
	if t.tally.arrived > 0 {
		mean := t.tally.took / time.Duration(t.tally.arrived)
		s.SwitchDuration = &metav1.Duration{Duration: mean.Round(100 * time.Millisecond)}
	}
	t.estimate()
}

// estimate estimates when the last node has the target. An estimate that is about right stays.
func (t *turn) estimate() {
	s := &t.Status
	before := s.EstimatedCompletion
	s.EstimatedCompletion = nil
	left := int(s.Nodes.Waiting + s.Nodes.Switching)
	if !t.open || s.SwitchDuration == nil || left == 0 {
		return
	}
	most := t.unavailable()
	lasts := time.Duration((left+most-1)/most) * s.SwitchDuration.Duration
	for i := int(s.Step) - 1; i < len(t.steps)-1; i++ {
		if t.steps[i].approval && (i > int(s.Step)-1 || !t.approved()) {
			return // Nobody knows.
		}
		lasts += t.steps[i].soak
	}
	if s.StepReached != nil && !t.current().last {
		lasts -= min(t.Now.Sub(s.StepReached.Time), t.current().soak)
	}
	at := metav1.NewTime(t.Now.Add(lasts).Truncate(time.Second))
	if before != nil && before.Sub(at.Time).Abs() <= max(lasts/10, 5*time.Second) {
		at = *before
	}
	s.EstimatedCompletion = &at
}

// describe sets the conditions.
func (t *turn) describe() {
	set := func(kind string, status bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: text.Cut(message, 4096),
			ObservedGeneration: t.Generation, LastTransitionTime: metav1.NewTime(t.Now),
		}
		if status {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&t.Status.Conditions, c)
	}
	moves, reason, message := t.progress()
	set(names.ConditionProgressing, moves, reason, message)
	switch {
	case t.stopped():
		set(names.ConditionPaused, true, names.ReasonTooManyFailures, t.stoppedText())
	case t.Spec.Paused:
		set(names.ConditionPaused, true, names.ReasonPaused, "spec.paused is true")
	default:
		set(names.ConditionPaused, false, names.ReasonNone, "")
	}
	if n := len(t.tally.failed); n > 0 {
		set(names.ConditionDegraded, true, names.ReasonNodesFailed, nodes(int(t.tally.counts.Failed))+" failed: status.failed says why")
	} else {
		set(names.ConditionDegraded, false, names.ReasonNone, "")
	}
	set(names.ConditionComplete, reason == names.ReasonComplete, reason, message)
}

// progress says whether the plan makes progress, and what it does or waits for.
func (t *turn) progress() (moves bool, reason, message string) {
	s := &t.Status
	c := &s.Nodes
	r := t.revision(s.Target)
	have := fmt.Sprintf("step %d of %d: %d of %s %s revision %d", s.Step, s.Steps, c.Updated, nodes(t.tally.eligible()), has(t.tally.eligible()), s.Target)
	over := r != nil && s.StepReached != nil && t.current().last && !t.Now.Before(s.StepReached.Add(t.current().soak))
	switch {
	case t.Invalid != "":
		return false, names.ReasonInvalidSelector, t.Invalid
	case s.Target == 0 && s.Revision > 0:
		return false, names.ReasonUndone, fmt.Sprintf("revision %d was undone, and nodes have what they would have without the plan; change profile %s to go on", s.Revision, t.Spec.Profile)
	case t.Profile == nil && !t.undoing():
		return false, names.ReasonProfileNotFound, fmt.Sprintf("PartitionProfile %s does not exist, so the nodes keep what they have", t.Spec.Profile)
	case t.stopped():
		return false, names.ReasonTooManyFailures, t.stoppedText()
	case t.Spec.Paused:
		return false, names.ReasonPaused, "spec.paused is true; " + have
	case t.tally.eligible() == 0:
		return false, names.ReasonNoNodes, "no node follows the plan"
	case over && c.Waiting+c.Switching+c.SetAside == 0 && t.undoing():
		return false, names.ReasonUndone, fmt.Sprintf("revision %d was undone; %s; change profile %s to go on", s.Revision, have, t.Spec.Profile)
	case over && c.Waiting+c.Switching+c.SetAside == 0:
		return false, names.ReasonComplete, have
	case s.StepReached != nil && t.Now.Before(s.StepReached.Add(t.current().soak)):
		return true, names.ReasonSoaking, have + "; they are watched until " + clock(s.StepReached.Add(t.current().soak))
	case s.StepReached != nil && !t.current().last:
		return false, names.ReasonWaitsForApproval, fmt.Sprintf("%s; kubectl tranche rollout approve %s begins the next step", have, t.Name)
	case t.closed.problem != nil:
		return false, names.ReasonInvalidWindow, t.closed.problem.Error()
	case t.closed.outside && c.Waiting > 0:
		return false, names.ReasonOutsideWindow, have + "; " + t.nextWindow()
	case c.Waiting+c.Switching > 0 && t.undoing():
		return true, names.ReasonUndoing, fmt.Sprintf("revision %d is undone; %s", s.Revision, have)
	case c.Waiting+c.Switching > 0 && t.tally.failures+t.tally.damaged > t.tally.limit:
		return true, names.ReasonRollingOut, have + "; other nodes wait for those whose earlier profile could not be restored"
	case c.Waiting+c.Switching > 0:
		return true, names.ReasonRollingOut, have
	}
	return false, names.ReasonBlocked, fmt.Sprintf("%s; the others cannot be switched now: %d are set aside, %d are not ready", have, c.SetAside, c.NotReady)
}

// nodes is a number of nodes.
func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// clock is a time for people that can be days away.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func (t *turn) nextWindow() string {
	if t.closed.until.IsZero() {
		return "no window follows"
	}
	return "more nodes start at " + clock(t.closed.until)
}
