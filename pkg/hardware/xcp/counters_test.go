package xcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpus are those of all chips in all memory modes in which they offer anything,
// and some that no chip is like.
func gpus() map[string]Facts {
	all := map[string]Facts{
		// Modes that are no multiples of each other.
		"twelve XCCs":                     {XCCs: 12, Memory: 96 << 30, MemoryMode: NPS1, Modes: []Mode{SPX, DPX, TPX, QPX}},
		"two XCCs":                        {XCCs: 2, Memory: 96<<30 - 1, MemoryMode: NPS1, Modes: []Mode{SPX, CPX}},
		"no memory told":                  {XCCs: 4, MemoryMode: NPS1, Modes: []Mode{SPX, DPX, CPX}},
		"finer elsewhere":                 {XCCs: 8, Memory: 96 << 30, MemoryMode: NPS2, Modes: []Mode{DPX}, Elsewhere: []Mode{CPX, QPX}},
		"no memory told, finer elsewhere": {XCCs: 8, MemoryMode: NPS1, Modes: []Mode{SPX, DPX}, Elsewhere: []Mode{CPX}},
		"no finest":                       {XCCs: 8, Memory: 96 << 30, MemoryMode: NPS1, Modes: []Mode{SPX, DPX, QPX}},
	}
	for _, c := range chips() {
		for _, memory := range c.MemoryModes {
			if f := c.facts(memory); len(f.Modes) > 0 {
				all[c.name+" under "+string(memory)] = f
			}
		}
	}
	return all
}

func TestCounters(t *testing.T) {
	for _, test := range []struct {
		chip   string
		memory MemoryMode
		count  int
	}{
		{"MI300X", NPS1, 15},
		{"MI300X", NPS2, 15},
		{"MI300X", NPS4, 15},
		{"MI300A", NPS1, 10},
		{"MI308X", NPS1, 7},
		{"MI308X", NPS4, 7},
		{"MI350X", NPS2, 15},
	} {
		_, counters := Devices(chipOf(test.chip).facts(test.memory))
		assert.Len(t, counters, test.count, "%s under %s: %v", test.chip, test.memory, counters)
	}
}

// A change of the memory mode leaves the counters as they are.
func TestCountersDoNotFollowTheMemoryMode(t *testing.T) {
	for _, c := range chips() {
		var first gpu.Counters
		for _, memory := range c.MemoryModes {
			_, counters := Devices(c.facts(memory))
			if first == nil {
				first = counters
			}
			assert.Equal(t, first, counters, "%s under %s", c.name, memory)
		}
	}
}

func TestConsumption(t *testing.T) {
	f := chipOf("MI300X").facts(NPS1)
	g := gpuWith(f)
	assert.Equal(t, gpu.Counters{
		"memory": f.Memory,
		"d0":     8, "d1": 8,
		"q0": 8, "q1": 8, "q2": 8, "q3": 8,
		"c0": 1, "c1": 1, "c2": 1, "c3": 1, "c4": 1, "c5": 1, "c6": 1, "c7": 1,
	}, g.Counters)
	for name, want := range map[string]gpu.Counters{
		"-cpx-3": {"memory": f.Memory / 8, "c3": 1, "d0": 1, "d1": 1, "q0": 1, "q1": 1, "q2": 1, "q3": 1},
		"-qpx-2": {"memory": f.Memory / 4, "q2": 8, "d0": 2, "d1": 2},
		"-dpx-1": {"memory": f.Memory / 2, "d1": 8},
		"":       {"memory": f.Memory},
	} {
		p, ok := g.Placement(g.Name() + name)
		require.True(t, ok, name)
		assert.Equal(t, want, p.Consumes, name)
	}
}

// Memory counts evenly whatever KFD shows: the last partition under NPS4 is
// smaller than the others, and one that is larger than an even part would
// otherwise not fit beside its equals.
func TestMemoryCountsEvenly(t *testing.T) {
	f := chipOf("MI308X").facts(NPS4)
	f.Seen = map[Mode][]int64{CPX: {90 << 30, 90 << 30, 90 << 30, 90 << 30}}
	g := gpuWith(f)
	sum := gpu.Counters{}
	for _, p := range g.Placements {
		assert.EqualValues(t, 90<<30, p.Memory)
		assert.Equal(t, f.Memory/4, p.Consumes[names.CounterMemory])
		sum.Add(p.Consumes)
	}
	assert.Empty(t, sum.Exceeds(g.Counters))
}

// TestEverySetOfDevices looks at all sets of devices of a GPU with the
// arithmetic of the scheduler: devices fit together exactly if all of them are of
// one mode, and then none of them fits a second time.
func TestEverySetOfDevices(t *testing.T) {
	for name, f := range gpus() {
		t.Run(name, func(t *testing.T) {
			g := gpuWith(f)
			sets, fitting := 0, 0
			var visit func(next int, chosen []gpu.Placement, sum gpu.Counters)
			visit = func(next int, chosen []gpu.Placement, sum gpu.Counters) {
				if next < len(g.Placements) {
					visit(next+1, chosen, sum)
					more := gpu.Counters{}
					more.Add(sum)
					more.Add(g.Placements[next].Consumes)
					visit(next+1, append(chosen[:len(chosen):len(chosen)], g.Placements[next]), more)
					return
				}
				sets++
				fits := sum.Exceeds(g.Counters) == ""
				if fits != oneMode(chosen) { // there are tens of thousands: names are for those that fail
					require.Equal(t, oneMode(chosen), fits, "granted: %v", deviceNames(chosen))
				}
				if !fits {
					return
				}
				fitting++
				for _, p := range chosen {
					again := gpu.Counters{}
					again.Add(sum)
					again.Add(p.Consumes)
					require.NotEmpty(t, again.Exceeds(g.Counters), "%s twice, in %v", p.Name(), deviceNames(chosen))
				}
			}
			visit(0, nil, gpu.Counters{})
			assert.Equal(t, 1<<len(g.Placements), sets)
			want := 1 // the empty set
			for _, m := range f.Modes {
				want += 1<<m.Count(f.XCCs) - 1
			}
			assert.Equal(t, want, fitting)
		})
	}
}

func oneMode(devices []gpu.Placement) bool {
	for _, p := range devices {
		if p.Profile != devices[0].Profile {
			return false
		}
	}
	return true
}

func deviceNames(devices []gpu.Placement) []string {
	var all []string
	for _, p := range devices {
		all = append(all, p.Name())
	}
	return all
}
