package main

import "math"

// placer is a policy: it chooses a place for a claim, false if nothing fits.
type placer func(f *fleet, c *claim) (place, bool)

// cost says how bad it is that a GPU's state becomes another.
type cost func(before, after *gpuState) float64

// nodeCost says how bad it is that a node has fewer empty GPUs.
type nodeCost func(before, after int) float64

// search takes the place with the lowest cost of all nodes, GPUs and positions. Of equal places,
// it takes one on the node with the fewest empty GPUs.
func search(onGPU cost, onNode nodeCost) placer {
	cheapest := map[*gpuState]*[partitions]option{}
	best := func(s *gpuState, k int) option {
		if cheapest[s] == nil {
			cheapest[s] = options(s, onGPU)
		}
		return cheapest[s][k]
	}
	return func(f *fleet, c *claim) (place, bool) {
		lowest, fewest, found := math.Inf(1), 0, false
		var at place
		for i := range f.nodes {
			n := &f.nodes[i]
			if !n.feasible(c) {
				continue
			}
			consider := func(value float64, p place) {
				if value < lowest-1e-9 || value < lowest+1e-9 && n.empty < fewest {
					lowest, fewest, found = value, n.empty, true
					p.node = i
					at = p
				}
			}
			if c.kind >= wholeGPU {
				p, _ := n.first(c.kind, allGPUs)
				consider(onNode(n.empty, n.empty-kinds[c.kind].count), p)
				continue
			}
			var last *gpuState
			for g, s := range n.gpus {
				if s == last || s.first[c.kind] < 0 {
					continue
				}
				last = s
				o := best(s, c.kind)
				if s.held == 0 {
					o.cost += onNode(n.empty, n.empty-1)
				}
				consider(o.cost, place{gpus: 1 << g, device: o.device})
			}
		}
		return at, found
	}
}

// option is the best device of a GPU for a kind.
type option struct {
	cost   float64
	device int
}

func options(s *gpuState, onGPU cost) *[partitions]option {
	var all [partitions]option
	for k := range all {
		all[k].cost = math.Inf(1)
		for _, d := range s.devices[k] {
			if value := onGPU(s, s.after[d]); value < all[k].cost {
				all[k] = option{value, d}
			}
		}
	}
	return &all
}

// fgd is fragmentation gradient descent (see fragments): of all places, the one after which the
// least is free that the workload's claims cannot use.
func fgd(w workload) placer {
	popularity := w.popularity()
	ofNode := func(empty int) float64 { return (&node{empty: empty}).fragments(popularity) }
	return search(
		func(before, after *gpuState) float64 {
			return after.fragments(popularity) - before.fragments(popularity)
		},
		func(before, after int) float64 { return ofNode(after) - ofNode(before) },
	)
}

// bestFit keeps as many large placements as possible: it counts those that are lost, and one of a
// larger kind outweighs all of smaller kinds.
func bestFit() placer {
	value := func(s *gpuState) (sum float64) {
		for k := range s.devices {
			sum += float64(len(s.devices[k])) * math.Pow(16, float64(k))
		}
		return sum
	}
	return search(func(before, after *gpuState) float64 { return value(before) - value(after) },
		func(int, int) float64 { return 0 })
}
