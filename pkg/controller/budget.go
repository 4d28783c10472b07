package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/pkg/text"
)

// Budget says how many nodes may be without some of their GPUs at once, and which
// are. Only the leader asks it, and it is the leader that changes states, so it is
// exact from the moment when it was filled from the API server; what the last words of
// an earlier leader have begun is counted when it is seen.
//
// Nodes that are away for other reasons (not ready, cordoned, drained by a person) do
// not count: one that is broken for good would keep all others from their profiles.
// What must not be away at once is for budgets of pods to say, and those are honoured.
type Budget struct {
	most intstr.IntOrString

	// mu guards what follows.
	mu sync.Mutex
	// taken are the nodes that are being switched.
	taken map[string]bool
	// queue are those that wait, the longest first.
	queue []string
	// nodes is how many there are, for a percentage.
	nodes int
	// wake is told of a node that need not wait any more.
	wake func(node string)
}

// NewBudget checks what may be unavailable: a number, or a percentage of the nodes with
// GPUs, rounded down, and at least one.
func NewBudget(most intstr.IntOrString, wake func(node string)) (*Budget, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(&most, 100, false)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the number of nodes that may be unavailable is %q: give a number, or a percentage such as 10%%", most.String())
	case n < 1, most.Type == intstr.String && n > 100:
		return nil, fmt.Errorf("the number of nodes that may be unavailable is %q: give 1 or more, or 1%% to 100%%", most.String())
	}
	if wake == nil {
		wake = func(string) {}
	}
	return &Budget{most: most, taken: map[string]bool{}, wake: wake}, nil
}

// Fill says which nodes are being switched, when a controller begins, and how many
// nodes there are.
func (b *Budget) Fill(taken []string, nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, node := range taken {
		b.taken[node] = true
	}
	b.nodes = nodes
}

// SetNodes says how many nodes there are.
func (b *Budget) SetNodes(nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = nodes
}

// limit is how many nodes may be unavailable now. The caller holds mu.
func (b *Budget) limit() int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&b.most, b.nodes, false)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// Take asks for a place, and says who has the places if there is none.
func (b *Budget) Take(node string) (ok bool, others string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[node] {
		return true, ""
	}
	if len(b.taken) < b.limit() {
		b.taken[node] = true
		b.leaveQueue(node)
		return true, ""
	}
	if !slices.Contains(b.queue, node) {
		b.queue = append(b.queue, node)
	}
	names := make([]string, 0, len(b.taken))
	for name := range b.taken {
		names = append(names, name)
	}
	slices.Sort(names)
	return false, fmt.Sprintf(": %d are being switched (%s), and %s may be at once (--max-unavailable)", len(names), text.List(names, mostNamed), strings.TrimSpace(b.most.String()))
}

// Hold counts a node that is being switched, whether there is room or not: it was begun
// by somebody else.
func (b *Budget) Hold(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[node] = true
	b.leaveQueue(node)
}

// Give gives a place back, and wakes the node that has waited longest.
func (b *Budget) Give(node string) {
	b.mu.Lock()
	had := b.taken[node]
	delete(b.taken, node)
	waited := b.leaveQueue(node)
	var next string
	if (had || waited) && len(b.queue) > 0 && len(b.taken) < b.limit() {
		// It stays in the queue until it has taken its place, and goes to the end:
		// should it be gone, the next is woken in its turn.
		next = b.queue[0]
		b.queue = append(b.queue[1:], next)
	}
	b.mu.Unlock()
	if next != "" {
		b.wake(next)
	}
}

// leaveQueue takes a node out of the queue. The caller holds mu.
func (b *Budget) leaveQueue(node string) bool {
	i := slices.Index(b.queue, node)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}

// Has tells whether a node has a place.
func (b *Budget) Has(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken[node]
}

// Taken is how many nodes are being switched.
func (b *Budget) Taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.taken)
}

// Limit is how many nodes may be unavailable now.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit()
}
