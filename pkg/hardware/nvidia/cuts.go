package nvidia

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The names of the engines, as capacities.
const (
	copyEngines = "copyEngines"
	decoders    = "decoders"
	encoders    = "encoders"
	jpegEngines = "jpegEngines"
	ofaEngines  = "ofaEngines"
)

// profile is a kind of GPU instance that a card offers, as NVML tells it.
type profile struct {
	// enum is the profile's number in NVML's enumeration, id the one by which
	// this card knows it.
	enum int
	id   uint32
	name string
	// slices counts compute slices, as in "3g".
	slices int
	// memory is what an instance can use, in bytes.
	memory int64
	// multiprocessors is the number of SMs.
	multiprocessors int64
	engines         map[string]int64
	// max is how many instances of this kind fit on an empty card.
	max int
	// spans are the legal positions, in memory slices.
	spans []span
}

// span is a position on a card: memory slices start … start+size-1.
type span struct{ start, size int }

func (s span) end() int { return s.start + s.size }

// facts is what decides, beside the profiles, what a card offers.
type facts struct {
	pciAddress string
	// migCapable is true when the card knows MIG at all.
	migCapable bool
	// migOn is the current MIG mode.
	migOn bool
	// switchable is true when this driver may change the mode: Hopper and
	// later do it without a reset, Ampere does not, a vGPU guest may not.
	switchable bool
	// memory is what a process on the whole card can use, in bytes.
	memory int64
	// multiprocessors is the number of SMs of the card, zero when unknown.
	multiprocessors int64
}

// offers decides whether the whole card and whether its cuts are published.
// What would need a mode that we do not switch is not published.
func (f facts) offers() (whole, cuts bool) {
	switch {
	case !f.migCapable:
		return true, false
	case f.switchable:
		return true, true
	}
	return !f.migOn, f.migOn
}

// devices turns what a card can do into its placements, the most preferred
// first, and the counters that keep them apart.
func devices(f facts, profiles []profile) ([]gpu.Placement, gpu.Counters) {
	offerWhole, offerCuts := f.offers()
	var cuts []profile
	if offerCuts {
		cuts = profiles
	}
	l := layoutOf(cuts)
	counters := l.counters()
	if len(cuts) == 0 {
		counters = gpu.Counters{gpu.CounterMemory: f.memory}
	}

	var all []gpu.Placement
	for _, p := range ordered(cuts) {
		all = append(all, gpu.Placement{
			GPU:          f.pciAddress,
			Type:         gpu.TypeMIG,
			Profile:      p.name,
			Start:        p.at.start,
			Size:         p.at.size,
			Memory:       p.memory,
			ComputeUnits: p.multiprocessors,
			Engines:      maps.Clone(p.engines),
			Isolation:    gpu.IsolationHardware,
			Consumes:     l.consumption(p),
		})
	}
	if offerWhole {
		all = append(all, wholeCard(f, profiles, counters))
	}
	return all, counters
}

// wholeCard is the placement that cuts nothing. It takes all there is.
func wholeCard(f facts, profiles []profile, counters gpu.Counters) gpu.Placement {
	multiprocessors := f.multiprocessors
	if multiprocessors == 0 {
		multiprocessors = largest(profiles, func(p profile) int64 { return p.multiprocessors })
	}
	engines := map[string]int64{}
	for _, p := range profiles {
		for engine, n := range p.engines {
			engines[engine] = max(engines[engine], n)
		}
	}
	if len(engines) == 0 {
		engines = nil
	}
	return gpu.Placement{
		GPU:          f.pciAddress,
		Type:         gpu.TypeGPU,
		Memory:       f.memory,
		ComputeUnits: multiprocessors,
		Engines:      engines,
		Isolation:    gpu.IsolationHardware,
		Consumes:     maps.Clone(counters),
	}
}

// cut is a profile at one position.
type cut struct {
	profile
	at span
}

// ordered lists all cuts of a card in the order in which the scheduler should
// try them, which is policy: it takes the first that fits, so the cut that
// spoils least room comes first. Small before large, few compute slices before
// many (1g.20gb before 2g.20gb), plain before a variant that takes a scarce
// engine, and high positions before low ones, because 4g and 7g start at 0.
func ordered(profiles []profile) []cut {
	var cuts []cut
	for _, p := range profiles {
		for _, at := range p.spans {
			cuts = append(cuts, cut{profile: p, at: at})
		}
	}
	slices.SortFunc(cuts, func(a, b cut) int {
		return cmp.Or(
			cmp.Compare(a.at.size, b.at.size),
			cmp.Compare(a.slices, b.slices),
			comparePlain(variantIn(a.name), variantIn(b.name)),
			-cmp.Compare(a.at.start, b.at.start),
			cmp.Compare(a.name, b.name),
		)
	})
	return cuts
}

func comparePlain(a, b variant) int {
	switch {
	case a == plain && b != plain:
		return -1
	case a != plain && b == plain:
		return 1
	}
	return 0
}
