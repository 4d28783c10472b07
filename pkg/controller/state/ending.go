package state

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	firstRetry = time.Minute
	lastRetry  = 30 * time.Minute
	// keptRecords is how many switches the history has.
	keptRecords = 10
)

// retryAfter is how long after a failed try the next begins.
func retryAfter(attempt int32) time.Duration {
	wait := firstRetry
	for ; attempt > 1 && wait < lastRetry; attempt-- {
		wait *= 2
	}
	return min(wait, lastRetry)
}

// triedAgain tells whether a switch that failed for a reason is tried again by itself
// after a while. The others would disturb pods for nothing until somebody does something.
func triedAgain(sw *v1alpha1.Switch, reason string) bool {
	switch reason {
	case v1alpha1.ReasonProfileDoesNotFit, v1alpha1.ReasonRebootRequired, v1alpha1.ReasonNeedsReset, v1alpha1.ReasonDrainBlocked:
		return false
	}
	// A GPU that fails after each boot would have the node reboot for ever.
	return !sw.Rebooted
}

// stop ends a switch in a way that suits how far it is.
func (t *turn) stop(reason, message string) {
	if t.begun() {
		t.rollBack(reason, message)
		return
	}
	t.fail(v1alpha1.ResultFailed, reason, message)
}

// rollBack has the plugin put back what was.
func (t *turn) rollBack(reason, message string) {
	t.because(reason, message)
	t.enter(v1alpha1.RollingBack)
}

// because writes down why a switch ends without its profile. Much of it comes from the
// plugin, and is kept in the history ten times.
func (t *turn) because(reason, message string) {
	t.Status.Switch.Reason, t.Status.Switch.Message = ReasonWord(reason), text.Cut(message, mostMessage)
}

// fail ends a switch whose profile is not reached.
func (t *turn) fail(result, reason, message string) {
	sw := t.Status.Switch
	t.because(reason, message)
	t.record(result)
	if triedAgain(sw, reason) {
		t.retryLater()
	} else {
		sw.Retry, t.Wake = nil, time.Time{}
	}
	// What the plugin could tell from then, to notice when that is something else.
	sw.InputHash = t.node.InputHash
	t.Status.State = v1alpha1.Failed
	sw.Since, sw.Deadline, sw.Paused = metav1.NewMicroTime(t.Now), nil, nil
}

// retryLater has the next try begin after a while, which is longer from try to try.
func (t *turn) retryLater() {
	retry := metav1.NewMicroTime(t.Now.Add(retryAfter(t.Status.Switch.Attempt)))
	t.Status.Switch.Retry, t.Wake = &retry, retry.Time
}

// succeed ends a switch whose profile is reached.
func (t *turn) succeed() {
	t.record(v1alpha1.ResultSucceeded)
	to := t.Status.Switch.To
	t.Status.Applied = &to
	t.rest()
}

// rest ends a switch, if there is one, with nothing to be done.
func (t *turn) rest() {
	t.Status.State, t.Status.Switch = v1alpha1.Idle, nil
	t.Wake = time.Time{}
}

// record writes a switch into the history.
func (t *turn) record(result string) {
	sw := t.Status.Switch
	r := v1alpha1.SwitchRecord{
		From: sw.From.Profile, To: sw.To.Profile, Result: result, Reason: sw.Reason, Message: sw.Message,
		Started: sw.Started, Duration: metav1.Duration{Duration: t.Now.Sub(sw.Started.Time).Round(time.Millisecond)}, Evicted: sw.Evicted,
	}
	if sw.From.Profile == "" && sw.To.Profile == "" && result == v1alpha1.ResultSucceeded {
		return // The node and the controller have met, no more.
	}
	t.Record = &r
	old := t.Status.History
	if len(old) > 0 && old[0].To == r.To && old[0].Result == r.Result && old[0].Reason == r.Reason && result != v1alpha1.ResultSucceeded {
		// A switch that fails again and again keeps one place.
		old = old[1:]
	}
	t.Status.History = append([]v1alpha1.SwitchRecord{r}, old...)
	t.Status.History = t.Status.History[:min(len(t.Status.History), keptRecords)]
}

// abandon gives up a switch of which nothing was applied yet, where something else is
// wanted by now.
func (t *turn) abandon() bool {
	sw := t.Status.Switch
	desired := t.Choice.Desired
	switch {
	case t.conflict():
		t.because(v1alpha1.ReasonConflict, t.conflictText())
	case desired == nil && t.Choice.Keep == v1alpha1.ReasonProfileNotFound && t.Choice.Missing == sw.To.Profile:
		// The profile was deleted; what it said was copied.
		return false
	case desired == nil:
		t.because(t.Choice.Keep, t.Choice.Message)
	case desired.Hash != sw.To.Hash:
		what := "is desired now"
		if desired.Profile == sw.To.Profile {
			what = "was changed"
		}
		t.because(v1alpha1.ReasonSuperseded, ProfileText(desired.Profile)+" "+what)
	default:
		t.renew(desired.Source)
		return false
	}
	if disturbing(t.Status.State) {
		t.record(v1alpha1.ResultFailed)
	}
	kept := t.Status.OrdersTaints()
	t.rest()
	t.idle()
	if next := t.Status.Switch; next != nil && kept {
		// The GPUs that were drained stay empty until it is known what the new profile
		// wants of them. Otherwise their pods would come back to be evicted again.
		next.GPUs, next.Shrinking, next.Order = sw.GPUs, sw.Shrinking, sw.Order
		next.Withhold = sw.Withhold
		next.Paused, next.NodeTaint = sw.Paused, sw.NodeTaint
	}
	return true
}

// renew takes over what may change on the way: who wants it, and the policy.
func (t *turn) renew(source v1alpha1.Source) {
	sw := t.Status.Switch
	sw.To.Source = source
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
		t.begin(desired, sw.Attempt+1)
	case sw.Retry != nil:
		t.boundRetry()
		t.wake(sw.Retry.Time)
	}
}
