package xcp

import (
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Facts is what decides what a GPU offers.
type Facts struct {
	PCIAddress string
	// XCCs is the number of accelerator complexes of the whole GPU.
	XCCs int
	// ComputeUnits is the number of compute units of the whole GPU.
	ComputeUnits int64
	// Memory is that of the whole GPU, in bytes: mem_info_vram_total.
	Memory int64
	// MemoryMode is the one that the GPU is in, empty for a GPU without
	// modes.
	MemoryMode MemoryMode
	// Modes are the compute modes that the GPU can be in now, in any order.
	Modes []Mode
	// Elsewhere are those that it can be in under other memory modes, in any order, as
	// far as that is known. Nothing of them is offered, but their locks are there, so
	// that the counters stay as they are when the memory mode changes.
	Elsewhere []Mode
	// Seen is the memory of each partition as KFD told it when the mode was live.
	// It beats the calculation; zero means that KFD had no node for the partition.
	Seen map[Mode][]int64
	// Engines counts the media engines of one partition of a mode, by capacity
	// name.
	Engines map[Mode]map[string]int64
}

// cuttable reports whether the GPU has modes at all.
func (f Facts) cuttable() bool { return f.MemoryMode != "" && len(f.Modes) > 0 }

// divisions lists the modes that the GPU offers, finest first.
func (f Facts) divisions() []division { return f.divided(f.Modes) }

// locks lists the modes that the GPU offers under any memory mode, finest first.
func (f Facts) locks() []division { return f.divided(slices.Concat(f.Modes, f.Elsewhere)) }

// divided lists into what modes divide the GPU, finest first. A mode that the
// XCCs do not divide into is not offered, whoever says that it is legal. Of a GPU
// whose driver does not report the XCCs there is the whole only.
func (f Facts) divided(into []Mode) []division {
	var all []division
	for _, m := range modes {
		if n := m.Count(max(f.XCCs, 1)); n > 0 && slices.Contains(into, m) {
			all = append(all, division{m, n})
		}
	}
	return all
}

// Partitionable reports whether the GPU has a mode with several partitions, in any memory mode.
func (f Facts) Partitionable() bool {
	return f.cuttable() && slices.ContainsFunc(f.locks(), func(d division) bool { return d.n > 1 })
}

// Devices turns what a GPU can do into its placements, the most preferred
// first, and the counters that keep them apart.
//
// The order is policy, since the scheduler takes the first that fits: the finest
// mode first, so that a claim for any partition spoils least, the whole GPU
// last. It does not follow the live mode: the devices are the same in all of
// them, and a switch writes nothing to the API.
func Devices(f Facts) ([]gpu.Placement, gpu.Counters) {
	if !f.cuttable() {
		counters := gpu.Counters{names.CounterMemory: f.Memory}
		return []gpu.Placement{wholeGPU(f, "", maps.Clone(counters))}, counters
	}
	l := layout{xccs: f.XCCs, memory: f.Memory, divisions: f.divisions(), locks: f.locks()}
	counters := l.counters()
	var all []gpu.Placement
	for _, d := range l.divisions {
		if d.mode == SPX {
			all = append(all, wholeGPU(f, SPX, l.whole()))
			continue
		}
		all = append(all, partitions(f, l, d)...)
	}
	return all, counters
}

// partitions are the devices of one mode.
func partitions(f Facts, l layout, d division) []gpu.Placement {
	memory, seen := MemoryOf(f.Memory, f.MemoryMode, d.n), f.Seen[d.mode]
	all := make([]gpu.Placement, d.n)
	for i := range all {
		if i < len(seen) && seen[i] > 0 {
			memory[i] = seen[i]
		}
		all[i] = gpu.Placement{
			GPU:          f.PCIAddress,
			Type:         gpu.TypeXCP,
			Profile:      d.mode.Profile(),
			Start:        i,
			Memory:       memory[i],
			ComputeUnits: f.ComputeUnits / int64(d.n),
			Engines:      maps.Clone(f.Engines[d.mode]),
			Isolation:    isolation(f.MemoryMode, d.n),
			Consumes:     l.consumption(d, i),
		}
	}
	return all
}

// isolation says what keeps n partitions from each other's memory. Each has
// regions of its own, or the driver counts what it takes of a common one.
func isolation(memory MemoryMode, n int) gpu.Isolation {
	if n <= memory.Regions() {
		return gpu.IsolationHardware
	}
	return gpu.IsolationKernel
}

// wholeGPU is the placement without partitions. It takes all there is.
func wholeGPU(f Facts, m Mode, takes gpu.Counters) gpu.Placement {
	return gpu.Placement{
		GPU:          f.PCIAddress,
		Type:         gpu.TypeGPU,
		Profile:      m.Profile(),
		Memory:       f.Memory,
		ComputeUnits: f.ComputeUnits,
		Engines:      maps.Clone(f.Engines[m]),
		Isolation:    gpu.IsolationHardware,
		Consumes:     takes,
	}
}
