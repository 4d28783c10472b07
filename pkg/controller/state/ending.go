package state

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	firstRetry = time.Minute
	lastRetry  = 30 * time.Minute
	// keptRecords is the length of the history.
	keptRecords = 10
)

func retryAfter(attempt int32) time.Duration {
	wait := firstRetry
	for ; attempt > 1 && wait < lastRetry; attempt-- {
		wait *= 2
	}
	return min(wait, lastRetry)
}

// triedAgain reports whether a switch that failed for a reason is retried after a while. Retrying
// for other reasons would disturb pods for nothing until somebody intervenes.
func triedAgain(sw *v1beta1.Switch, reason string) bool {
	switch reason {
	case names.ReasonProfileDoesNotFit, names.ReasonRebootRequired, names.ReasonDrainBlocked:
		return false
	case names.ReasonDrainDeadline:
		if sw.EvictedPodCount > 0 {
			return false
		}
	}
	// Otherwise a GPU that fails after each boot would reboot the node forever.
	return !sw.RebootRequested
}

// stop rolls a switch back if it has begun to change GPUs, and fails it otherwise.
func (e *evaluation) stop(reason, message string) {
	if e.begun() {
		e.rollBack(reason, message)
		return
	}
	e.fail(v1beta1.ResultNotApplied, reason, message)
}

// rollBack has the plugin restore the previous profile.
func (e *evaluation) rollBack(reason, message string) {
	e.because(reason, message)
	e.enter(v1beta1.RollingBack)
}

// because records why a switch ends without success. The message is limited because it can come
// from the plugin, and the history keeps several.
func (e *evaluation) because(reason, message string) {
	e.Status.Switch.Reason, e.Status.Switch.Message = ReasonWord(reason), text.Cut(message, v1beta1.MaxReportText)
}

// fail ends a switch without success.
func (e *evaluation) fail(result v1beta1.SwitchResult, reason, message string) {
	sw := e.Status.Switch
	e.because(reason, message)
	e.record(result)
	if triedAgain(sw, reason) {
		e.retryLater()
	} else {
		sw.RetryTime, e.Wake = nil, time.Time{}
	}
	// The switch is retried when the input of the plugin changes.
	sw.InputHash = e.node.InputHash
	e.Status.State = v1beta1.Failed
	sw.StateChangeTime, sw.DeadlineTime, sw.PausedLabels = metav1.NewMicroTime(e.Now), nil, nil
}

// retryLater schedules the next attempt. The wait grows with each.
func (e *evaluation) retryLater() {
	retry := metav1.NewMicroTime(e.Now.Add(retryAfter(e.Status.Switch.Attempt)))
	e.Status.Switch.RetryTime, e.Wake = &retry, retry.Time
}

// succeed ends a switch whose profile is applied.
func (e *evaluation) succeed() {
	e.record(v1beta1.ResultSucceeded)
	to := e.Status.Switch.To
	e.Status.Applied = &to
	e.rest()
}

func (e *evaluation) rest() {
	e.Status.State, e.Status.Switch = v1beta1.Idle, nil
	e.Wake = time.Time{}
}

// again begins the next attempt. If pods were evicted for the last one, a claim may have taken
// the GPUs that they left, so free devices are not published from the start.
func (e *evaluation) again(desired *v1beta1.ProfileSnapshot) {
	last := e.Status.Switch
	e.begin(desired, last.Attempt+1)
	e.Status.Switch.Withhold = last.EvictedPodCount > 0
}

