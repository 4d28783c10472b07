package waiting

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/why"
)

// verdict is what is known of a node for a shape: one of these, or an answer.
type verdict uint8

const (
	unjudged verdict = iota
	room
	// unclear: the scheduler could not tell either.
	unclear
	firstAnswer
)

// answers are the answers about nodes, in the order of their verdicts.
var answers = why.Answers()

// mostVerdicts is enough for all answers. A test compares.
const mostVerdicts = 16

func verdictOf(a why.Answer, known bool) verdict {
	switch {
	case !known:
		return unclear
	case a == why.None:
		return room
	}
	for i := range answers {
		if answers[i] == a {
			return firstAnswer + verdict(i)
		}
	}
	return unclear
}

// shape is what pods ask for, and what is known of the nodes for it.
type shape struct {
	wish *why.Wish
	// by is the namespace of the pod that asked for it first.
	by   string
	pods map[types.NamespacedName]bool
	// verdicts are those about nodes, by their numbers. tally counts them.
	verdicts []verdict
	tally    [mostVerdicts]int
	// answer is that of all nodes, as it was when all had been judged the last time. counts are its numbers.
	answer why.Answer
	counts map[why.Answer]int
	// roomSince is when room was found, zero if there is none.
	roomSince time.Time
	// parkedUntil is until when it is not judged, because that takes too long, otherwise zero.
	parkedUntil time.Time
	// parkedBefore counts how often what it asks for was parked: the most of its pods.
	parkedBefore int
	// spent is what the judging of so many nodes took.
	spent  time.Duration
	judged int
}

func newShape(wish *why.Wish, by string) *shape {
	return &shape{wish: wish, by: by, pods: map[types.NamespacedName]bool{}}
}

// attach adds a pod that asks for this.
func (s *shape) attach(key types.NamespacedName, p *waiting) {
	p.shape, s.pods[key] = s.wish.Key, true
	s.parkedBefore = max(s.parkedBefore, p.parked)
}

func (s *shape) at(node int) verdict {
	if node >= 0 && node < len(s.verdicts) {
		return s.verdicts[node]
	}
	return unjudged
}

func (s *shape) set(node int, v verdict) {
	if node == none {
		return
	}
	for node >= len(s.verdicts) {
		s.verdicts = append(s.verdicts, unjudged)
	}
	if before := s.verdicts[node]; before != unjudged {
		s.tally[before]--
	}
	if s.verdicts[node] = v; v != unjudged {
		s.tally[v]++
	}
}

// fits tells whether a node has room, other than one.
func (s *shape) fits(but int) bool {
	n := s.tally[room]
	if s.at(but) == room {
		n--
	}
	return n > 0
}

// known counts the nodes that have been judged.
func (s *shape) known() (n int) {
	for _, of := range s.tally {
		n += of
	}
	return n
}

// settle sets the answer, if there are so many nodes. It tells whether that is another one.
func (s *shape) settle(nodes int, now time.Time) (changed bool) {
	before := s.answer
	switch {
	case s.fits(none):
		s.answer, s.counts = why.None, nil
		if s.roomSince.IsZero() {
			s.roomSince = now
		}
		return false
	case s.known() < nodes:
		s.roomSince = time.Time{}
		return false
	}
	s.roomSince = time.Time{}
	s.counts = map[why.Answer]int{}
	for i, a := range answers {
		if n := s.tally[int(firstAnswer)+i]; n > 0 {
			s.counts[a] = n
		}
	}
	s.answer = why.Common(s.counts)
	if s.tally[unclear] > 0 && s.answer != why.SelectorFails || !s.wish.Certain && !s.answer.OfDevices() {
		s.answer = why.None
	}
	return s.answer != before
}

func (s *shape) parked() bool { return !s.parkedUntil.IsZero() }

// park stops judging for a while: it takes too long. Nothing is said meanwhile. The while doubles each time, and
// so does the time for judging, because the controller itself may be starved of time.
func (m *memory) park(s *shape, now time.Time) {
	times := s.parkedBefore
	for key := range s.pods {
		m.pods[key].parked = times + 1
	}
	*s = shape{wish: s.wish, by: s.by, pods: s.pods, parkedUntil: now.Add(parkedFor(times))}
}

// parkedFor is how long a shape is not judged that took too long, and has been parked so many times.
func parkedFor(times int) time.Duration {
	const first, longest = time.Minute, time.Hour
	return min(longest, first<<min(times, 6))
}

// tooSlow tells whether the judging of a node, or of all until now, took too long.
func (s *shape) tooSlow(last time.Duration, p patience) bool {
	return last >= p.node || s.spent > p.first+time.Duration(s.judged)*p.average
}

// mostForNode is how long a node may be judged after a shape was parked often. pkg/why gives up after 2 seconds.
const mostForNode = 1500 * time.Millisecond

// after is the patience with what was parked so many times. The average stays, which limits what a pod costs in
// a large cluster.
func (p patience) after(parked int) patience {
	times := min(parked, 3)
	return patience{node: max(p.node, min(p.node<<times, mostForNode)), first: p.first << times, average: p.average}
}

// patience is how long judging may take: for a node, and for all nodes together first and for each. A pod of
// one tenant must not keep the others waiting.
type patience struct{ node, first, average time.Duration }

// defaultPatience is a multiple of what usual requests take, which is up to ten milliseconds on a node with eight GPUs.
var defaultPatience = patience{node: 250 * time.Millisecond, first: 2 * time.Second, average: 40 * time.Millisecond}
