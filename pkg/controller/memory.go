package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// lead decides as soon as the controller leads, also without nodes: the metrics then
// show that it works.
func (r *Reconciler) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.beginInTime(ctx)
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "Cannot list the GPUNodes after becoming leader, retrying")
		select {
		case <-ctx.Done():
		case <-time.After(lastErrorRetry):
		}
	}
	return nil
}

// beginInTime makes the first decision, if the API server answers in time: reconciliations wait for
// it.
func (r *Reconciler) beginInTime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return r.Plans.Begin(ctx)
}

// memory is what the controller remembers while it runs. A restart may lose it.
type memory struct {
	// mu guards what follows.
	mu sync.Mutex
	// last is when the status of each node was last written.
	last map[string]time.Time
	// clashed counts the consecutive conflicts of each node.
	clashed map[string]int
	// left counts the evicted pods of each node that are not in its status yet.
	left map[string]int32
	// looks is when the blockers of the failed switch of each node are checked.
	looks map[string]blockerLook
}

// blockerLook is when blockers were and will be checked.
type blockerLook struct {
	last, next time.Time
	wait       time.Duration
}

const (
	// firstLook and lastLook are the first and the longest wait between checks of blockers.
	// The wait doubles with each check.
	firstLook = time.Minute
	lastLook  = 30 * time.Minute
	// leastLook is the shortest time between checks, however often claims change.
	leastLook = 5 * time.Second
)

// lookAt returns when to check the blockers of a node. Zero means now.
func (m *memory) lookAt(node string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looks[node].next
}

// looked records a check of the blockers of a node, and returns the time of the next one.
func (m *memory) looked(node string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.looks == nil {
		m.looks = map[string]blockerLook{}
	}
	l := m.looks[node]
	l.wait = min(max(firstLook, 2*l.wait), lastLook)
	l.last, l.next = now, now.Add(l.wait)
	m.looks[node] = l
	return l.next
}

// lookSoon has the blockers of a node checked soon: a claim changed, or the last check led to
// nothing.
func (m *memory) lookSoon(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.looks[node]; ok {
		l.next = l.last.Add(leastLook)
		m.looks[node] = l
	}
}

// unblocked forgets the checks of the blockers of a node.
func (m *memory) unblocked(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.looks, node)
}

const (
	// minMessageInterval and maxMessageInterval are the shortest and the longest wait between writes of
	// messages. In between it is half of the time that the state has lasted.
	minMessageInterval = 5 * time.Second
	maxMessageInterval = 10 * time.Minute
)

// nextMessage returns the time from which a message may be written again.
func (m *memory) nextMessage(node string, now, since time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.last[node]
	if !ok {
		return now
	}
	wait := minMessageInterval
	if !since.IsZero() {
		wait = min(max(wait, last.Sub(since)/2), maxMessageInterval)
	}
	return last.Add(wait)
}

// written records that the status of a node was written.
func (m *memory) written(node string, now time.Time, switching bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[string]time.Time{}
	}
	m.last[node] = now
	delete(m.left, node)
	if !switching {
		// The next message of an idle node is written at once.
		delete(m.last, node)
	}
}

// evicted adds to the count of evicted pods, and returns it.
func (m *memory) evicted(node string, more int32) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		m.left = map[string]int32{}
	}
	if more > 0 {
		m.left[node] += more
	}
	return m.left[node]
}

// manyClashes is more consecutive conflicts than concurrent writers cause.
const manyClashes = 10

// clashes reports whether a reconciliation met a conflict and is retried at once. Many in a row
// are treated as an error: a webhook may cause them.
func (m *memory) clashes(node string, conflict bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !conflict {
		delete(m.clashed, node)
		return false
	}
	if m.clashed == nil {
		m.clashed = map[string]int{}
	}
	m.clashed[node]++
	return m.clashed[node] <= manyClashes
}

func (m *memory) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clashed, node)
	delete(m.last, node)
	delete(m.left, node)
	delete(m.looks, node)
}
