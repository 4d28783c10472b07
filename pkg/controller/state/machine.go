package state

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

// Deadlines are how long the states can last.
type Deadlines struct {
	Planning, Tainted, Applying, Rebooting, Verifying, RollingBack time.Duration
	// Force is how long pods that are deleted after the drain deadline have to end.
	Force time.Duration
	// Monitoring is how long paused monitoring pods have to end. After that, the plugin finds out
	// whether they block the change.
	Monitoring time.Duration
}

// DefaultDeadlines returns the defaults of the flags. Reloading AMD's driver takes minutes.
func DefaultDeadlines() Deadlines {
	return Deadlines{
		Planning: time.Minute, Tainted: time.Minute, Applying: 10 * time.Minute, Rebooting: 15 * time.Minute,
		Verifying: 2 * time.Minute, RollingBack: 10 * time.Minute,
		Force: 5 * time.Minute, Monitoring: time.Minute,
	}
}

// Facts are the input of the machine beside the GPUNode. Only those that the state needs are
// collected.
type Facts struct {
	Now    time.Time
	Choice Choice
	// Admitted: the node may begin its switch. For Planning and Waiting. Otherwise Others says
	// what it waits for.
	Admitted bool
	Others   string
	// Pausable are the labels of the node that can pause monitoring pods, with their values. For
	// Planning and Waiting.
	Pausable map[string]string
	// Tainted: the taint and labels that the state needs are set on the Node. Otherwise
	// Trouble is the error.
	Tainted bool
	Trouble string
	// Holders hold devices of the GPUs that change, by the plugin's report. For Tainted and Draining;
	// for Verifying, those whose device no longer exists. Unseen is the error if they are
	// not known.
	Holders []drain.Holder
	Unseen  string
	// Blockers cannot be evicted now, by a dry run. For Tainted, once the changes are known;
	// for Failed, if Looked, the blockers of the switch that still cannot be evicted.
	Blockers []v1beta1.Blocker
	Looked   bool
	// LookAgain is when to check the blockers of a failed switch again. Zero means never.
	LookAgain time.Time
	// Evicted counts the pods that were evicted since the status was written.
	Evicted int32
	// Monitoring are the paused monitoring pods that are still on the node.
	Monitoring []string
	// Differs says how the ResourceSlices differ from the plugin's report, empty if they do
	// not. For the states in which the plugin may have reported that it is done.
	Differs string
}

// Step is the next step.
type Step struct {
	// Status is the new status. Its Node does not change.
	Status v1beta1.GPUNodeStatus
	// Evict: the holders are evicted, or deleted with Force.
	Evict, Force bool
	// Wake is when to reconcile again if nothing happens. Zero means never.
	Wake time.Time
	// Record is the record of the switch that has just ended.
	Record *v1beta1.SwitchRecord
}

// Machine is the state machine. It is pure.
type Machine struct {
	Deadlines Deadlines
}

// disturbing reports whether a state keeps pods off GPUs.
func disturbing(s v1beta1.State) bool {
	switch s {
	case v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack:
		return true
	}
	return false
}

// Next returns the next step. Called with the status that it returned, it returns the same one
// until the facts change.
func (m *Machine) Next(gpuNode *v1beta1.GPUNode, f *Facts) Step {
	e := &evaluation{Machine: m, Facts: f, node: gpuNode.Status.Node}
	gpuNode.Status.DeepCopyInto(&e.Status)
	if e.node == nil {
		e.node = &v1beta1.NodeReport{}
	}
	if e.Status.Switch != nil {
		e.Status.Switch.EvictedPodCount += f.Evicted
	}
	e.setDesired()
	switch e.Status.State {
	case v1beta1.Planning, v1beta1.Waiting, v1beta1.Tainted, v1beta1.Draining,
		v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack:
		if e.Status.Switch == nil {
			// Somebody has edited the status.
			e.Status.State = v1beta1.Idle
			break
		}
		e.underWay()
	case v1beta1.Failed:
		e.failed()
	default:
		e.Status.State = v1beta1.Idle
		e.idle()
	}
	if e.Status.State != gpuNode.Status.State {
		e.Status.StateChangeTime = &metav1.Time{Time: e.Now}
	}
	e.describe(gpuNode.Generation)
	return e.Step
}

// evaluation is one call of Next.
type evaluation struct {
	*Machine
	*Facts
	Step
	node *v1beta1.NodeReport
}

// setDesired sets the desired profile. Without a choice, the last one stays.
func (e *evaluation) setDesired() {
	e.Status.RequestedHash = e.Choice.Wanted
	if e.Choice.Desired != nil {
		e.Status.Desired = e.Choice.Desired
	} else if e.Choice.Keep == names.ReasonPaused || e.Choice.Keep == names.ReasonControlPlaneNotNamed {
		e.Status.Desired = e.Status.Applied
	}
}

// conflict reports whether another system serves the node's GPUs.
func (e *evaluation) conflict() bool { return len(e.node.OtherSystems) > 0 }

