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
	// mu guards nodes.
	mu sync.Mutex
	// nodes has the nodes of which there is anything to remember.
	nodes map[string]remembered
}

// remembered is what is known of a node beside its status.
type remembered struct {
	// written is when the status was last written. Zero means that the next message need not wait.
	written time.Time
	// clashes counts consecutive conflicts.
	clashes int
	// evicted counts the evicted pods that are not in the status yet.
	evicted int32
	// blockers is when the blockers of a failed switch are checked.
	blockers blockerLook
}

// blockerLook is when blockers were and will be checked.
type blockerLook struct {
	last, next time.Time
	wait       time.Duration
}

// of reads and changes what is remembered of a node.
func (m *memory) of(node string, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nodes[node]
	change(&r)
	if r == (remembered{}) {
		delete(m.nodes, node)
		return
	}
	if m.nodes == nil {
		m.nodes = map[string]remembered{}
	}
	m.nodes[node] = r
}

func (m *memory) forget(node string) { m.of(node, func(r *remembered) { *r = remembered{} }) }

const (
	// firstLook and lastLook are the first and the longest wait between checks of blockers.
	// The wait doubles with each check.
	firstLook = time.Minute
	lastLook  = 30 * time.Minute
	// leastLook is the shortest time between checks, however often claims change.
	leastLook = 5 * time.Second
)

// lookAt returns when to check the blockers of a node. Zero means now.
func (m *memory) lookAt(node string) (at time.Time) {
	m.of(node, func(r *remembered) { at = r.blockers.next })
	return at
}

// looked records a check of the blockers of a node, and returns the time of the next one.
func (m *memory) looked(node string, now time.Time) (next time.Time) {
	m.of(node, func(r *remembered) {
		wait := min(max(firstLook, 2*r.blockers.wait), lastLook)
		next = now.Add(wait)
		r.blockers = blockerLook{last: now, next: next, wait: wait}
	})
	return next
}

// lookSoon has the blockers of a node checked soon: a claim changed, or the last check led to
// nothing.
func (m *memory) lookSoon(node string) {
	m.of(node, func(r *remembered) {
		if !r.blockers.last.IsZero() {
			r.blockers.next = r.blockers.last.Add(leastLook)
		}
	})
}

// unblocked forgets the checks of the blockers of a node.
func (m *memory) unblocked(node string) {
	m.of(node, func(r *remembered) { r.blockers = blockerLook{} })
}

const (
	// minMessageInterval and maxMessageInterval are the shortest and the longest wait between writes of
	// messages. In between it is half of the time that the state has lasted.
	minMessageInterval = 5 * time.Second
	maxMessageInterval = 10 * time.Minute
)

// nextMessage returns the time from which a message may be written again.
func (m *memory) nextMessage(node string, now, since time.Time) time.Time {
	var last time.Time
	m.of(node, func(r *remembered) { last = r.written })
	if last.IsZero() {
		return now
	}
	wait := minMessageInterval
	if !since.IsZero() {
		wait = min(max(wait, last.Sub(since)/2), maxMessageInterval)
	}
	return last.Add(wait)
}

// written records that the status of a node was written. The next message of an idle node does not wait.
func (m *memory) written(node string, now time.Time, switching bool) {
	m.of(node, func(r *remembered) {
		r.evicted, r.written = 0, time.Time{}
		if switching {
			r.written = now
		}
	})
}

// evicted adds to the count of evicted pods, and returns it.
func (m *memory) evicted(node string, more int32) (all int32) {
	m.of(node, func(r *remembered) {
		r.evicted += more
		all = r.evicted
	})
	return all
}

// manyClashes is more consecutive conflicts than concurrent writers cause.
const manyClashes = 10

// clashes reports whether a reconciliation met a conflict and is retried at once. Many in a row
// are treated as an error: a webhook may cause them.
func (m *memory) clashes(node string, conflict bool) (again bool) {
	m.of(node, func(r *remembered) {
		r.clashes++
		if !conflict {
			r.clashes = 0
		}
		again = conflict && r.clashes <= manyClashes
	})
	return again
}
