package xcp

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestOrderIsPolicy(t *testing.T) {
	for _, test := range []struct {
		chip   string
		memory MemoryMode
		want   []string
	}{
		{"MI300X", NPS1, []string{
			"-cpx-0", "-cpx-1", "-cpx-2", "-cpx-3", "-cpx-4", "-cpx-5", "-cpx-6", "-cpx-7",
			"-qpx-0", "-qpx-1", "-qpx-2", "-qpx-3", "-dpx-0", "-dpx-1", "",
		}},
		{"MI300A", NPS1, []string{"-cpx-0", "-cpx-1", "-cpx-2", "-cpx-3", "-cpx-4", "-cpx-5", "-tpx-0", "-tpx-1", "-tpx-2", ""}},
		{"MI308X", NPS1, []string{"-cpx-0", "-cpx-1", "-cpx-2", "-cpx-3", "-dpx-0", "-dpx-1", ""}},
		{"MI308X", NPS4, []string{"-cpx-0", "-cpx-1", "-cpx-2", "-cpx-3"}},
		{"MI300X", NPS2, []string{"-dpx-0", "-dpx-1"}},
	} {
		f := chipOf(test.chip).facts(test.memory)
		want := make([]string, len(test.want))
		for i, end := range test.want {
			want[i] = "gpu-0000-c1-00-0" + end
		}
		assert.Equal(t, want, deviceNames(gpuWith(f).Placements), "%s under %s", test.chip, test.memory)
		slices.Reverse(f.Modes)
		f.Modes = append(f.Modes, f.Modes[0])
		assert.Equal(t, want, deviceNames(gpuWith(f).Placements), "whatever the order in which the driver lists the modes")
	}
}

// TestDevices: compute units are those of AMD's tables, which KFD confirmed for
// MI300X in SPX (304), DPX (152) and CPX (simd_count 152, four to a unit) and for
// MI308X in CPX (simd_count 80).
func TestDevices(t *testing.T) {
	const hardware, kernel = gpu.IsolationHardware, gpu.IsolationKernel
	for _, test := range []struct {
		chip      string
		memory    MemoryMode
		mode      Mode
		n         int
		units     int64
		isolation gpu.Isolation
	}{
		{"MI300X", NPS1, SPX, 1, 304, hardware},
		{"MI300X", NPS1, DPX, 2, 152, kernel},
		{"MI300X", NPS1, QPX, 4, 76, kernel},
		{"MI300X", NPS1, CPX, 8, 38, kernel},
		{"MI300X", NPS2, DPX, 2, 152, hardware},
		{"MI300X", NPS4, QPX, 4, 76, hardware},
		{"MI300X", NPS4, CPX, 8, 38, kernel},
		{"MI325X", NPS1, CPX, 8, 38, kernel},
		{"MI300A", NPS1, SPX, 1, 228, hardware},
		{"MI300A", NPS1, TPX, 3, 76, kernel},
		{"MI300A", NPS1, CPX, 6, 38, kernel},
		{"MI308X", NPS1, DPX, 2, 40, kernel},
		{"MI308X", NPS1, CPX, 4, 20, kernel},
		{"MI308X", NPS4, CPX, 4, 20, hardware},
		{"MI350X", NPS1, DPX, 2, 128, kernel},
		{"MI350X", NPS2, QPX, 4, 64, kernel},
		{"MI355X", NPS2, DPX, 2, 128, hardware},
		{"MI355X", NPS2, CPX, 8, 32, kernel},
	} {
		c := chipOf(test.chip)
		memory := MemoryOf(c.memory<<20, test.memory, test.n)
		found := 0
		for _, p := range gpuWith(c.facts(test.memory)).Placements {
			if p.Profile != test.mode.Profile() {
				continue
			}
			want := gpu.TypeXCP
			if test.mode == SPX {
				want = gpu.TypeGPU
			}
			assert.Equal(t, want, p.Type)
			assert.Equal(t, found, p.Start)
			assert.Equal(t, memory[found], p.Memory)
			assert.Equal(t, test.units, p.ComputeUnits, "%s in %s", test.chip, test.mode)
			assert.Equal(t, test.isolation, p.Isolation, "%s in %s under %s", test.chip, test.mode, test.memory)
			found++
		}
		assert.Equal(t, test.n, found, "%s in %s under %s", test.chip, test.mode, test.memory)
	}
}

// What KFD showed is believed. A partition without a node (63 of 64) has what was
// calculated.
func TestSeenMemoryBeatsTheCalculation(t *testing.T) {
	f := chipOf("MI308X").facts(NPS1)
	f.Seen = map[Mode][]int64{CPX: {1 << 30, 0, 3 << 30}, DPX: {5 << 30, 6 << 30, 7 << 30}}
	g := gpuWith(f)
	want := []int64{1 << 30, 49148 << 20, 3 << 30, 49148 << 20, 5 << 30, 6 << 30, f.Memory}
	for i, p := range g.Placements {
		assert.Equal(t, want[i], p.Memory, p.Name())
	}
	assert.Len(t, g.Placements, len(want), "nodes too many make no partitions")
}

