package gpu

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
)

// Free is what is left of a GPU.
type Free struct {
	// Memory is what nothing that is held consumes, in bytes, and Allocated the rest.
	Memory, Allocated int64
	// ComputeUnits are those that nothing that is held has, AllocatedUnits the rest. Both are
	// zero if the vendor does not report it.
	ComputeUnits, AllocatedUnits int64
	// Fits has an entry for each profile that the GPU offers, in the order of its placements.
	Fits []Fit
}

// Fit says how many more devices of a profile fit on a GPU if no others are allocated. A whole GPU
// has no profile here, although AMD's has a mode.
type Fit struct {
	Type    Type
	Profile string
	Count   int
}

// Free returns what is left of the GPU beside what is held, by the same arithmetic as the
// scheduler's. Shares count as what they are shares of.
func (g *GPU) Free(held []Placement) Free {
	used, units := Counters{}, int64(0)
	var seen []string
	for _, p := range held {
		p = p.Base()
		if name := p.Name(); !slices.Contains(seen, name) {
			seen = append(seen, name)
			used.Add(p.Consumes)
			units += p.ComputeUnits
		}
	}
	free := Free{Memory: max(0, g.Counters[names.CounterMemory]-used[names.CounterMemory])}
	free.Allocated = g.Counters[names.CounterMemory] - free.Memory
	free.AllocatedUnits = min(units, g.ComputeUnits)
	free.ComputeUnits = g.ComputeUnits - free.AllocatedUnits
	places := slices.DeleteFunc(slices.Clone(g.Placements), func(p Placement) bool { return p.Share != nil })
	// The placements of a profile are of equal length, so taking them from left to right finds
	// the largest number that fits.
	slices.SortStableFunc(places, func(a, b Placement) int { return cmp.Compare(a.Start, b.Start) })
	for _, p := range g.Placements {
		fit := fitOf(p)
		if p.Share != nil || slices.ContainsFunc(free.Fits, fit.isSameProfile) {
			continue
		}
		taken := Counters{}
		for _, q := range places {
			if fitOf(q) == fitOf(p) && g.hasRoom(q, used, taken) {
				taken.Add(q.Consumes)
				fit.Count++
			}
		}
		free.Fits = append(free.Fits, fit)
	}
	return free
}

func fitOf(p Placement) Fit {
	if p.Type == TypeGPU {
		return Fit{Type: TypeGPU}
	}
	return Fit{Type: p.Type, Profile: p.Profile}
}

func (f Fit) isSameProfile(other Fit) bool { return f.Type == other.Type && f.Profile == other.Profile }

// hasRoom reports whether a placement fits beside what is used and taken.
func (g *GPU) hasRoom(p Placement, used, taken Counters) bool {
	for name, n := range p.Consumes {
		if used[name]+taken[name]+n > g.Counters[name] {
			return false
		}
	}
	return true
}

// Fragmentation is a measure of the free memory that a profile cannot use, from 0 to 1: of the
// free memory of the GPUs that offer the profile, the part on GPUs on which no device of it fits.
// It is 0 if no memory is free. It is the fragmentation of a node for one task, divided by its
// free memory, of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
// Fragmentation Gradient Descent", USENIX ATC 2023, section 3: all of a GPU that has too little
// room for the task is a fragment. The task is one device of the profile; there is no average over
// a workload, because the node does not know it.
func Fragmentation(gpus []Free, deviceType Type, profile string) float64 {
	var all, useless int64
	for _, g := range gpus {
		for _, f := range g.Fits {
			if f.Type != deviceType || f.Profile != profile {
				continue
			}
			all += g.Memory
			if f.Count == 0 {
				useless += g.Memory
			}
		}
	}
	if all == 0 {
		return 0
	}
	return float64(useless) / float64(all)
}
