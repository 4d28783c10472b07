package nvidia

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// multiprocessorsCounter counts SMs.
const multiprocessorsCounter = "multiprocessors"

// engineCounters are the counter names of the engines.
var engineCounters = map[string]string{
	copyEngines: "copy-engines",
	decoders:    "decoders",
	encoders:    "encoders",
	jpegEngines: "jpeg-engines",
	ofaEngines:  "ofa-engines",
}

func sliceCounter(slice int) string { return fmt.Sprintf("memory-slice-%d", slice) }

func instancesCounter(profile string) string { return "instances-" + gpu.ProfileSlug(profile) }

// countersOf is what a card has to give. A card that cannot be cut has its
// memory. Any other has its memory slices, and of the engines only those that
// can run out while slices are left: every counter costs the whole cluster time
// on each scheduling attempt.
func countersOf(f facts, profiles []profile) gpu.Counters {
	if len(profiles) == 0 {
		return gpu.Counters{gpu.CounterMemory: f.memory}
	}
	counters := gpu.Counters{}
	for slice := range sliceCount(profiles) {
		counters[sliceCounter(slice)] = 1
	}
	engines, multiprocessors := totals(profiles)
	for engine, total := range engines {
		if most(profiles, func(p profile) int64 { return p.engines[engine] }) > total {
			counters[engineCounters[engine]] = total
		}
	}
	if most(profiles, func(p profile) int64 { return p.multiprocessors }) > multiprocessors {
		counters[multiprocessorsCounter] = multiprocessors
	}
	for _, p := range profiles {
		if p.max > 0 && fits(p, counters) > int64(p.max) {
			counters[instancesCounter(p.name)] = int64(p.max)
		}
	}
	return counters
}

// consumption is what a cut takes of the counters that there are.
func consumption(c cut, counters gpu.Counters) gpu.Counters {
	takes := gpu.Counters{}
	for slice := c.at.start; slice < c.at.end(); slice++ {
		takes[sliceCounter(slice)] = 1
	}
	maps.Copy(takes, scarce(c.profile, counters))
	return takes
}

// scarce is what a profile takes of the counters that are not memory slices.
func scarce(p profile, counters gpu.Counters) gpu.Counters {
	takes := gpu.Counters{}
	take := func(counter string, n int64) {
		if _, counted := counters[counter]; counted && n > 0 {
			takes[counter] = n
		}
	}
	for engine, n := range p.engines {
		take(engineCounters[engine], n)
	}
	take(multiprocessorsCounter, p.multiprocessors)
	take(instancesCounter(p.name), 1)
	return takes
}

// totals is the number of each engine and of SMs that the card has for cuts:
// the most that any one profile has, since the largest has them all.
func totals(profiles []profile) (engines map[string]int64, multiprocessors int64) {
	engines = map[string]int64{}
	for _, p := range profiles {
		for engine, n := range p.engines {
			engines[engine] = max(engines[engine], n)
		}
		multiprocessors = max(multiprocessors, p.multiprocessors)
	}
	return engines, multiprocessors
}

// sliceCount is the number of memory slices that the cuts reach. NVML does not
// tell it: H100 has 8, A30 has 4, RTX PRO 6000 has 12.
func sliceCount(profiles []profile) int {
	n := 0
	for _, p := range profiles {
		for _, at := range p.spans {
			n = max(n, at.end())
		}
	}
	return n
}

// most is the largest sum of weights over all sets of cuts that do not overlap
// in memory slices (weighted interval scheduling).
func most(profiles []profile, weight func(profile) int64) int64 {
	best := make([]int64, sliceCount(profiles)+1) // best[n]: within the first n slices
	for end := 1; end < len(best); end++ {
		best[end] = best[end-1]
		for _, p := range profiles {
			for _, at := range p.spans {
				if at.end() == end && at.start >= 0 && at.start < end {
					best[end] = max(best[end], best[at.start]+weight(p))
				}
			}
		}
	}
	return best[len(best)-1]
}

// fits is how many instances of one profile the counters let onto an empty
// card.
func fits(p profile, counters gpu.Counters) int64 {
	n := most([]profile{p}, func(profile) int64 { return 1 })
	takes := scarce(p, counters)
	for _, counter := range slices.Sorted(maps.Keys(takes)) {
		n = min(n, counters[counter]/takes[counter])
	}
	return n
}
