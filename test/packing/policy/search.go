package policy

import (
	"math"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// cost says how bad it is that a GPU's state becomes another.
type cost func(before, after *fleet.State) float64

// nodeCost says how bad it is that a node has fewer empty GPUs.
type nodeCost func(before, after int) float64

// searcher takes the place with the lowest cost of all nodes, GPUs and positions. Of equal places,
// it takes one on the node with the fewest empty GPUs.
type searcher struct {
	onGPU  cost
	onNode nodeCost
	// cheapest are the best devices of GPUs in a state, by kind.
	cheapest map[*fleet.State]*[workload.WholeGPU]option
}

// option is a device of a GPU and what it costs to take it.
type option struct {
	cost   float64
	device int
}

func search(onGPU cost, onNode nodeCost) *searcher {
	return &searcher{onGPU, onNode, map[*fleet.State]*[workload.WholeGPU]option{}}
}

func (s *searcher) place(f *fleet.Fleet, c *fleet.Claim) (at fleet.Place, found bool) {
	lowest, fewest := math.Inf(1), 0
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !n.Feasible(c) {
			continue
		}
		p, value := s.onOneNode(n, c.Kind)
		if value < lowest-1e-9 || value < lowest+1e-9 && n.Empty < fewest {
			lowest, fewest, found = value, n.Empty, true
			p.Node = i
			at = p
		}
	}
	return at, found
}

// onOneNode is the best place on a node where a kind fits.
func (s *searcher) onOneNode(n *fleet.Node, kind int) (at fleet.Place, lowest float64) {
	if kind >= workload.WholeGPU {
		at, _ = n.First(kind, fleet.AllGPUs)
		return at, s.onNode(n.Empty, n.Empty-workload.Kinds[kind].Count)
	}
	lowest = math.Inf(1)
	var last *fleet.State
	for g, state := range n.GPUs {
		if state == last || state.First[kind] < 0 {
			continue
		}
		last = state
		o := s.best(state, kind)
		if state.Held == 0 {
			o.cost += s.onNode(n.Empty, n.Empty-1)
		}
		if o.cost < lowest-1e-9 {
			at, lowest = fleet.Place{GPUs: 1 << g, Device: o.device}, o.cost
		}
	}
	return at, lowest
}

func (s *searcher) best(state *fleet.State, kind int) option {
	if s.cheapest[state] == nil {
		s.cheapest[state] = s.options(state)
	}
	return s.cheapest[state][kind]
}

func (s *searcher) options(state *fleet.State) *[workload.WholeGPU]option {
	var all [workload.WholeGPU]option
	for k := range all {
		all[k].cost = math.Inf(1)
		for _, d := range state.Devices[k] {
			if value := s.onGPU(state, state.After[d]); value < all[k].cost {
				all[k] = option{value, d}
			}
		}
	}
	return &all
}

// fgd is fragmentation gradient descent (see fleet.Fragmentation): of all places, the one after
// which the least is free that the workload's claims cannot use.
func fgd(w workload.Workload) Placer {
	popularity := w.Popularity()
	ofNode := func(empty int) float64 { return (&fleet.Node{Empty: empty}).Fragmentation(popularity) }
	return search(
		func(before, after *fleet.State) float64 {
			return after.Fragmentation(popularity) - before.Fragmentation(popularity)
		},
		func(before, after int) float64 { return ofNode(after) - ofNode(before) },
	).place
}

// bestFit keeps as many large placements as possible: it counts those that are lost, and one of a
// larger kind outweighs all of smaller kinds.
func bestFit() Placer {
	value := func(s *fleet.State) (sum float64) {
		for k := range s.Devices {
			sum += float64(len(s.Devices[k])) * math.Pow(16, float64(k))
		}
		return sum
	}
	return search(func(before, after *fleet.State) float64 { return value(before) - value(after) },
		func(int, int) float64 { return 0 }).place
}

// bestNode takes the node of best fit, and leaves GPU and position to the allocator. The
// difference to best fit is what another order of devices could gain at most.
func bestNode() Placer {
	best := bestFit()
	return func(f *fleet.Fleet, c *fleet.Claim) (fleet.Place, bool) {
		best, found := best(f, c)
		if !found {
			return best, false
		}
		at, found := f.Nodes[best.Node].First(c.Kind, fleet.AllGPUs)
		at.Node = best.Node
		return at, found
	}
}
