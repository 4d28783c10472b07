package replay

import (
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// bound is a fleet in which claims move whenever that helps: a claim waits only if the slices of
// all GPUs together are not enough for it, or the GPUs for whole GPUs and 4g.40gb, of which each
// needs a GPU of its own. No policy needs fewer GPUs and nodes for what is held.
type bound struct {
	// compute and memory are the slices that are free.
	compute, memory int
	// single is how many GPUs are left for claims that need one of their own.
	single int
	gpus   int
	held   float64
}

func newBound(nodes int) *bound {
	gpus := nodes * workload.GPUsPerNode
	return &bound{compute: gpus * workload.ComputeSlices, memory: gpus * workload.MemorySlices, single: gpus, gpus: gpus}
}

// ownGPUs is how many GPUs a kind needs that no other claim of such a kind is on.
func ownGPUs(k workload.Kind) int {
	if 2*k.Compute > workload.ComputeSlices {
		return k.Count
	}
	return 0
}

func (b *bound) place(c *fleet.Claim) bool {
	if b.fits(c)&(1<<c.Kind) == 0 {
		return false
	}
	b.change(c, 1)
	return true
}

func (b *bound) release(c *fleet.Claim) { b.change(c, -1) }

func (b *bound) change(c *fleet.Claim, by int) {
	k := workload.Kinds[c.Kind]
	b.compute -= by * k.Count * k.Compute
	b.memory -= by * k.Count * k.Memory
	b.single -= by * ownGPUs(k)
	b.held += float64(by) * k.GPUs()
}

func (b *bound) fits(*fleet.Claim) (fit uint) {
	for i, k := range workload.Kinds {
		if k.Count*k.Compute <= b.compute && k.Count*k.Memory <= b.memory && ownGPUs(k) <= b.single {
			fit |= 1 << i
		}
	}
	return fit
}

func (b *bound) sample() Sample {
	used := b.gpus - min(b.compute/workload.ComputeSlices, b.memory/workload.MemorySlices, b.single)
	return Sample{Used: float64(used), UsedNodes: float64((used + workload.GPUsPerNode - 1) / workload.GPUsPerNode), Held: b.held}
}

func (b *bound) fragmented() float64 { return 0 }

func (b *bound) changes() int { return 0 }
