package rollout

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Plan is a PartitionPlan and what is known for it.
type Plan struct {
	*v1alpha1.PartitionPlan
	// Profile is the current version of its profile, nil: there is none.
	Profile *v1alpha1.ProfileSnapshot
	// Invalid says what is wrong with the selector, empty: nothing.
	Invalid string
	// Nodes are the nodes that follow the plan or are overruled.
	Nodes []*Node
	Now   time.Time
	// MaxUnavailable is for plans that have none.
	MaxUnavailable intstr.IntOrString
}

// Decision is what becomes of a plan.
type Decision struct {
	Status v1alpha1.PartitionPlanStatus
	// Admitted are the targets of the nodes that may begin or go on. Those that have begun also keep
	// what Node.Keeps returns.
	Admitted map[string]string
	// Wake is when to decide again if nothing happens, zero: never.
	Wake   time.Time
	Events []Event
}

// Event is something that people should know.
type Event struct{ Type, Reason, Note string }

// turn is one decision.
type turn struct {
	*Plan
	Decision
	tally *tally
	// edited: the spec has changed since the last decision.
	edited bool
	open   bool
	steps  []step
	closed closed
}

// closed says why no nodes start because of the windows.
type closed struct {
	outside bool
	until   time.Time
	problem error
}

// step is a resolved step.
type step struct {
	// nodes is how many nodes may have the target. The last step has no limit.
	nodes    int
	last     bool
	soak     time.Duration
	approval bool
}

// Decide advances a plan. Called with the status that it returned, it returns the same one until
// something changes.
func (p *Plan) Decide() Decision {
	t := &turn{Plan: p}
	p.Status.DeepCopyInto(&t.Status)
	t.edited = p.Status.ObservedGeneration != p.Generation
	t.Status.ObservedGeneration = p.Generation
	t.revise()
	t.count()
	if t.stop() {
		t.count()
	}
	t.look()
	t.resolve()
	t.advance()
	t.admit()
	t.report()
	t.describe()
	return t.Decision
}

