package policy

import (
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// Placer chooses a place for a claim. It returns false if nothing fits. It is for one fleet.
type Placer func(f *fleet.Fleet, c *fleet.Claim) (fleet.Place, bool)

// Policy is one way to place claims.
type Policy struct {
	Name string
	// Ascending has the devices of a profile published by ascending starts.
	Ascending bool
	// Moves has pods with partitions moved for large claims that wait.
	Moves bool
	// New makes a placer for a workload. It is nil for the bound.
	New func(w workload.Workload, seed uint64) Placer
}

// reserve is how many of 8 GPUs, or of 8 nodes, some policies keep for whole GPUs.
const reserve = 4

// All are the policies that are compared.
func All() []Policy {
	search := func(of func(workload.Workload) Placer) func(workload.Workload, uint64) Placer {
		return func(w workload.Workload, _ uint64) Placer { return of(w) }
	}
	all := []Policy{
		{Name: "default", New: scheduled(leastAllocated)},
		{Name: "ascending", Ascending: true, New: scheduled(leastAllocated)},
		{Name: "profile", New: scheduled(mostAllocated)},
		{Name: "pod-affinity", New: scheduled(podAffinity)},
		{Name: "used-gpus", New: scheduled(usedGPUs)},
		{Name: "reserved-gpus", New: reserved(leastAllocated, lastGPUs(reserve))},
		{Name: "reserved-nodes", New: reserved(leastAllocated, someNodes(reserve))},
		{Name: "best-node", New: search(func(workload.Workload) Placer { return bestNode() })},
		{Name: "best-fit", New: search(func(workload.Workload) Placer { return bestFit() })},
		{Name: "fgd", New: search(fgd)},
		{Name: "bound"},
	}
	for _, p := range all[:4] {
		if !p.Ascending {
			p.Name, p.Moves = p.Name+"+moves", true
			all = append(all, p)
		}
	}
	return all
}
