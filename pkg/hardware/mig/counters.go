package mig

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// part is something that a GPU has a number of and that profiles take.
type part struct {
	// counter is the name under which it is published.
	counter string
	// takes is how much of it one instance of a profile takes.
	takes func(Profile) int64
	// total is how much there is.
	total int64
}

// parts are the things that may run out before the memory slices do. Where two
// of them mean the same limit, the later one is the one to keep: the OFA engine
// is what limits "+me" on every generation.
func parts(profiles []Profile) []part {
	engine := func(counter, name string) part {
		return part{counter: counter, takes: func(p Profile) int64 { return p.Engines[name] }}
	}
	all := []part{
		{counter: "multiprocessors", takes: func(p Profile) int64 { return p.Multiprocessors }},
		engine("copy-engines", CopyEngines),
		engine("encoders", Encoders),
		engine("jpeg-engines", JPEGEngines),
		engine("decoders", Decoders),
		engine("ofa-engines", OFAEngines),
	}
	for i := range all {
		all[i].total = largest(profiles, all[i].takes)
	}
	return all
}

func sliceCounter(slice int) string { return fmt.Sprintf("memory-slice-%d", slice) }

func instancesCounter(profile string) string { return "instances-" + gpu.ProfileSlug(profile) }

// layout is what keeps the placements of a GPU apart: its memory slices, and the
// parts that need a counter beside them.
type layout struct {
	// end is the number of memory slices. slices are those that have a counter: the
	// first of each run of slices that every placement takes all of or nothing of.
	end    int
	slices []int
	scarce []part
	// memory is the counter of that name: at least as much as any placements that fit
	// together show, so that it never keeps placements apart, and never zero.
	memory int64
}

// layoutOf finds the fewest counters that say exactly which placements fit together on a GPU
// with so much memory. Each counter costs the whole cluster time on every scheduling
// attempt.
func layoutOf(profiles []Profile, memory int64) layout {
	l := layout{end: sliceCount(profiles), slices: sliceRuns(profiles)}
	for _, r := range parts(profiles) {
		if peak(profiles, r.takes, nil) > r.total {
			l.scarce = append(l.scarce, r)
		}
	}
	// A part that cannot run out while the others last needs no counter.
	for _, r := range slices.Clone(l.scarce) {
		rest := slices.DeleteFunc(slices.Clone(l.scarce), func(s part) bool { return s.counter == r.counter })
		if peak(profiles, r.takes, rest) <= r.total {
			l.scarce = rest
		}
	}
	// Whatever else limits a profile, NVML reports how often it fits.
	engines := l.scarce
	l.memory = max(memory, peak(profiles, memoryOf, engines), 1)
	for _, p := range profiles {
		one := func(Profile) int64 { return 1 }
		if p.Max > 0 && peak([]Profile{p}, one, engines) > int64(p.Max) {
			l.scarce = append(l.scarce, part{
				counter: instancesCounter(p.Name),
				total:   int64(p.Max),
				takes: func(q Profile) int64 {
					if q.Name == p.Name {
						return 1
					}
					return 0
				},
			})
		}
	}
	return l
}

// counters is what the GPU has to give.
func (l layout) counters() gpu.Counters {
	counters := gpu.Counters{names.CounterMemory: l.memory}
	for _, slice := range l.slices {
		counters[sliceCounter(slice)] = 1
	}
	for _, r := range l.scarce {
		counters[r.counter] = r.total
	}
	return counters
}

// consumption is what a placement takes of it. Every placement takes memory, also one whose size
// the driver does not report, so that the whole GPU excludes it.
func (l layout) consumption(c placement) gpu.Counters {
	if c.at.Start == 0 && c.at.end() == l.end {
		return l.all()
	}
	takes := gpu.Counters{names.CounterMemory: memoryOf(c.Profile)}
	for _, slice := range l.slices {
		if c.at.Start <= slice && slice < c.at.end() {
			takes[sliceCounter(slice)] = 1
		}
	}
	for _, r := range l.scarce {
		if n := r.takes(c.Profile); n > 0 {
			takes[r.counter] = n
		}
	}
	return takes
}

// all is what is taken by what needs the GPU to itself. All of the memory is enough,
// since everything takes some. The other counters would say the same at greater length.
func (l layout) all() gpu.Counters { return gpu.Counters{names.CounterMemory: l.memory} }

// memoryOf is what an instance of a profile takes of the memory counter.
func memoryOf(p Profile) int64 { return max(p.Memory, 1) }

// largest is the most that any profile takes, which is what the GPU has for
// placements: the largest profile has it all.
func largest(profiles []Profile, takes func(Profile) int64) int64 {
	var n int64
	for _, p := range profiles {
		n = max(n, takes(p))
	}
	return n
}

// sliceCount is the number of memory slices that the placements reach. NVML does not
// tell it: H100 has 8, A30 has 4, RTX PRO 6000 has 12.
func sliceCount(profiles []Profile) int {
	n := 0
	for _, p := range profiles {
		for _, at := range p.Spans {
			n = max(n, at.end())
		}
	}
	return n
}

// sliceRuns divides the memory slices where a placement begins or ends, and lists the first
// slice of each run. RTX PRO 6000 has 12 slices and no placement smaller than three.
func sliceRuns(profiles []Profile) []int {
	var edges []int
	for _, p := range profiles {
		for _, at := range p.Spans {
			edges = append(edges, at.Start, at.end())
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	return edges[:max(len(edges)-1, 0)]
}

// peak is the largest sum of takes over all sets of placements that do not overlap in
// memory slices and keep within the limits. It goes through the slices from the
// left and keeps, for each way to use up the limits, the best sum so far.
func peak(profiles []Profile, takes func(Profile) int64, limits []part) int64 {
	type usage [6]int64 // by index in limits, which are engines and SMs
	best := make([]map[usage]int64, sliceCount(profiles)+1)
	best[0] = map[usage]int64{{}: 0}
	for end := 1; end < len(best); end++ {
		best[end] = map[usage]int64{}
		put := func(u usage, sum int64) { best[end][u] = max(best[end][u], sum) }
		for u, sum := range best[end-1] {
			put(u, sum)
		}
		for _, p := range profiles {
			for _, at := range p.Spans {
				if at.end() != end || at.Start < 0 || at.Start >= end {
					continue
				}
			next:
				for u, sum := range best[at.Start] {
					for i, limit := range limits {
						if u[i] += limit.takes(p); u[i] > limit.total {
							continue next
						}
					}
					put(u, sum+takes(p))
				}
			}
		}
	}
	var top int64
	for _, sum := range best[len(best)-1] {
		top = max(top, sum)
	}
	return top
}
