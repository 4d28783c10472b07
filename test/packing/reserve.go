package main

// kept has a bit for each GPU of a node that is kept for whole GPUs.
type kept func(node int) uint

// lastGPUs keeps the last GPUs of each node.
func lastGPUs(count int) kept {
	return func(int) uint { return allGPUs &^ (1<<(gpusPerNode-count) - 1) }
}

// someNodes keeps all GPUs of so many nodes of each 8.
func someNodes(count int) kept {
	return func(node int) uint {
		if node%gpusPerNode < count {
			return allGPUs
		}
		return 0
	}
}

// reserved places whole GPUs among those that are kept, and partitions among the others, while
// any of these in the fleet has room. The stock scheduler can do this for nodes, with a preferred
// node affinity. For GPUs it is what could be gained at best.
func reserved(score scorer, k kept) placer {
	in := scheduledIn(score)
	return func(f *fleet, c *claim) (place, bool) {
		preferred := area(k)
		if c.kind < wholeGPU {
			preferred = func(node int) uint { return allGPUs &^ k(node) }
		}
		if p, found := in(f, c, preferred); found {
			return p, true
		}
		return in(f, c, everywhere)
	}
}
