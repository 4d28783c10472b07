package policy

import (
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// kept has a bit for each GPU of a node that is kept for whole GPUs.
type kept func(node int) uint

// lastGPUs keeps the last GPUs of each node.
func lastGPUs(count int) kept {
	return func(int) uint { return fleet.AllGPUs &^ (1<<(workload.GPUsPerNode-count) - 1) }
}

// someNodes keeps all GPUs of so many nodes of each 8.
func someNodes(count int) kept {
	return func(node int) uint {
		if node%workload.GPUsPerNode < count {
			return fleet.AllGPUs
		}
		return 0
	}
}

// reserved places whole GPUs among those that are kept, and partitions among the others, while
// any of these in the fleet has room. The stock scheduler can do this for nodes, with a preferred
// node affinity. For GPUs it is what could be gained at best.
func reserved(score scorer, k kept) func(workload.Workload, uint64) Placer {
	return func(_ workload.Workload, seed uint64) Placer {
		s := newScheduler(score, seed)
		return func(f *fleet.Fleet, c *fleet.Claim) (fleet.Place, bool) {
			preferred := area(k)
			if c.Kind < workload.WholeGPU {
				preferred = func(node int) uint { return fleet.AllGPUs &^ k(node) }
			}
			if p, found := s.place(f, c, preferred); found {
				return p, true
			}
			return s.place(f, c, everywhere)
		}
	}
}
