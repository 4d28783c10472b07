package state

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	firstRetry = time.Minute
	lastRetry  = 30 * time.Minute
	// keptRecords is the length of the history.
	keptRecords = 10
)

// retryAfter is the wait after a failed attempt.
func retryAfter(attempt int32) time.Duration {
	wait := firstRetry
	for ; attempt > 1 && wait < lastRetry; attempt-- {
		wait *= 2
	}
	return min(wait, lastRetry)
}

// triedAgain reports whether a switch that failed for a reason is retried after a while. Retrying
// for other reasons would disturb pods for nothing until somebody intervenes.
func triedAgain(sw *v1alpha1.Switch, reason string) bool {
	switch reason {
	case names.ReasonProfileDoesNotFit, names.ReasonRebootRequired, names.ReasonNeedsReset, names.ReasonDrainBlocked:
		return false
	case names.ReasonDrainDeadline:
		if sw.Evicted > 0 {
			return false
		}
	}
	// Otherwise a GPU that fails after each boot would reboot the node forever.
	return !sw.Rebooted
}

// stop rolls a switch back if it has begun to change GPUs, and fails it otherwise.
func (t *turn) stop(reason, message string) {
	if t.begun() {
		t.rollBack(reason, message)
		return
	}
	t.fail(v1alpha1.ResultFailed, reason, message)
}

// rollBack has the plugin restore the previous profile.
func (t *turn) rollBack(reason, message string) {
	t.because(reason, message)
	t.enter(v1alpha1.RollingBack)
}

// because records why a switch ends without success. The message is limited because it can come
// from the plugin, and the history keeps several.
func (t *turn) because(reason, message string) {
	t.Status.Switch.Reason, t.Status.Switch.Message = ReasonWord(reason), text.Cut(message, mostMessage)
}

// fail ends a switch without success.
func (t *turn) fail(result, reason, message string) {
	sw := t.Status.Switch
	t.because(reason, message)
	t.record(result)
	if triedAgain(sw, reason) {
		t.retryLater()
	} else {
		sw.Retry, t.Wake = nil, time.Time{}
	}
	// The switch is retried when the input of the plugin's plans changes.
	sw.InputHash = t.node.InputHash
	t.Status.State = v1alpha1.Failed
	sw.Since, sw.Deadline, sw.Paused = metav1.NewMicroTime(t.Now), nil, nil
}

// retryLater schedules the next attempt. The wait grows with each.
func (t *turn) retryLater() {
	retry := metav1.NewMicroTime(t.Now.Add(retryAfter(t.Status.Switch.Attempt)))
	t.Status.Switch.Retry, t.Wake = &retry, retry.Time
}

// succeed ends a switch whose profile is applied.
func (t *turn) succeed() {
	t.record(v1alpha1.ResultSucceeded)
	to := t.Status.Switch.To
	t.Status.Applied = &to
	t.rest()
}

// rest makes the node idle.
func (t *turn) rest() {
	t.Status.State, t.Status.Switch = v1alpha1.Idle, nil
	t.Wake = time.Time{}
}

// again begins the next attempt. If pods were evicted for the last one, a claim may have taken
// the GPUs that they left, so free devices are not published from the start.
func (t *turn) again(desired *v1alpha1.ProfileSnapshot) {
	last := t.Status.Switch
	t.begin(desired, last.Attempt+1)
	t.Status.Switch.Withhold = last.Evicted > 0
}

// record adds a switch to the history.
func (t *turn) record(result string) {
	sw := t.Status.Switch
	r := v1alpha1.SwitchRecord{
		From: sw.From.Profile, To: sw.To.Profile, Result: result, Reason: sw.Reason, Message: sw.Message,
		Started: sw.Started, Duration: metav1.Duration{Duration: t.Now.Sub(sw.Started.Time).Round(time.Millisecond)}, Evicted: sw.Evicted,
		Repair: sw.From.Hash == sw.To.Hash,
	}
	if sw.From.Profile == "" && sw.To.Profile == "" && result == v1alpha1.ResultSucceeded {
		return // The first report of a node without a profile is not a switch.
	}
	t.Record = &r
	old := t.Status.History
	if len(old) > 0 && old[0].To == r.To && old[0].Result == r.Result && old[0].Reason == r.Reason && old[0].Repair == r.Repair && result != v1alpha1.ResultSucceeded {
		// Repeated failures of the same kind keep one record.
		old = old[1:]
	}
	t.Status.History = append([]v1alpha1.SwitchRecord{r}, old...)
	t.Status.History = t.Status.History[:min(len(t.Status.History), keptRecords)]
}

// abandon cancels a switch that has not changed anything yet, if another profile is desired
// now.
func (t *turn) abandon() bool {
	sw := t.Status.Switch
	desired := t.Choice.Desired
	switch {
	case t.conflict():
		t.because(names.ReasonConflict, t.conflictText())
	case desired == nil && t.Choice.Missing != "" && t.Choice.Missing == sw.To.Profile:
		// The profile was deleted or broken, but the switch has a copy of it.
		return false
	case desired == nil:
		t.because(t.Choice.Keep, t.Choice.Message)
	case desired.Hash != sw.To.Hash:
		what := "is desired now"
		if desired.Profile == sw.To.Profile {
			what = "was changed"
		}
		t.because(names.ReasonSuperseded, ProfileText(desired.Profile)+" "+what)
	default:
		t.renew(desired)
		return false
	}
	if disturbing(t.Status.State) {
		t.record(v1alpha1.ResultFailed)
	}
	kept := t.Status.OrdersTaints()
	t.rest()
	t.idle()
	if next := t.Status.Switch; next != nil && kept {
		// GPUs that were drained stay tainted until the new profile is planned. Otherwise
		// their pods would return and be evicted again.
		next.GPUs, next.Shrinking, next.Order = sw.GPUs, sw.Shrinking, sw.Order
		next.Withhold = sw.Withhold
		next.Paused, next.NodeTaint = sw.Paused, sw.NodeTaint
	}
	return true
}

// renew updates what may change during a switch: the source of the profile, and the policy.
func (t *turn) renew(desired *v1alpha1.ProfileSnapshot) {
	sw := t.Status.Switch
	sw.To.Source, sw.To.Plan = desired.Source, desired.Plan
	if equality.Semantic.DeepEqual(sw.Policy, t.Choice.Policy) {
		return
	}
	sw.Policy = t.Choice.Policy
	if t.Status.State == v1alpha1.Draining {
		deadline := metav1.NewMicroTime(sw.Since.Add(t.lasts(v1alpha1.Draining)))
		sw.Deadline = &deadline
	}
}

func (t *turn) failed() {
	sw := t.Status.Switch
	desired := t.desired()
	switch {
	case sw == nil || desired == nil:
		t.rest()
	case t.Status.Applied != nil && t.Status.Applied.Hash == desired.Hash && t.node.Applied == desired.Hash:
		t.rest()
	case desired.Hash != sw.To.Hash:
		t.begin(desired, 1)
	case !equality.Semantic.DeepEqual(sw.Policy, t.Choice.Policy):
		t.begin(desired, 1)
	case len(sw.Blockers) > 0:
		t.unblock(desired)
	case sw.Retry == nil && !sw.Rebooted && sw.InputHash != t.node.InputHash:
		t.begin(desired, 1)
	case sw.Retry != nil && !t.Now.Before(sw.Retry.Time):
		t.again(desired)
	case sw.Retry != nil:
		t.boundRetry()
		t.wake(sw.Retry.Time)
	}
}
