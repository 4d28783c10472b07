package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/pkg/text"
)

// Budget limits how many nodes are switched at once. Only the leader uses it and changes
// states, so it is exact once it was filled from the API server. A switch that an earlier
// leader began is counted when it is seen.
//
// Nodes that are unavailable for other reasons (not ready, cordoned, drained by a person) do
// not count: a broken node would keep all others from their profiles. Which pods must not be
// unavailable at once is up to PodDisruptionBudgets, which are respected.
type Budget struct {
	most intstr.IntOrString

	// mu guards what follows.
	mu sync.Mutex
	// taken are the nodes that are being switched.
	taken map[string]bool
	// queue are the nodes that wait, the longest first.
	queue []string
	// nodes is the number of nodes with GPUs, for a percentage.
	nodes int
	// wake is called for a node that need not wait any more.
	wake func(node string)
}

// NewBudget makes a budget of so many nodes: a number, or a percentage of the nodes with GPUs,
// rounded down, at least one.
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

// Fill sets the nodes that are being switched when the controller starts, and the number of
// nodes.
func (b *Budget) Fill(taken []string, nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, node := range taken {
		b.taken[node] = true
	}
	b.nodes = nodes
}

// SetNodes sets the number of nodes.
func (b *Budget) SetNodes(nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = nodes
}

// limit is how many nodes may be switched at once. The caller holds mu.
func (b *Budget) limit() int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&b.most, b.nodes, false)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// Take takes a place for a node. If there is none, it says which nodes have the places.
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

// Hold counts a node that is being switched, even without room: an earlier leader began it.
func (b *Budget) Hold(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[node] = true
	b.leaveQueue(node)
}

// Give returns a node's place, and wakes the node that has waited longest.
func (b *Budget) Give(node string) {
	b.mu.Lock()
	had := b.taken[node]
	delete(b.taken, node)
	waited := b.leaveQueue(node)
	var next string
	if (had || waited) && len(b.queue) > 0 && len(b.taken) < b.limit() {
		// It stays in the queue until it takes a place, but at the end: if it is gone, the
		// next one is woken.
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

// Limit is how many nodes may be switched at once.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit()
}