func (t *turn) tell(kind, reason, format string, args ...any) {
	t.Events = append(t.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

func (t *turn) count() {
	target := ""
	if r := t.revision(t.Status.Target); r != nil {
		target = r.Hash
	}
	t.tally = count(t.Nodes, target, timeOf(t.Status.Started), t.Spec.Strategy.Topology, true, t.watched)
	if f := t.Spec.Strategy.MaxFailures; f != nil {
		t.tally.limit = Scaled(f, t.tally.eligible(), false)
	}
	if a := t.Spec.Accepted; a != nil && a.Revision == t.Status.Target {
		t.tally.limit += int(a.Failures)
	}
	t.Wake = t.tally.wake
}

// watched reports whether trouble of a node counts: until the rollout is complete.
func (t *turn) watched(n *Node) bool {
	r := t.revision(t.Status.Target)
	return r != nil && r.Completed == nil && !n.Trouble.Since.Before(timeOf(t.Status.Started).Truncate(time.Second))
}

func timeOf(at *metav1.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

// stop stops the plan if too many nodes have failed. It reports whether nodes go to another
// revision now.
func (t *turn) stop() bool {
	s := &t.Status
	if s.Target == 0 {
		return false
	}
	failures := int32(t.tally.failures)
	if t.stopped() {
		a := t.Spec.Accepted
		if a == nil || a.Revision != s.Target || a.Failures < s.Stopped.Failures {
			s.Stopped.Failures = max(s.Stopped.Failures, failures)
			return false
		}
		s.Stopped = nil
	}
	if t.tally.failures <= t.tally.limit {
		return false
	}
	s.Stopped = &v1alpha1.PlanStop{Revision: s.Target, Failures: failures, Time: metav1.NewTime(t.Now)}
	t.tell(corev1.EventTypeWarning, names.EventPlanStopped, "%s", t.stoppedText())
	if t.Spec.Strategy.OnFailure != v1alpha1.OnFailureUndo || s.Target != s.Revision || t.Spec.Undo != nil && t.Spec.Undo.Revision == s.Revision {
		return false
	}
	if r := t.revision(s.Target); r != nil && r.Completed != nil {
		return false // Its other nodes work.
	}
	t.goTo(t.lastGood())
	return true
}

// stopped reports whether failures stop the current target.
func (t *turn) stopped() bool {
	return t.Status.Stopped != nil && t.Status.Stopped.Revision == t.Status.Target
}

func (t *turn) stoppedText() string {
	var names []string
	for i := range listed(t.tally.failed) {
		f := &t.tally.failed[i]
		names = append(names, f.Node+": "+f.Reason)
	}
	return fmt.Sprintf("%s failed with revision %d, and maxFailures allows %d (%s)",
		nodes(t.tally.failures), t.Status.Target, t.tally.limit, text.List(names, 5))
}

// resolve resolves the steps. An undo has only one.
func (t *turn) resolve() {
	if t.steps = []step{{last: true}}; !t.undoing() {
		t.steps = stepsOf(&t.Spec.Strategy, t.tally.eligible())
	}
	t.Status.Steps = int32(len(t.steps))
	t.Status.Step = min(max(t.Status.Step, 1), t.Status.Steps)
}

// stepsOf returns the steps of a rollout to so many nodes. The last one is for all nodes: a step with
// 100%, or one that follows those of the plan.
func stepsOf(strategy *v1alpha1.RolloutStrategy, nodes int) (steps []step) {
	most := 0
	for i := range strategy.Steps {
		s := &strategy.Steps[i]
		most = max(most, Scaled(&s.Nodes, nodes, true))
		next := step{nodes: most, approval: s.Approval, last: i == len(strategy.Steps)-1 && strings.TrimSpace(s.Nodes.StrVal) == "100%"}
		if s.Soak != nil {
			next.soak = s.Soak.Duration
		}
		steps = append(steps, next)
	}
	if len(steps) == 0 || !steps[len(steps)-1].last {
		steps = append(steps, step{last: true})
	}
	return steps
}

// undoing reports whether nodes go back to an earlier revision.
func (t *turn) undoing() bool { return t.Status.Target != t.Status.Revision }

func (t *turn) current() *step { return &t.steps[t.Status.Step-1] }

// advance goes to the next step when the nodes of one have the target and its soak is over.
func (t *turn) advance() {
	s := &t.Status
	if s.Target == 0 || t.stopped() || t.tally.eligible() == 0 {
		return
	}
	for {
		now := t.current()
		if t.edited && s.StepReached != nil && !t.reached(now) {
			s.StepReached = nil // The step has other nodes now.
		}
		if s.StepReached == nil {
			if !t.reached(now) {
				return
			}
			at := metav1.NewTime(t.Now)
			s.StepReached = &at
			if !now.last {
				t.tell(corev1.EventTypeNormal, names.EventPlanStep, "Step %d of %d: %d nodes have revision %d", s.Step, s.Steps, t.tally.counts.Updated, s.Target)
			}
		}
		if until := s.StepReached.Add(now.soak); t.Now.Before(until) {
			t.Wake = Earliest(t.Wake, until)
			return
		}
		if now.last {
			t.complete()
			return
		}
		if now.approval && !t.approved() {
			return
		}
		s.Step++
		s.StepReached = nil
	}
}

// reached reports whether the nodes of a step have the target. At the last one, nodes that cannot
// be switched now may be missing, but not most of them.
func (t *turn) reached(s *step) bool {
	switch nodes := t.tally.eligible(); {
	case t.tally.arriving > 0:
		return false
	case !s.last:
		return t.tally.used >= min(s.nodes, nodes)
	default:
		return len(t.tally.candidates) == 0 && 2*int(t.tally.counts.Updated+t.tally.counts.Failed) >= nodes
	}
}

func (t *turn) approved() bool {
	a := t.Spec.Approved
	return a != nil && a.Revision == t.Status.Target && a.Step >= t.Status.Step
}

func (t *turn) complete() {
	r := t.revision(t.Status.Target)
	if r == nil || r.Completed != nil {
		return
	}
	at := metav1.NewTime(t.Now)
	r.Completed = &at
	t.count() // Trouble does not count any more.
	t.tell(corev1.EventTypeNormal, names.EventPlanComplete, "%d of %d nodes have revision %d", t.tally.counts.Updated, t.tally.eligible(), t.Status.Target)
}

// look finds out whether nodes may start now.
func (t *turn) look() {
	var changes time.Time
	if !t.undoing() {
		open, until, err := InWindow(t.Spec.Strategy.Windows, t.Now)
		t.closed, changes = closed{outside: !open, until: until, problem: err}, until
	}
	t.open = !t.Spec.Paused && !t.stopped() && !t.closed.outside && t.Status.Target != 0 && t.Invalid == "" && (t.Profile != nil || t.undoing())
	t.Wake = Earliest(t.Wake, changes)
}

// admit admits as many nodes as may start now.
func (t *turn) admit() {
	if !t.open {
		return
	}
	l := limits{unavailable: t.unavailable(), topology: t.Spec.Strategy.Topology, order: t.Spec.Strategy.Order, room: t.current().nodes}
	if t.current().last {
		l.room = unlimited
	}
	t.Admitted = l.admit(t.tally)
}

// unavailable is how many nodes may be switched at once.
func (t *turn) unavailable() int {
	most := t.Spec.Strategy.MaxUnavailable
	if most == nil {
		most = &t.MaxUnavailable
	}
	return max(1, Scaled(most, t.tally.eligible(), false))
}
