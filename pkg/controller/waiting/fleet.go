package waiting

import (
	"time"

	"github.com/tranche-dev/tranche/pkg/why"
)

// fleet are the nodes with GPUs. A node has a number as long as it is there.
type fleet struct {
	number map[string]int
	// free are numbers that are not used any more.
	free []int
	// dirty are nodes that have changed since they were judged.
	dirty map[string]bool
}

func (f *fleet) add(name string) int {
	if n, ok := f.number[name]; ok {
		return n
	}
	n := len(f.number)
	if last := len(f.free) - 1; last >= 0 {
		n, f.free = f.free[last], f.free[:last]
	}
	f.number[name] = n
	return n
}

// none is the number of no node.
const none = -1

// of is the number of a node, none if it is not known to have GPUs.
func (f *fleet) of(name string) int {
	if n, ok := f.number[name]; ok {
		return n
	}
	return none
}

// setNodes says which nodes there are.
func (m *memory) setNodes(names []string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
		m.nodes.add(name)
	}
	for name := range m.nodes.number {
		if !there[name] {
			m.removeNode(name)
		}
	}
	for _, s := range m.shapes {
		m.settle(s, now)
	}
}

// changed notes that a node is to be judged for all shapes.
func (m *memory) changed(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes.dirty[node] = true
}

// toJudge are the shapes that a node is to be judged for: those for which it has not been judged since it
// changed. Nodes are not judged for pods that have room elsewhere.
func (m *memory) toJudge(node string) (out []*shape) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, dirty := m.nodes.of(node), m.nodes.dirty[node]
	delete(m.nodes.dirty, node)
	for _, s := range m.shapes {
		switch {
		case s.parked():
		case s.fits(n):
			if dirty {
				s.set(n, unjudged)
			}
		case dirty || s.at(n) == unjudged:
			out = append(out, s)
		}
	}
	return out
}

// judged sets the verdict about a node for a shape, which took a while. It tells whether other nodes are to
// be judged now, because none has room any more.
func (m *memory) judged(s *shape, node string, v verdict, took time.Duration, now time.Time) (others bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shapes[s.wish.Key] != s {
		return false
	}
	s.spent += took
	s.judged++
	if s.tooSlow(took, m.patience.after(s.parkedBefore)) {
		m.park(s, now)
		return false
	}
	had := s.fits(none)
	s.set(m.nodes.add(node), v)
	m.settle(s, now)
	return had && !s.fits(none)
}

// settle has the pods of a shape told if its answer is another one now.
func (m *memory) settle(s *shape, now time.Time) {
	if !s.parked() && s.settle(len(m.nodes.number), now) && s.answer != why.None {
		for key := range s.pods {
			m.post(key)
		}
	}
}

// gone removes a node. It tells whether other nodes are to be judged now, because none has room any more.
func (m *memory) gone(node string, now time.Time) (others bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := map[*shape]bool{}
	for _, s := range m.shapes {
		had[s] = s.fits(none)
	}
	m.removeNode(node)
	for s, room := range had {
		m.settle(s, now)
		others = others || room && !s.fits(none)
	}
	return others
}

func (m *memory) removeNode(name string) {
	n, ok := m.nodes.number[name]
	delete(m.nodes.dirty, name)
	if !ok {
		return
	}
	delete(m.nodes.number, name)
	m.nodes.free = append(m.nodes.free, n)
	for _, s := range m.shapes {
		s.set(n, unjudged)
	}
}
