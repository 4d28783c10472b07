package rollout

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Plan is a PartitionPlan and what is known for it.
type Plan struct {
	*v1beta1.PartitionPlan
	// Profile is the current version of its profile, or nil if there is none.
	Profile *v1beta1.ProfileSnapshot
	// Invalid says what is wrong with the selector. It is empty if nothing is.
	Invalid string
	// Nodes are the nodes that follow the plan or are overridden.
	Nodes []*Node
	Now   time.Time
	// MaxUnavailable is for plans that have none.
	MaxUnavailable intstr.IntOrString
}

// Decision is what becomes of a plan.
type Decision struct {
	Status v1beta1.PartitionPlanStatus
	// Admitted are the targets of the nodes that may begin or continue. Those that have begun also keep
	// what Node.Keeps returns.
	Admitted map[string]string
	// Wake is when to decide again if nothing happens. Zero means never.
	Wake   time.Time
	Events []Event
}

// Event is something that people should know.
type Event struct{ Type, Reason, Note string }

// evaluation is one call of Decide.
type evaluation struct {
	*Plan
	Decision
	tally *tally
	// edited: the spec has changed since the last decision.
	edited bool
	open   bool
	steps  []step
	closed closed
	// lost: spec.rejected names a fallback that the history does not have.
	lost bool
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
	e := &evaluation{Plan: p}
	p.Status.DeepCopyInto(&e.Status)
	e.edited = p.Status.ObservedGeneration != p.Generation
	e.Status.ObservedGeneration = p.Generation
	e.revise()
	e.count()
	if e.stop() {
		e.count()
	}
	e.look()
	e.resolve()
	e.advance()
	e.admit()
	e.report()
	e.describe()
	return e.Decision
}