// What is published is the same in every mode: what KFD shows of the live mode is
// what was calculated before. The numbers are of real machines.
func TestSwitchChangesNothing(t *testing.T) {
	for _, test := range []struct {
		chip   string
		memory MemoryMode
		seen   map[Mode][]int64
	}{
		{"MI300X", NPS1, map[Mode][]int64{DPX: {103070826496, 103070826496}}},
		{"MI308X", NPS4, map[Mode][]int64{CPX: {51539607552, 51539607552, 51539607552, 51522830336}}},
	} {
		f := chipOf(test.chip).facts(test.memory)
		before := gpuWith(f)
		f.Seen = test.seen
		assert.Equal(t, before, gpuWith(f), test.chip)
	}
}

func TestEngines(t *testing.T) {
	f := chipOf("MI300X").facts(NPS1)
	f.Engines = map[Mode]map[string]int64{SPX: {"decoders": 4, "jpegEngines": 32}, CPX: {"jpegEngines": 4}}
	g := gpuWith(f)
	whole, one := g.Placements[len(g.Placements)-1], g.Placements[0]
	assert.Equal(t, map[string]int64{"decoders": 4, "jpegEngines": 32}, whole.Engines)
	assert.Equal(t, map[string]int64{"jpegEngines": 4}, one.Engines)
	assert.Nil(t, g.Placements[8].Engines, "nothing is known of QPX")
}

func TestPlacementsShareNoMaps(t *testing.T) {
	f := chipOf("MI300X").facts(NPS1)
	f.Engines = map[Mode]map[string]int64{CPX: {"decoders": 1}}
	placements, counters := Devices(f)
	placements[0].Engines["decoders"] = 99
	placements[0].Consumes["d0"] = 99
	placements[len(placements)-1].Consumes[names.CounterMemory] = 99
	assert.EqualValues(t, 1, placements[1].Engines["decoders"])
	assert.EqualValues(t, 1, placements[1].Consumes["d0"])
	assert.EqualValues(t, 1, f.Engines[CPX]["decoders"])
	assert.Equal(t, f.Memory, counters[names.CounterMemory])
}

func TestGPUWithoutModes(t *testing.T) {
	for name, f := range map[string]Facts{
		"an MI210: no modes at all": {},
		"no memory mode":            {Modes: []Mode{SPX, CPX}, XCCs: 8},
		"no compute modes":          {MemoryMode: NPS1, XCCs: 8},
	} {
		f.PCIAddress, f.Memory, f.ComputeUnits = "0000:c1:00.0", 64<<30, 104
		g := gpuWith(f)
		require.Len(t, g.Placements, 1, name)
		whole := g.Placements[0]
		assert.Equal(t, "gpu-0000-c1-00-0", whole.Name())
		assert.Equal(t, gpu.TypeGPU, whole.Type)
		assert.Empty(t, whole.Profile, name)
		assert.EqualValues(t, 64<<30, whole.Memory)
		assert.EqualValues(t, 104, whole.ComputeUnits)
		assert.Equal(t, gpu.IsolationHardware, whole.Isolation)
		assert.Equal(t, gpu.Counters{names.CounterMemory: 64 << 30}, g.Counters)
		assert.Equal(t, g.Counters, whole.Consumes)
	}
}

// A mode that the XCCs do not divide into is not offered, whoever says that it is
// legal: its partitions could not be told apart by counters.
func TestModesThatTheChipCannotBeIn(t *testing.T) {
	f := chipOf("MI300X").facts(NPS1)
	f.Modes, f.Elsewhere = []Mode{SPX, TPX, "OPX"}, nil
	g := gpuWith(f)
	require.Len(t, g.Placements, 1)
	assert.Equal(t, "spx", g.Placements[0].Profile)
	assert.Equal(t, gpu.Counters{names.CounterMemory: f.Memory}, g.Counters)

	f.Modes = []Mode{TPX}
	assert.Empty(t, gpuWith(f).Placements, "not even the whole GPU: it cannot be in SPX")

	f.Modes, f.XCCs = []Mode{SPX, CPX}, 0
	assert.Equal(t, []string{"gpu-0000-c1-00-0"}, deviceNames(gpuWith(f).Placements), "a driver that does not tell the XCCs")
}

func TestPartitionable(t *testing.T) {
	for want, all := range map[bool][]Facts{
		true: {
			{XCCs: 8, MemoryMode: NPS1, Modes: []Mode{SPX, CPX}},
			{XCCs: 8, MemoryMode: NPS1, Modes: []Mode{SPX}, Elsewhere: []Mode{CPX}},
			{XCCs: 8, MemoryMode: NPS1, Modes: []Mode{CPX}}, // a virtual function in this mode
			{XCCs: 2, MemoryMode: NPS1, Modes: []Mode{SPX, CPX}},
		},
		false: {{}, {XCCs: 8, MemoryMode: NPS1, Modes: []Mode{SPX}}, {MemoryMode: NPS1, Modes: []Mode{SPX, CPX}}},
	} {
		for _, f := range all {
			assert.Equal(t, want, f.Partitionable(), "%+v", f)
		}
	}
}
