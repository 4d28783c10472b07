package mig

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestOrderIsPolicy(t *testing.T) {
	var got []string
	for _, c := range ordered(h100()) {
		got = append(got, fmt.Sprintf("%s@%d", c.Name, c.at.Start))
	}
	assert.Equal(t, []string{
		"1g.10gb@6", "1g.10gb@5", "1g.10gb@4", "1g.10gb@3", "1g.10gb@2", "1g.10gb@1", "1g.10gb@0",
		"1g.10gb+me@6", "1g.10gb+me@5", "1g.10gb+me@4", "1g.10gb+me@3", "1g.10gb+me@2", "1g.10gb+me@1", "1g.10gb+me@0",
		"1g.20gb@6", "1g.20gb@4", "1g.20gb@2", "1g.20gb@0",
		"2g.20gb@4", "2g.20gb@2", "2g.20gb@0",
		"3g.40gb@4", "3g.40gb@0",
		"4g.40gb@0",
		"7g.80gb@0",
	}, got)
}

func TestOrderOfVariants(t *testing.T) {
	var got []string
	for _, c := range ordered(rtxPro6000()) {
		if c.at.Start == 0 {
			got = append(got, c.Name)
		}
	}
	assert.Equal(t, []string{
		"1g.24gb", "1g.24gb+gfx", "1g.24gb+me", "1g.24gb+me.all", "1g.24gb-me",
		"2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me",
		"4g.96gb", "4g.96gb+gfx",
	}, got)
}

func TestPartitionable(t *testing.T) {
	for want, all := range map[bool][]Facts{
		true:  {{Capable: true, Switchable: true}, {Capable: true, NeedsReset: true}, {Capable: true, On: true}},
		false: {{}, {NeedsReset: true}, {Capable: true}}, // the last is a vGPU without MIG
	} {
		for _, f := range all {
			assert.Equal(t, want, f.Partitionable(), "%+v", f)
		}
	}
}

// Claims are offered every second position of a profile that a GPU can have once, if it has many.
func TestPositionsForClaims(t *testing.T) {
	spans := func(starts ...int) (all []Span) {
		for _, start := range starts {
			all = append(all, Span{start, 1})
		}
		return all
	}
	seven := spans(0, 1, 2, 3, 4, 5, 6)
	assert.Equal(t, spans(6, 4, 2, 0), Profile{Max: 1, Spans: seven}.forClaims())
	assert.Equal(t, seven, Profile{Max: 7, Spans: seven}.forClaims())
	assert.Equal(t, spans(0, 3, 6, 9), Profile{Max: 1, Spans: spans(0, 3, 6, 9)}.forClaims())

	placements, _ := Devices(Facts{Capable: true, Switchable: true}, h100())
	var forClaims, static []string
	for _, p := range placements {
		switch {
		case p.StaticOnly:
			static = append(static, fmt.Sprintf("%s@%d", p.Profile, p.Start))
		case p.Profile == "1g.10gb+me":
			forClaims = append(forClaims, fmt.Sprintf("%s@%d", p.Profile, p.Start))
		}
	}
	assert.Equal(t, []string{"1g.10gb+me@6", "1g.10gb+me@4", "1g.10gb+me@2", "1g.10gb+me@0"}, forClaims)
	assert.Equal(t, []string{"1g.10gb+me@5", "1g.10gb+me@3", "1g.10gb+me@1"}, static)
}

func TestOrderDoesNotDependOnNVMLs(t *testing.T) {
	forward, backward := h100(), h100()
	for i, j := 0, len(backward)-1; i < j; i, j = i+1, j-1 {
		backward[i], backward[j] = backward[j], backward[i]
	}
	assert.Equal(t, len(ordered(forward)), len(ordered(backward)))
	for i, c := range ordered(forward) {
		assert.Equal(t, c.Name, ordered(backward)[i].Name)
		assert.Equal(t, c.at, ordered(backward)[i].at)
	}
}

func TestWhatIsOffered(t *testing.T) {
	for _, test := range []struct {
		name       string
		facts      Facts
		whole, mig bool
	}{
		{"no MIG", Facts{}, true, false},
		{"Hopper, mode off", Facts{Capable: true, Switchable: true}, true, true},
		{"Hopper, mode on", Facts{Capable: true, Switchable: true, On: true}, true, true},
		{"Ampere, mode off", Facts{Capable: true}, true, false},
		{"Ampere, mode on", Facts{Capable: true, On: true}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			whole, mig := test.facts.offers()
			assert.Equal(t, test.whole, whole, "whole GPU")
			assert.Equal(t, test.mig, mig, "MIG")
		})
	}
}