func (e *evaluation) event(kind, reason, format string, args ...any) {
	e.Events = append(e.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

func (e *evaluation) count() {
	target := ""
	if r := e.target(); r != nil {
		target = r.RevisionHash
	}
	e.tally = count(e.Nodes, target, timeOf(e.Status.StartTime), e.Spec.Strategy.TopologyLimits, true, e.watched)
	e.tally.limit = Scaled(&e.Spec.Strategy.MaxFailures, e.tally.eligible(), false) + int(e.accepted())
	e.Wake = e.tally.wake
}

// accepted returns how many failures with the target are accepted.
func (e *evaluation) accepted() int32 {
	if a := e.Spec.Accepted; a != nil && a.Means(e.target()) {
		return a.FailedNodeCount
	}
	return 0
}

// watched reports whether trouble of a node counts: until the rollout is complete.
func (e *evaluation) watched(n *Node) bool {
	r := e.target()
	return r != nil && r.CompletionTime == nil && !n.Trouble.Since.Before(timeOf(e.Status.StartTime).Truncate(time.Second))
}

func timeOf(at *metav1.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

// stop stops the plan if too many nodes have failed. It reports whether nodes go to another
// revision now.
func (e *evaluation) stop() bool {
	s := &e.Status
	target := e.target()
	if target == nil {
		return false
	}
	failures := int32(e.tally.failures)
	if Stopped(s) {
		if e.accepted() < s.Stopped.FailedNodeCount {
			s.Stopped.FailedNodeCount = max(s.Stopped.FailedNodeCount, failures)
			return false
		}
		s.Stopped = nil
	}
	if e.tally.failures <= e.tally.limit {
		return false
	}
	s.Stopped = &v1beta1.PlanStop{Revision: target.Revision, FailedNodeCount: failures, StopTime: metav1.NewTime(e.Now)}
	e.event(corev1.EventTypeWarning, names.EventPlanStopped, "%s", e.stoppedText())
	if e.Spec.Strategy.OnFailure != v1beta1.OnFailureUndo || e.undoing() || rejected(&e.Spec, &e.Status) {
		return false
	}
	if target.CompletionTime != nil {
		return false // Its other nodes work.
	}
	e.goBack(LastComplete(s))
	return true
}

// stoppedText says why the plan has stopped. Nodes that have failed may have succeeded since.
func (e *evaluation) stoppedText() string {
	var names []string
	for i := range listed(e.tally.failed) {
		f := &e.tally.failed[i]
		names = append(names, f.NodeName+": "+f.Reason)
	}
	said := fmt.Sprintf("%s failed with revision %d, and maxFailures allows %d", text.Count(int(e.Status.Stopped.FailedNodeCount), "node"), e.Status.Stopped.Revision, e.tally.limit)
	if len(names) > 0 {
		said += " (" + text.List(names, 5) + ")"
	}
	return said
}

// resolve resolves the steps. An undo has only one.
func (e *evaluation) resolve() {
	if e.steps = []step{{last: true}}; !e.undoing() {
		e.steps = stepsOf(&e.Spec.Strategy, e.tally.eligible())
	}
	e.Status.StepCount = int32(len(e.steps))
	e.Status.CurrentStep = min(max(e.Status.CurrentStep, 1), e.Status.StepCount)
}

// stepsOf returns the steps of a rollout to so many nodes. The last one is for all nodes: a step with
// 100%, or one that follows those of the plan.
func stepsOf(strategy *v1beta1.RolloutStrategy, nodes int) (steps []step) {
	most := 0
	for i := range strategy.Steps {
		s := &strategy.Steps[i]
		most = max(most, Scaled(&s.Nodes, nodes, true))
		last := i == len(strategy.Steps)-1 && strings.TrimSpace(s.Nodes.StrVal) == "100%"
		steps = append(steps, step{nodes: most, soak: s.Soak.Duration, approval: s.Approval, last: last})
	}
	if len(steps) == 0 || !steps[len(steps)-1].last {
		steps = append(steps, step{last: true})
	}
	return steps
}

// undoing reports whether nodes go back to an earlier revision.
func (e *evaluation) undoing() bool {
	return ptr.Deref(e.Status.TargetRevision, 0) != e.Status.Revision
}

func (e *evaluation) current() *step { return &e.steps[e.Status.CurrentStep-1] }

// advance goes to the next step when the nodes of one have the target and its soak is over.
func (e *evaluation) advance() {
	s := &e.Status
	if s.TargetRevision == nil || e.lost || Stopped(s) || e.tally.eligible() == 0 {
		return
	}
	for {
		now := e.current()
		if e.edited && s.StepReachedTime != nil && !e.reached(now) {
			s.StepReachedTime = nil // The step has other nodes now.
		}
		if s.StepReachedTime == nil {
			if !e.reached(now) {
				return
			}
			at := metav1.NewTime(e.Now)
			s.StepReachedTime = &at
			if !now.last {
				e.event(corev1.EventTypeNormal, names.EventPlanStep, "Step %d of %d: %s revision %d", s.CurrentStep, s.StepCount, nodesHave(int(e.tally.counts.Updated)), *s.TargetRevision)
			}
		}
		if until := s.StepReachedTime.Add(now.soak); e.Now.Before(until) {
			e.Wake = Earliest(e.Wake, until)
			return
		}
		if now.last {
			e.complete()
			return
		}
		if now.approval && !e.approved() {
			return
		}
		s.CurrentStep++
		s.StepReachedTime = nil
	}
}

// reached reports whether the nodes of a step have the target. At the last one, nodes that cannot
// be switched now may be missing, but not most of them.
func (e *evaluation) reached(s *step) bool {
	switch nodes := e.tally.eligible(); {
	case e.tally.arriving > 0:
		return false
	case !s.last:
		return e.tally.used >= min(s.nodes, nodes)
	default:
		return len(e.tally.candidates) == 0 && 2*int(e.tally.counts.Updated+e.tally.counts.Failed) >= nodes
	}
}

func (e *evaluation) approved() bool {
	a := e.Spec.Approved
	return a != nil && a.Means(e.target()) && a.Step >= e.Status.CurrentStep
}

func (e *evaluation) complete() {
	r := e.target()
	if r == nil || r.CompletionTime != nil {
		return
	}
	at := metav1.NewTime(e.Now)
	r.CompletionTime = &at
	e.count() // Trouble does not count any more.
	e.event(corev1.EventTypeNormal, names.EventPlanComplete, "%d of %s revision %d", e.tally.counts.Updated, nodesHave(e.tally.eligible()), r.Revision)
}

// look finds out whether nodes may start now.
func (e *evaluation) look() {
	var changes time.Time
	if !e.undoing() {
		open, until, err := InWindow(e.Spec.Strategy.Windows, e.Now)
		e.closed, changes = closed{outside: !open, until: until, problem: err}, until
	}
	e.open = !e.Spec.Paused && !e.lost && !Stopped(&e.Status) && !e.closed.outside && e.Status.TargetRevision != nil && e.Invalid == "" && (e.Profile != nil || e.undoing())
	e.Wake = Earliest(e.Wake, changes)
}

func (e *evaluation) admit() {
	if !e.open {
		return
	}
	l := limits{unavailable: e.unavailable(), topology: e.Spec.Strategy.TopologyLimits, order: e.Spec.Strategy.Order, room: e.current().nodes}
	if e.current().last {
		l.room = unlimited
	}
	e.Admitted = l.admit(e.tally)
}

// unavailable returns how many nodes may be switched at once.
func (e *evaluation) unavailable() int {
	most := e.Spec.Strategy.MaxUnavailable
	if most == nil {
		most = &e.MaxUnavailable
	}
	return max(1, Scaled(most, e.tally.eligible(), false))
}
