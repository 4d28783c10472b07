package waiting

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/why"
)

// news is what a pod is to be told.
type news struct {
	pod    types.NamespacedName
	uid    types.UID
	answer why.Answer
	note   string
	// before is the event that it was told last in.
	before written
}

// written is an event that was written so often.
type written struct {
	name  string
	count int32
	at    time.Time
}

// next takes a pod out of the outbox.
func (m *memory) next(now time.Time) (pod types.NamespacedName, ok bool, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outbox.next(now)
}

// news is what there is to tell a pod now, if anything. after is how long room must last to be told.
func (m *memory) news(key types.NamespacedName, after time.Duration, now time.Time) (n news, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[key]
	if p == nil || !m.due(p, after, now) {
		return n, false
	}
	n = news{pod: key, uid: p.uid, answer: m.present(p, after, now), note: p.note, before: p.event}
	switch s := m.shapes[p.shape]; {
	case n.answer == why.DevicesFree:
		n.note = "Devices that it asks for are free on a node. If it goes on waiting, something else is the reason."
	case s != nil:
		n.note = why.Note(key.Name, s.wish.Asks, s.counts)
	}
	return n, true
}

// present is the answer for a pod now. It is DevicesFree if there is room, and the pod was told otherwise.
func (m *memory) present(p *waiting, after time.Duration, now time.Time) why.Answer {
	s := m.shapes[p.shape]
	switch {
	case p.answer != why.None || s == nil:
		return p.answer
	case s.answer == why.None && p.told != why.None && !s.roomSince.IsZero() && now.Sub(s.roomSince) >= after:
		return why.DevicesFree
	}
	return s.answer
}

// due tells whether a pod is to be told something: another answer than before, or the same one again.
func (m *memory) due(p *waiting, after time.Duration, now time.Time) bool {
	a := m.present(p, after, now)
	return a != why.None && (a != p.told || a != why.DevicesFree && now.Sub(p.event.at) >= why.Renewal)
}

// wrote notes that a pod was told something.
func (m *memory) wrote(n news, event written) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outbox.succeeded(n.pod.Namespace)
	if p := m.pods[n.pod]; p != nil && p.uid == n.uid {
		p.told, p.event = n.answer, event
	}
}

// failed notes that an event could not be written. It is tried again later.
func (m *memory) failed(n news, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outbox.failed(n.pod, now)
}

// mostLooks is how many pods that were left out are looked at again at a time.
const mostLooks = 500

// sweep has pods told for which the time has come, and lists those that were left out and may now be
// looked at.
func (m *memory) sweep(after time.Duration, now time.Time) (look []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.shapes {
		if s.parked() && !now.Before(s.parkedUntil) {
			for key := range s.pods { // this removes the shape
				m.leave(key, m.pods[key])
				m.pods[key].leftOut = true
			}
		}
	}
	for key, p := range m.pods {
		if m.due(p, after, now) {
			m.post(key)
		}
		if p.leftOut && len(look) < mostLooks && m.mayAdd(key.Namespace) {
			look = append(look, key)
		}
	}
	return look
}
