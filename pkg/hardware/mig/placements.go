package mig

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The names of the engines, as capacities.
const (
	CopyEngines = "copyEngines"
	Decoders    = "decoders"
	Encoders    = "encoders"
	JPEGEngines = "jpegEngines"
	OFAEngines  = "ofaEngines"
)

// Hopper is the first major compute capability whose MIG mode can be switched
// without a reset of the GPU.
const Hopper = 9

// CoresPerMultiprocessor is the number of CUDA cores of an SM of a compute capability, zero if
// it is not known (CUDA C++ Programming Guide, "Compute Capabilities").
func CoresPerMultiprocessor(major, minor int) int {
	switch {
	case major == 7, minor == 0 && (major == 6 || major == 8):
		return 64
	case major >= 5 && major <= 12:
		return 128
	}
	return 0
}

// Profile is a kind of GPU instance that a GPU offers, as NVML reports it.
type Profile struct {
	// ID is the number by which this GPU knows the profile.
	ID   uint32
	Name string
	// Slices counts compute slices, as in "3g".
	Slices int
	// Memory is what an instance can use, in bytes.
	Memory int64
	// Multiprocessors is the number of SMs.
	Multiprocessors int64
	// Engines counts the engines that there are of each kind.
	Engines map[string]int64
	// Max is how many instances of this kind fit on an empty GPU.
	Max int
	// Spans are the legal positions, in memory slices.
	Spans []Span
}

// Span is a position on a GPU: memory slices Start … Start+Size-1.
type Span struct{ Start, Size int }

func (s Span) end() int { return s.Start + s.Size }

// Facts is what decides, beside the profiles, what a GPU offers.
type Facts struct {
	PCIAddress string
	// Capable is true when the GPU knows MIG at all.
	Capable bool
	// On is the current MIG mode.
	On bool
	// Switchable is true when this driver may change the mode: Hopper and
	// later do it without a reset, Ampere does not, a vGPU guest may not.
	Switchable bool
	// NeedsReset is true when this driver may change the mode by a reset of the GPU:
	// Ampere, unless it is a vGPU.
	NeedsReset bool
	// Memory is what a process on the whole GPU can use, in bytes.
	Memory int64
	// Multiprocessors is the number of SMs of the GPU, zero when unknown.
	Multiprocessors int64
}

// offers decides whether the whole GPU and whether its MIG placements are published.
// What would need a mode that we do not switch is not published.
func (f Facts) offers() (whole, mig bool) {
	switch {
	case !f.Capable:
		return true, false
	case f.Switchable:
		return true, true
	}
	return !f.On, f.On
}

// Partitionable reports whether the GPU can be partitioned, by claims or by a profile.
func (f Facts) Partitionable() bool {
	_, mig := f.offers()
	return mig || f.Capable && f.NeedsReset
}

// Devices turns what a GPU can do into its placements, the most preferred
// first, and the counters that keep them apart.
func Devices(f Facts, profiles []Profile) ([]gpu.Placement, gpu.Counters) {
	offerWhole, offerMIG := f.offers()
	var offered []Profile
	if offerMIG {
		offered = profiles
	}
	l := layoutOf(offered, f.Memory)
	if f.Capable && f.NeedsReset {
		// The counters of both modes: a reset then changes the devices only, which is
		// one write to the API server.
		l = layoutOf(profiles, f.Memory)
	}
	counters := l.counters()

	var all []gpu.Placement
	for _, p := range ordered(offered) {
		all = append(all, gpu.Placement{
			GPU:          f.PCIAddress,
			Type:         gpu.TypeMIG,
			Profile:      p.Name,
			Start:        p.at.Start,
			Size:         p.at.Size,
			Memory:       p.Memory,
			ComputeUnits: p.Multiprocessors,
			Engines:      maps.Clone(p.Engines),
			Isolation:    gpu.IsolationHardware,
			Consumes:     l.consumption(p),
			StaticOnly:   !slices.Contains(p.forClaims(), p.at),
		})
	}
	if offerWhole {
		all = append(all, wholeGPU(f, profiles, l.all()))
	}
	return all, counters
}

// Other is what Devices answers for the mode that the GPU is not in, nil unless a
// reset of the GPU lies between the two.
func Other(f Facts, profiles []Profile) *gpu.Offer {
	if !f.Capable || !f.NeedsReset {
		return nil
	}
	f.On = !f.On
	var o gpu.Offer
	o.Placements, o.Counters = Devices(f, profiles)
	return &o
}

// Multiprocessors is the number of SMs of the GPU. If NVML does not report it, the largest profile
// has them all.
func Multiprocessors(f Facts, profiles []Profile) int64 {
	if f.Multiprocessors > 0 {
		return f.Multiprocessors
	}
	return largest(profiles, func(p Profile) int64 { return p.Multiprocessors })
}

// wholeGPU is the placement without partitions.
func wholeGPU(f Facts, profiles []Profile, takes gpu.Counters) gpu.Placement {
	engines := map[string]int64{}
	for _, p := range profiles {
		for engine, n := range p.Engines {
			engines[engine] = max(engines[engine], n)
		}
	}
	if len(engines) == 0 {
		engines = nil
	}
	return gpu.Placement{
		GPU:          f.PCIAddress,
		Type:         gpu.TypeGPU,
		Memory:       f.Memory,
		ComputeUnits: Multiprocessors(f, profiles),
		Engines:      engines,
		Isolation:    gpu.IsolationHardware,
		Consumes:     takes,
	}
}

// placement is a profile at one position.
type placement struct {
	Profile
	at Span
}

// ordered lists all placements of a GPU in the order in which the scheduler should
// try them, which is policy: it takes the first that fits, so the placement that
// wastes the least room comes first. Small before large, few compute slices before
// many (1g.20gb before 2g.20gb), plain before a variant that takes a scarce
// engine, and high positions before low ones, because 4g and 7g start at 0.
func ordered(profiles []Profile) []placement {
	var placements []placement
	for _, p := range profiles {
		for _, at := range p.Spans {
			placements = append(placements, placement{Profile: p, at: at})
		}
	}
	slices.SortFunc(placements, func(a, b placement) int {
		return cmp.Or(
			cmp.Compare(a.at.Size, b.at.Size),
			cmp.Compare(a.Slices, b.Slices),
			comparePlain(VariantIn(a.Name), VariantIn(b.Name)),
			-cmp.Compare(a.at.Start, b.at.Start),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return placements
}

// manySpans is from how many positions on claims are offered every second one.
const manySpans = 5

// forClaims returns the positions that claims are offered. A GPU can have one instance of a profile
// with the only engine of its kind ("+me"), so not every position is worth a device, which costs the
// whole cluster memory and time. With every second one, as many claims for 1g.10gb+me wait as with
// all seven, except for 0.2 % to 3 % of them in churns of several profiles at loads from 0.6 to 0.9;
// with the first and the last, 1 % to 8 % (test/bench/churn.go).
func (p Profile) forClaims() []Span {
	if p.Max != 1 || len(p.Spans) < manySpans {
		return p.Spans
	}
	all := slices.SortedFunc(slices.Values(p.Spans), func(a, b Span) int { return cmp.Compare(b.Start, a.Start) })
	var some []Span
	for i := 0; i < len(all); i += 2 {
		some = append(some, all[i])
	}
	return some
}

func comparePlain(a, b Variant) int {
	switch {
	case a == Plain && b != Plain:
		return -1
	case a != Plain && b == Plain:
		return 1
	}
	return 0
}
