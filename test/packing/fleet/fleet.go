package fleet

import (
	"slices"

	"github.com/tranche-dev/tranche/test/packing/workload"
)

// What a node has beside its GPUs, as NVIDIA's DGX H100 has: 224 threads, and 2 TiB in MiB.
const (
	NodeCPU    = 224_000
	NodeMemory = 2 << 20
)

// AllGPUs has a bit for each GPU of a node.
const AllGPUs = 1<<workload.GPUsPerNode - 1

// Claim is a claim that holds devices or waits for them.
type Claim struct {
	workload.Claim
	// Started is negative until the claim has its devices.
	Started float64
	// Place is where it is, once it has started.
	Place Place
}

// Claims are claims of which none has started.
func Claims(arrivals []workload.Claim) []*Claim {
	all := make([]*Claim, len(arrivals))
	for i, c := range arrivals {
		all[i] = &Claim{Claim: c, Started: -1}
	}
	return all
}

// End is when a claim that has started ends.
func (c *Claim) End() float64 { return c.Started + c.Life }

// GPUs is the GPU memory that the claim asks for, in GPUs.
func (c *Claim) GPUs() float64 { return workload.Kinds[c.Kind].GPUs() }

// Place is where a claim is.
type Place struct {
	Node int
	// GPUs has a bit for each GPU of the node, Device is the device of each of them.
	GPUs   uint
	Device int
}

// Node is a node with its GPUs and what the pods on it request.
type Node struct {
	GPUs [workload.GPUsPerNode]*State
	// CPU is in thousandths, Memory in MiB.
	CPU, Memory int64
	// Empty is the number of GPUs on which nothing is held.
	Empty int
	// Claims are those that hold something here.
	Claims []*Claim
	// Fits has a bit for each kind that fits, as far as GPUs go.
	Fits uint
}

// Fleet is many nodes with one layout.
type Fleet struct {
	*Layout
	Nodes []Node
	// Used counts the GPUs on which something is held, UsedNodes the nodes.
	Used, UsedNodes int
	// Held is the memory that is held, in GPUs.
	Held float64
	// Changes counts how often a GPU became used or unused.
	Changes int
}

// New makes a fleet that holds nothing.
func New(l *Layout, nodes int) *Fleet {
	f := &Fleet{Layout: l, Nodes: make([]Node, nodes)}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Empty = workload.GPUsPerNode
		for g := range n.GPUs {
			n.GPUs[g] = l.Empty
		}
		n.update()
	}
	return f
}

// update finds which kinds fit.
func (n *Node) update() {
	n.Fits = 0
	for _, s := range n.GPUs {
		n.Fits |= s.kinds()
	}
	for k := workload.WholeGPU; k < len(workload.Kinds); k++ {
		if n.Empty >= workload.Kinds[k].Count {
			n.Fits |= 1 << k
		}
	}
}

// kinds has a bit for each kind of partition that fits.
func (s *State) kinds() (fit uint) {
	for k, d := range s.First[:workload.WholeGPU] {
		if d >= 0 {
			fit |= 1 << k
		}
	}
	return fit
}

// Feasible reports whether a pod with its claim fits on a node.
func (n *Node) Feasible(c *Claim) bool {
	return n.Fits&(1<<c.Kind) != 0 && n.CPU+c.CPU <= NodeCPU && n.Memory+c.Memory <= NodeMemory
}

// First is where the allocator places a claim on a node. It takes the first GPUs that fit, of
// those that have a bit in among.
func (n *Node) First(k int, among uint) (p Place, found bool) {
	missing := workload.Kinds[k].Count
	for g, s := range n.GPUs {
		if d := s.First[min(k, workload.WholeGPU)]; d >= 0 && among&(1<<g) != 0 {
			p.GPUs |= 1 << g
			p.Device = d
			if missing--; missing == 0 {
				return p, true
			}
		}
	}
	return Place{}, false
}

// Hold places a claim.
func (f *Fleet) Hold(c *Claim, p Place) {
	c.Place = p
	f.change(c, 1)
	n := &f.Nodes[p.Node]
	n.Claims = append(n.Claims, c)
}

// Release gives back what a claim holds.
func (f *Fleet) Release(c *Claim) {
	f.change(c, -1)
	n := &f.Nodes[c.Place.Node]
	i, last := slices.Index(n.Claims, c), len(n.Claims)-1
	n.Claims[i], n.Claims[last] = n.Claims[last], nil
	n.Claims = n.Claims[:last]
}

func (f *Fleet) change(c *Claim, by int) {
	n := &f.Nodes[c.Place.Node]
	before := n.Empty
	for g := range n.GPUs {
		if c.Place.GPUs&(1<<g) == 0 {
			continue
		}
		was := n.GPUs[g]
		n.GPUs[g] = was.After[c.Place.Device]
		if was.Held == 0 || n.GPUs[g].Held == 0 {
			n.Empty -= by
			f.Used += by
			f.Changes++
		}
	}
	if before != n.Empty && (before == workload.GPUsPerNode || n.Empty == workload.GPUsPerNode) {
		f.UsedNodes += by
	}
	n.CPU += int64(by) * c.CPU
	n.Memory += int64(by) * c.Memory
	f.Held += float64(by) * c.GPUs()
	n.update()
}
