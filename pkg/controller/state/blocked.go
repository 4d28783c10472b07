package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

const (
	// blockedPatience is how long pods can refuse eviction before the switch is canceled: a
	// disruption budget allows no eviction while its controller counts pods.
	blockedPatience = 10 * time.Second
	// mostBlockers limits the blockers in a status.
	mostBlockers = 16
)

// blocked ends a switch because of pods that do not leave. It is not retried while they cannot
// be evicted, and after an eviction not for anything that a tenant can change: whoever owns a pod
// that does not leave could have others evicted again and again.
func (t *turn) blocked(reason, message string, by []v1alpha1.Blocker) {
	sw := t.Status.Switch
	if t.begun() {
		t.rollBack(reason, message)
		return
	}
	t.fail(v1alpha1.ResultFailed, reason, message)
	isDevice := func(b v1alpha1.Blocker) bool { return b.UID == "" }
	if sw.Evicted > 0 && slices.ContainsFunc(by, func(b v1alpha1.Blocker) bool { return !isDevice(b) }) {
		return
	}
	sw.Blockers = by[:min(len(by), mostBlockers)]
	if len(by) == 0 || reason == names.ReasonDrainDeadline || slices.ContainsFunc(by, isDevice) {
		// A dry run does not show whether they leave: do not retry at once.
		t.retryLater()
	}
}

// unblock retries a failed switch once all of its blockers can leave.
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
		t.again(desired)
		return
	}
	sw.Retry, sw.Blockers = nil, t.Blockers
	if !t.LookAgain.IsZero() {
		t.wake(t.LookAgain)
	}
}

// boundRetry limits the wait for the next attempt if the clock was set back.
func (t *turn) boundRetry() {
	sw := t.Status.Switch
	if latest := t.Now.Add(retryAfter(sw.Attempt)); sw.Retry.After(latest) {
		sw.Retry.Time = latest
	}
}

// blockedText lists the blockers.
func (t *turn) blockedText() string {
	texts := make([]string, len(t.Blockers))
	for i := range t.Blockers {
		texts[i] = blockerText(&t.Blockers[i])
	}
	if t.Status.Switch.Evicted > 0 {
		return "pods came that cannot be evicted: " + list(texts)
	}
	return "no pod was evicted, because these cannot be: " + list(texts)
}

func blockerText(b *v1alpha1.Blocker) string {
	if b.Namespace == "" {
		return fmt.Sprintf("%s is %s", b.Name, b.Message)
	}
	return fmt.Sprintf("pod %s/%s: %s", b.Namespace, b.Name, b.Message)
}

// stuck are the pods and devices that remain at the end of a drain.
func (t *turn) stuck() []v1alpha1.Blocker {
	var all []v1alpha1.Blocker
	known := map[string]bool{}
	seen := map[string]bool{}
	for i := range t.Holders {
		h := &t.Holders[i]
		if h.Pod == nil || h.Pod.Over {
			continue // The node reports its devices until they are released.
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
