package main

import (
	"math/rand/v2"
	"slices"
)

// What a node has beside its GPUs, as NVIDIA's DGX H100 has: 224 threads and 2 TiB.
const (
	nodeCPU    = 224_000
	nodeMemory = 2 << 20
)

// place is where a claim is.
type place struct {
	node int
	// gpus has a bit for each GPU of the node, device is the device of each of them.
	gpus   uint
	device int
}

// node is a node with its GPUs and what the pods on it request.
type node struct {
	gpus [gpusPerNode]*gpuState
	// cpu is in thousandths, memory in MiB.
	cpu, memory int64
	empty       int
	// claims are those that hold something here.
	claims []*claim
	// kinds has a bit for each kind that fits, as far as GPUs go.
	kinds uint
}

// fleet is many nodes with one layout. It has the state of a replay.
type fleet struct {
	*layout
	nodes  []node
	random *rand.Rand
	// next is the node where the scheduler begins to look.
	next int
	// used counts GPUs that something is held on, usedNodes nodes.
	used, usedNodes int
	// held is the memory that is held, in GPUs.
	held float64
	// changes counts how often a GPU became used or unused.
	changes int
}

func newFleet(l *layout, nodes int, seed uint64) *fleet {
	f := &fleet{layout: l, nodes: make([]node, nodes), random: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // the same each time
	for i := range f.nodes {
		n := &f.nodes[i]
		n.empty = gpusPerNode
		for g := range n.gpus {
			n.gpus[g] = l.empty
		}
		n.update()
	}
	return f
}

// update finds which kinds fit.
func (n *node) update() {
	n.kinds = 0
	for _, s := range n.gpus {
		n.kinds |= s.kinds()
	}
	for k := wholeGPU; k < len(kinds); k++ {
		if n.empty >= kinds[k].count {
			n.kinds |= 1 << k
		}
	}
}

// kinds has a bit for each kind of partition that fits.
func (s *gpuState) kinds() (fit uint) {
	for k, d := range s.first[:partitions] {
		if d >= 0 {
			fit |= 1 << k
		}
	}
	return fit
}

// feasible tells whether a pod with its claim fits on a node.
func (n *node) feasible(c *claim) bool {
	return n.kinds&(1<<c.kind) != 0 && n.cpu+c.cpu <= nodeCPU && n.memory+c.memory <= nodeMemory
}

// first is where the allocator places a claim on a node. It takes the first GPUs that fit, of
// those that have a bit in among.
func (n *node) first(k int, among uint) (p place, found bool) {
	missing := kinds[k].count
	for g, s := range n.gpus {
		if d := s.first[min(k, wholeGPU)]; d >= 0 && among&(1<<g) != 0 {
			p.gpus |= 1 << g
			p.device = d
			if missing--; missing == 0 {
				return p, true
			}
		}
	}
	return place{}, false
}

// hold places a claim.
func (f *fleet) hold(c *claim, p place) {
	c.at = p
	f.change(c, 1)
	n := &f.nodes[p.node]
	n.claims = append(n.claims, c)
}

// release gives back what a claim holds.
func (f *fleet) release(c *claim) {
	f.change(c, -1)
	n := &f.nodes[c.at.node]
	i, last := slices.Index(n.claims, c), len(n.claims)-1
	n.claims[i], n.claims[last] = n.claims[last], nil
	n.claims = n.claims[:last]
}

func (f *fleet) change(c *claim, by int) {
	n := &f.nodes[c.at.node]
	before := n.empty
	for g := range n.gpus {
		if c.at.gpus&(1<<g) == 0 {
			continue
		}
		was := n.gpus[g]
		n.gpus[g] = was.after[c.at.device]
		if was.held == 0 || n.gpus[g].held == 0 {
			n.empty -= by
			f.used += by
			f.changes++
		}
	}
	if before != n.empty && (before == gpusPerNode || n.empty == gpusPerNode) {
		f.usedNodes += by
	}
	n.cpu += int64(by) * c.cpu
	n.memory += int64(by) * c.memory
	f.held += float64(by) * kinds[c.kind].gpus()
	n.update()
}

// fragments is the memory that is free and no use to the claims of a workload, in GPUs: the
// fragmentation of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
// Fragmentation Gradient Descent", USENIX ATC 2023, section 3, with MIG's positions. For each
// kind, weighted by its share of the arrivals, it counts the free memory of the GPUs that no
// claim of the kind can use, or all that is free on a node where no such claim fits.
func (f *fleet) fragments(popularity []float64) (sum float64) {
	for i := range f.nodes {
		n := &f.nodes[i]
		for _, s := range n.gpus {
			sum += s.fragments(popularity)
		}
		sum += n.fragments(popularity)
	}
	return sum
}

// fragments is the part of the sum that follows from a GPU alone.
func (s *gpuState) fragments(popularity []float64) (sum float64) {
	fit := s.kinds()
	for k, share := range popularity {
		if k < partitions && fit&(1<<k) == 0 || k >= wholeGPU && s.held != 0 {
			sum += share * float64(s.free) / memorySlices
		}
	}
	return sum
}

// fragments are the empty GPUs that claims for several cannot use.
func (n *node) fragments(popularity []float64) (sum float64) {
	for k := wholeGPU; k < len(kinds); k++ {
		if n.empty < kinds[k].count {
			sum += popularity[k] * float64(n.empty)
		}
	}
	return sum
}
