package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// lead begins as soon as the controller leads, also where there is no node to look at:
// the metrics tell that it works.
func (r *Reconciler) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.begin(ctx)
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "The controller leads, and cannot begin; trying again")
		select {
		case <-ctx.Done():
		case <-time.After(lastErrorRetry):
		}
	}
	return nil
}

// begin fills the budget from the API server, once, before the first node is looked
// at.
func (r *Reconciler) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	if r.memory.begun {
		return nil
	}
	var all v1alpha1.GPUNodeList
	if err := r.Reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list the GPUNodes to see which are being switched: %w", err)
	}
	var taken []string
	for i := range all.Items {
		if s := &all.Items[i].Status; s.OrdersTaints() || !r.untaintDeadline(s).IsZero() {
			taken = append(taken, all.Items[i].Name)
		}
	}
	r.Budget.Fill(taken, len(all.Items))
	r.memory.begun = true
	return nil
}

// memory is what a controller remembers while it runs, and can do without.
type memory struct {
	// mu guards what follows.
	mu sync.Mutex
	// begun: the budget was filled.
	begun bool
	// counted is when the nodes were counted.
	counted time.Time
	// last is when each node's status was written last.
	last map[string]time.Time
	// clashed counts each node's rounds in a row that met a conflict.
	clashed map[string]int
	// left counts the pods of each node that were asked to leave and that no status
	// tells of yet.
	left map[string]int32
	// looks says when the blockers of each node's failed switch are looked at again.
	looks map[string]blockerLook
}

// blockerLook is when blockers are looked at again, and how long after the last time.
type blockerLook struct {
	last, next time.Time
	wait       time.Duration
}

const (
	// firstLook and lastLook are how long after one look at blockers the next is; the
	// wait doubles from one to the other.
	firstLook = time.Minute
	lastLook  = 30 * time.Minute
	// leastLook is the least time between two looks, however often something happens to
	// a claim.
	leastLook = 5 * time.Second
)

// lookAt is when to look at a node's blockers, zero: at once.
func (m *memory) lookAt(node string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looks[node].next
}

// looked notes that a node's blockers were looked at, and says when to do so again.
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

// lookSoon has a node's blockers looked at soon: something has happened to a claim.
func (m *memory) lookSoon(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.looks[node]; ok {
		l.next = l.last.Add(leastLook)
		m.looks[node] = l
	}
}

// unblocked forgets when a node's blockers were looked at.
func (m *memory) unblocked(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.looks, node)
}

const (
	// tellEvery and tellAtMost are how often a message that has changed is written: in
	// the beginning of a state often, later less so, each time after half as long
	// again as the state has lasted.
	tellEvery  = 5 * time.Second
	tellAtMost = 10 * time.Minute
)

// leads tells whether the controller has begun to look at nodes.
func (m *memory) leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun
}

// mayTell is when a message may be written again.
func (m *memory) mayTell(node string, now, since time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.last[node]
	if !ok {
		return now
	}
	wait := tellEvery
	if !since.IsZero() {
		wait = min(max(wait, last.Sub(since)/2), tellAtMost)
	}
	return last.Add(wait)
}

// told notes that a node's status was written.
func (m *memory) told(node string, now time.Time, switching bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[string]time.Time{}
	}
	m.last[node] = now
	delete(m.left, node)
	if !switching {
		// A node that rests has its next message written at once.
		delete(m.last, node)
	}
}

// evicted counts pods that were asked to leave, and says how many it has counted.
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

// manyClashes is more conflicts in a row than come of several writers.
const manyClashes = 10

// clashes tells whether a node's round has met a conflict after which it is looked again
// at once. Many in a row are an error as others are: somebody's webhook may answer so.
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