func TestDevicesOfHopper(t *testing.T) {
	f := Facts{PCIAddress: "0000:c1:00.0", Capable: true, Switchable: true, Memory: 80 << 30}
	placements, counters := Devices(f, h100())
	require.Len(t, placements, 26)

	whole := placements[len(placements)-1]
	assert.Equal(t, "gpu-0000-c1-00-0", whole.Name(), "the whole GPU comes last")
	assert.Equal(t, gpu.Counters{names.CounterMemory: 80 << 30}, whole.Consumes, "and takes all memory, which everything else needs some of")
	assert.Equal(t, whole.Consumes, placements[len(placements)-2].Consumes, "so does the 7g")
	assert.EqualValues(t, 80<<30, whole.Memory)
	assert.EqualValues(t, 132, whole.ComputeUnits, "from the largest profile")
	assert.Equal(t, map[string]int64{CopyEngines: 8, Decoders: 7, JPEGEngines: 7, OFAEngines: 1}, whole.Engines)

	g := gpu.GPU{PCIAddress: f.PCIAddress, Counters: counters, Placements: placements}
	for _, p := range placements {
		assert.Empty(t, p.Consumes.Exceeds(counters), "%s fits an empty GPU", p.Name())
		assert.True(t, g.Conflict(p, whole), "%s excludes the whole GPU", p.Name())
		assert.Equal(t, gpu.IsolationHardware, p.Isolation)
	}
	me6, _ := g.Placement("gpu-0000-c1-00-0-mig-1g-10gb-plus-me-6")
	me5, _ := g.Placement("gpu-0000-c1-00-0-mig-1g-10gb-plus-me-5")
	assert.True(t, g.Conflict(me6, me5), "one OFA engine, one +me")
	assert.Equal(t, gpu.Counters{"memory": 1, "memory-slice-6": 1, "ofa-engines": 1}, me6.Consumes)
}

func TestPlacementsShareNoMaps(t *testing.T) {
	placements, counters := Devices(Facts{Capable: true, Switchable: true}, h100())
	placements[0].Engines[Decoders] = 99
	placements[0].Consumes["memory-slice-6"] = 99
	placements[len(placements)-1].Consumes["memory-slice-6"] = 99
	assert.EqualValues(t, 1, placements[1].Engines[Decoders])
	assert.EqualValues(t, 1, counters["memory-slice-6"])
}

func TestGPUWithoutMIG(t *testing.T) {
	placements, counters := Devices(Facts{PCIAddress: "0000:01:00.0", Memory: 23 << 30, Multiprocessors: 58}, nil)
	require.Len(t, placements, 1)
	assert.Equal(t, gpu.Counters{names.CounterMemory: 23 << 30}, counters)
	assert.Equal(t, counters, placements[0].Consumes)
	assert.EqualValues(t, 58, placements[0].ComputeUnits)
	assert.Nil(t, placements[0].Engines)
}

func TestAmpereWithModeOffHasOnlyMemory(t *testing.T) {
	placements, counters := Devices(Facts{Capable: true, Memory: 39 << 30, Multiprocessors: 108}, a100())
	require.Len(t, placements, 1)
	assert.Equal(t, gpu.TypeGPU, placements[0].Type)
	assert.Equal(t, gpu.Counters{names.CounterMemory: 39 << 30}, counters)
	assert.EqualValues(t, 108, placements[0].ComputeUnits)
}

func TestOther(t *testing.T) {
	for _, on := range []bool{false, true} {
		f := Facts{Capable: true, NeedsReset: true, On: on, Memory: 39 << 30, Multiprocessors: 108}
		other := Other(f, a100())
		require.NotNil(t, other)
		f.On = !on
		placements, counters := Devices(f, a100())
		assert.Equal(t, &gpu.Offer{Counters: counters, Placements: placements}, other)
	}
	_, off := Devices(Facts{Capable: true, NeedsReset: true, Memory: 39 << 30}, a100())
	_, on := Devices(Facts{Capable: true, NeedsReset: true, On: true, Memory: 39 << 30}, a100())
	assert.Equal(t, on, off, "a change of the mode leaves the counters as they are")
	for name, f := range map[string]Facts{
		"no MIG": {NeedsReset: true}, "Hopper": {Capable: true, Switchable: true}, "vGPU": {Capable: true},
	} {
		assert.Nil(t, Other(f, a100()), name)
	}
}

func TestCoresPerMultiprocessor(t *testing.T) {
	for capability, want := range map[[2]int]int{
		{6, 0}: 64, {6, 1}: 128, {7, 0}: 64, {7, 5}: 64, {8, 0}: 64, {8, 6}: 128, {8, 9}: 128, {9, 0}: 128,
		{10, 3}: 128, {11, 0}: 128, {12, 1}: 128, {3, 5}: 0, {13, 0}: 0,
	} {
		assert.Equal(t, want, CoresPerMultiprocessor(capability[0], capability[1]), "%v", capability)
	}
}
