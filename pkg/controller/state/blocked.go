package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
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
func (e *evaluation) blocked(reason, message string, by []v1beta1.Blocker) {
	sw := e.Status.Switch
	if e.begun() {
		e.rollBack(reason, message)
		return
	}
	e.fail(v1beta1.ResultNotApplied, reason, message)
	isDevice := func(b v1beta1.Blocker) bool { return b.Kind == v1beta1.BlockerDevice }
	if sw.EvictedPodCount > 0 && slices.ContainsFunc(by, func(b v1beta1.Blocker) bool { return !isDevice(b) }) {
		return
	}
	sw.Blockers = by[:min(len(by), mostBlockers)]
	if len(by) == 0 || reason == names.ReasonDrainDeadline || slices.ContainsFunc(by, isDevice) {
		// A dry run does not show whether they leave: do not retry at once.
		e.retryLater()
	}
}

// unblock retries a failed switch once all of its blockers can leave.
func (e *evaluation) unblock(desired *v1beta1.ProfileSnapshot) {
	sw := e.Status.Switch
	if sw.RetryTime != nil && e.Now.Before(sw.RetryTime.Time) {
		e.boundRetry()
		e.wake(sw.RetryTime.Time)
		return
	}
	if !e.Looked {
		if !e.LookAgain.IsZero() {
			e.wake(e.LookAgain)
		}
		return
	}
	if len(e.Blockers) == 0 {
		e.again(desired)
		return
	}
	sw.RetryTime, sw.Blockers = nil, e.Blockers
	if !e.LookAgain.IsZero() {
		e.wake(e.LookAgain)
	}
}

// boundRetry limits the wait for the next attempt if the clock was set back.
func (e *evaluation) boundRetry() {
	sw := e.Status.Switch
	if latest := e.Now.Add(retryAfter(sw.Attempt)); sw.RetryTime.After(latest) {
		sw.RetryTime.Time = latest
	}
}

func (e *evaluation) blockedText() string {
	texts := make([]string, len(e.Blockers))
	for i := range e.Blockers {
		texts[i] = blockerText(&e.Blockers[i])
	}
	if e.Status.Switch.EvictedPodCount > 0 {
		return "pods came that cannot be evicted: " + list(texts)
	}
	return "no pod was evicted, because these cannot be: " + list(texts)
}

func blockerText(b *v1beta1.Blocker) string {
	if b.Kind == v1beta1.BlockerDevice {
		return fmt.Sprintf("%s is %s", b.Name, b.Message)
	}
	return fmt.Sprintf("pod %s/%s: %s", b.Namespace, b.Name, b.Message)
}

// stuck returns the pods and devices that remain at the end of a drain.
func (e *evaluation) stuck() []v1beta1.Blocker {
	var all []v1beta1.Blocker
	known := map[string]bool{}
	seen := map[string]bool{}
	for i := range e.Holders {
		h := &e.Holders[i]
		if h.Pod == nil || h.Pod.Over {
			continue // The node reports its devices until they are released.
		}
		for _, device := range h.Devices {
			known[device] = true
		}
		if !seen[string(h.Pod.UID)] {
			seen[string(h.Pod.UID)] = true
			all = append(all, h.Blocker(h.Text(e.Now)))
		}
	}
	for _, device := range e.heldOnNode() {
		if !known[device] {
			all = append(all, v1beta1.Blocker{Kind: v1beta1.BlockerDevice, Name: device, Message: heldText})
		}
	}
	return all
}
