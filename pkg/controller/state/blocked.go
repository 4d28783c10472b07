package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

const (
	// blockedPatience is how long pods that cannot leave are looked at before the switch
	// is given up: a disruption budget allows nothing for a moment while the API server
	// counts its pods.
	blockedPatience = 10 * time.Second
	// mostBlockers is how many are written down.
	mostBlockers = 16
)

// blocked ends a switch because of pods that cannot leave. It is not tried again while
// they cannot: everybody else on the GPUs would be evicted again for nothing.
func (t *turn) blocked(reason, message string, by []v1alpha1.Blocker) {
	sw := t.Status.Switch
	if t.begun() {
		t.rollBack(reason, message)
		return
	}
	t.fail(v1alpha1.ResultFailed, reason, message)
	sw.Blockers = by[:min(len(by), mostBlockers)]
	if len(by) == 0 || reason == v1alpha1.ReasonDrainDeadline || slices.ContainsFunc(by, func(b v1alpha1.Blocker) bool { return b.UID == "" }) {
		// Pods were evicted, or it cannot be asked whether what blocks can leave: not at
		// once, whatever happens to the blockers.
		t.retryLater()
	}
}

// unblock begins a failed switch again once all that blocked it can leave.
func (t *turn) unblock(desired *v1alpha1.ProfileSnapshot) {
	sw := t.Status.Switch
	if sw.Retry != nil && t.Now.Before(sw.Retry.Time) {
		t.boundRetry()
		t.wake(sw.Retry.Time)
		return
	}
	if !t.Looked {
		if !t.LookAgain.IsZero() {
			t.wake(t.LookAgain)
		}
		return
	}
	if len(t.Blockers) == 0 {
		t.begin(desired, sw.Attempt+1)
		return
	}
	sw.Retry, sw.Blockers = nil, t.Blockers
	if !t.LookAgain.IsZero() {
		t.wake(t.LookAgain)
	}
}

// boundRetry keeps the next try from being far away where the clock was set back.
func (t *turn) boundRetry() {
	sw := t.Status.Switch
	if latest := t.Now.Add(retryAfter(sw.Attempt)); sw.Retry.After(latest) {
		sw.Retry.Time = latest
	}
}

// blockedText says who cannot leave.
func (t *turn) blockedText() string {
	texts := make([]string, len(t.Blockers))
	for i := range t.Blockers {
		texts[i] = blockerText(&t.Blockers[i])
	}
	return "no pod was evicted, because these cannot be: " + list(texts)
}

func blockerText(b *v1alpha1.Blocker) string {
	if b.Namespace == "" {
		return fmt.Sprintf("%s is %s", b.Name, b.Message)
	}
	return fmt.Sprintf("pod %s/%s: %s", b.Namespace, b.Name, b.Message)
}

// stuck are those that were still there at the end of a drain.
func (t *turn) stuck() []v1alpha1.Blocker {
	var all []v1alpha1.Blocker
	known := map[string]bool{}
	seen := map[string]bool{}
	for i := range t.Holders {
		h := &t.Holders[i]
		if h.Pod == nil || h.Pod.Over {
			continue // What the node still holds tells when it is gone.
		}
		for _, device := range h.Devices {
			known[device] = true
		}
		if !seen[string(h.Pod.UID)] {
			seen[string(h.Pod.UID)] = true
			all = append(all, h.Blocker(h.Text(t.Now)))
		}
	}
	for _, device := range t.heldOnNode() {
		if !known[device] {
			all = append(all, v1alpha1.Blocker{Name: device, Message: heldText})
		}
	}
	return all
}