// unknownProtocol reports whether the plugin may answer in ways that this controller does not know.
func (e *evaluation) unknownProtocol() bool { return e.node.ProtocolVersion > v1beta1.ProtocolVersion }

// desired returns the profile that a new switch would apply, nil: none.
func (e *evaluation) desired() *v1beta1.ProfileSnapshot {
	if e.Choice.Desired == nil || e.conflict() || e.unknownProtocol() || !e.node.HasGPUs() {
		return nil
	}
	return e.Choice.Desired
}

func (e *evaluation) idle() {
	desired := e.desired()
	if desired == nil {
		return
	}
	if a := e.Status.Applied; a != nil && a.Hash == desired.Hash && e.node.AppliedHash == desired.Hash {
		a.Source, a.PlanName = desired.Source, desired.PlanName
		return
	}
	e.begin(desired, 1)
}

func (e *evaluation) begin(to *v1beta1.ProfileSnapshot, attempt int32) {
	from := noProfile(to.Hash)
	if e.Status.Applied != nil {
		from = e.Status.Applied
	}
	e.Status.Switch = &v1beta1.Switch{
		// Two attempts never begin in the same microsecond.
		ID:   strconv.FormatInt(e.Now.UnixMicro(), 36),
		From: *from.DeepCopy(), To: *to.DeepCopy(), Policy: e.Choice.Policy,
		Attempt: attempt, StartTime: metav1.NewMicroTime(e.Now),
	}
	e.enter(v1beta1.Planning)
}

func (e *evaluation) enter(s v1beta1.State) {
	sw := e.Status.Switch
	e.Status.State = s
	sw.StateChangeTime = metav1.NewMicroTime(e.Now)
	sw.DeadlineTime = nil
	if d := e.lasts(s); d > 0 {
		deadline := metav1.NewMicroTime(e.Now.Add(d))
		sw.DeadlineTime = &deadline
	}
	e.wakeAtDeadline()
}

// lasts returns how long a state can last. Zero means without limit.
func (e *evaluation) lasts(s v1beta1.State) time.Duration {
	d := &e.Deadlines
	switch s {
	case v1beta1.Planning:
		return d.Planning
	case v1beta1.Tainted:
		return d.Tainted
	case v1beta1.Draining:
		policy := &e.Status.Switch.Policy
		lasts := policy.DrainDeadline.Duration
		if policy.AfterDeadline == v1beta1.Force {
			lasts += d.Force
		}
		// A drainDeadline of zero ends at once. It does not mean no deadline.
		return max(lasts, time.Microsecond)
	case v1beta1.Applying:
		return d.Applying
	case v1beta1.Rebooting:
		return d.Rebooting
	case v1beta1.Verifying:
		return d.Verifying
	case v1beta1.RollingBack:
		return d.RollingBack
	}
	return 0
}

func (e *evaluation) late() bool {
	d := e.Status.Switch.DeadlineTime
	return d != nil && !e.Now.Before(d.Time)
}

func (e *evaluation) wakeAtDeadline() {
	if d := e.Status.Switch.DeadlineTime; d != nil {
		e.wake(d.Time)
	}
}

// wake asks to be called again at a time, at the latest.
func (e *evaluation) wake(at time.Time) {
	if e.Wake.IsZero() || at.Before(e.Wake) {
		e.Wake = at
	}
}

// answer returns the plugin's task for one of the states of this switch, nil if there is none yet.
func (e *evaluation) answer(states ...v1beta1.State) *v1beta1.Task {
	task := e.node.Task
	if task == nil || task.SwitchID != e.Status.Switch.ID || !slices.Contains(states, task.State) {
		return nil
	}
	return task
}

// begun reports whether the plugin may have changed GPUs.
func (e *evaluation) begun() bool {
	switch e.Status.State {
	case v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack:
		return true
	}
	return e.Status.Switch.RebootRequired
}

func (e *evaluation) underWay() {
	if e.Now.Before(e.Status.Switch.StateChangeTime.Time) {
		// The clock was set back, or another controller's clock differs: the rest of a state
		// must not last longer than the whole state.
		e.enter(e.Status.State)
	}
	e.wakeAtDeadline()
	if e.begun() {
		if e.conflict() && e.Status.State != v1beta1.RollingBack {
			e.rollBack(names.ReasonOtherSystem, e.conflictText())
			return
		}
	} else if e.abandon() {
		return
	}
	switch e.Status.State {
	case v1beta1.Planning:
		e.planning()
	case v1beta1.Waiting:
		e.waiting()
	case v1beta1.Tainted:
		e.tainted()
	case v1beta1.Draining:
		e.draining()
	case v1beta1.Applying:
		e.applying()
	case v1beta1.Rebooting:
		e.rebooting()
	case v1beta1.Verifying:
		e.verifying()
	case v1beta1.RollingBack:
		e.rollingBack()
	}
}
