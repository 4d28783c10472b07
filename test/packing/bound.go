package main

// bound is a fleet whose GPUs are one: a claim waits only if the slices of all GPUs together are
// not enough for it. It needs the fewest GPUs and nodes that can hold what is held.
type bound struct {
	// compute and memory are the slices that are free.
	compute, memory int
	gpus            int
	held            float64
}

func newBound(nodes int) *bound {
	gpus := nodes * gpusPerNode
	return &bound{compute: gpus * computeSlices, memory: gpus * memorySlices, gpus: gpus}
}

func (b *bound) place(c *claim) bool {
	if b.fits(c)&(1<<c.kind) == 0 {
		return false
	}
	b.change(c, 1)
	return true
}

func (b *bound) release(c *claim) { b.change(c, -1) }

func (b *bound) change(c *claim, by int) {
	k := kinds[c.kind]
	b.compute -= by * k.count * k.compute
	b.memory -= by * k.count * k.memory
	b.held += float64(by) * k.gpus()
}

func (b *bound) fits(*claim) (fit uint) {
	for i, k := range kinds {
		if k.count*k.compute <= b.compute && k.count*k.memory <= b.memory {
			fit |= 1 << i
		}
	}
	return fit
}

func (b *bound) sample(bool) sample {
	used := b.gpus - min(b.compute/computeSlices, b.memory/memorySlices)
	return sample{used: float64(used), usedNodes: float64((used + gpusPerNode - 1) / gpusPerNode), held: b.held}
}