func (e *evaluation) record(result v1beta1.SwitchResult) {
	sw := e.Status.Switch
	r := v1beta1.SwitchRecord{
		FromProfileName: sw.From.ProfileName, ToProfileName: sw.To.ProfileName, Result: result, Reason: sw.Reason, Message: text.Cut(sw.Message, v1beta1.MaxRecordMessage),
		StartTime: sw.StartTime, Duration: metav1.Duration{Duration: e.Now.Sub(sw.StartTime.Time).Round(time.Millisecond)}, EvictedPodCount: sw.EvictedPodCount,
		Repair: sw.From.Hash == sw.To.Hash,
	}
	if sw.From.ProfileName == "" && sw.To.ProfileName == "" && result == v1beta1.ResultSucceeded {
		return // The first report of a node without a profile is not a switch.
	}
	e.Record = &r
	old := e.Status.History
	if len(old) > 0 && old[0].ToProfileName == r.ToProfileName && old[0].Result == r.Result && old[0].Reason == r.Reason && old[0].Repair == r.Repair && result != v1beta1.ResultSucceeded {
		// Repeated failures of the same kind keep one record.
		old = old[1:]
	}
	e.Status.History = append([]v1beta1.SwitchRecord{r}, old...)
	e.Status.History = e.Status.History[:min(len(e.Status.History), keptRecords)]
}

// abandon cancels a switch that has not changed anything yet, if another profile is desired
// now.
func (e *evaluation) abandon() bool {
	sw := e.Status.Switch
	desired := e.Choice.Desired
	switch {
	case e.conflict():
		e.because(names.ReasonOtherSystem, e.conflictText())
	case desired == nil && e.Choice.Missing != "" && e.Choice.Missing == sw.To.ProfileName:
		// The profile was deleted or broken, but the switch has a copy of it.
		return false
	case desired == nil:
		e.because(e.Choice.Keep, e.Choice.Message)
	case desired.Hash != sw.To.Hash:
		what := "is desired now"
		if desired.ProfileName == sw.To.ProfileName {
			what = "was changed"
		}
		e.because(names.ReasonSuperseded, text.Profile(desired.ProfileName)+" "+what)
	default:
		e.renew(desired)
		return false
	}
	if disturbing(e.Status.State) {
		e.record(v1beta1.ResultNotApplied)
	}
	kept := e.Status.RequestsTaints()
	e.rest()
	e.idle()
	if next := e.Status.Switch; next != nil && kept {
		// GPUs that were drained stay tainted until the changes for the new profile are known. Otherwise
		// their pods would return and be evicted again.
		next.GPUs, next.ShrinkingGPUs, next.TaintGeneration = sw.GPUs, sw.ShrinkingGPUs, sw.TaintGeneration
		next.Withhold = sw.Withhold
		next.PausedLabels, next.NodeTaintRequired = sw.PausedLabels, sw.NodeTaintRequired
	}
	return true
}

// renew updates what may change during a switch: the source of the profile, and the policy.
func (e *evaluation) renew(desired *v1beta1.ProfileSnapshot) {
	sw := e.Status.Switch
	sw.To.Source, sw.To.PlanName = desired.Source, desired.PlanName
	if equality.Semantic.DeepEqual(sw.Policy, e.Choice.Policy) {
		return
	}
	sw.Policy = e.Choice.Policy
	if e.Status.State == v1beta1.Draining {
		deadline := metav1.NewMicroTime(sw.StateChangeTime.Add(e.lasts(v1beta1.Draining)))
		sw.DeadlineTime = &deadline
	}
}

func (e *evaluation) failed() {
	sw := e.Status.Switch
	desired := e.desired()
	switch {
	case sw == nil || desired == nil:
		e.rest()
	case e.Status.Applied != nil && e.Status.Applied.Hash == desired.Hash && e.node.AppliedHash == desired.Hash:
		e.rest()
	case desired.Hash != sw.To.Hash:
		e.begin(desired, 1)
	case !equality.Semantic.DeepEqual(sw.Policy, e.Choice.Policy):
		e.begin(desired, 1)
	case len(sw.Blockers) > 0:
		e.unblock(desired)
	case sw.RetryTime == nil && !sw.RebootRequested && sw.InputHash != e.node.InputHash:
		e.begin(desired, 1)
	case sw.RetryTime != nil && !e.Now.Before(sw.RetryTime.Time):
		e.again(desired)
	case sw.RetryTime != nil:
		e.boundRetry()
		e.wake(sw.RetryTime.Time)
	}
}
