package mig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// beside lists the counters that are neither memory slices nor memory.
func beside(counters gpu.Counters) map[string]int64 {
	rest := map[string]int64{}
	for name, n := range counters {
		if !strings.HasPrefix(name, "memory-slice-") && name != names.CounterMemory {
			rest[name] = n
		}
	}
	return rest
}

func upTo(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestCountersOfModels(t *testing.T) {
	for _, test := range []struct {
		model    string
		profiles []Profile
		slices   []int
		beside   map[string]int64
	}{
		// JPEG and OFA limit +me alike; decoders cannot run out while OFA does not.
		{"A30", a30(), upTo(4), map[string]int64{"ofa-engines": 1}},
		{"A100", a100(), upTo(8), map[string]int64{"ofa-engines": 1}},
		{"H100", h100(), upTo(8), map[string]int64{"ofa-engines": 1}},
		// +me.all takes all decoders, and with them all encoders and JPEG engines.
		{"RTX PRO 6000", rtxPro6000(), []int{0, 3, 6, 9}, map[string]int64{"ofa-engines": 1, "decoders": 4}},
	} {
		t.Run(test.model, func(t *testing.T) {
			counters := layoutOf(test.profiles, 1).counters()
			assert.Equal(t, test.beside, beside(counters))
			for _, slice := range test.slices {
				assert.EqualValues(t, 1, counters[fmt.Sprintf("memory-slice-%d", slice)])
			}
			assert.Len(t, counters, 1+len(test.slices)+len(test.beside))
		})
	}
}

// What the counters allow must be what the hardware allows: no set of placements that
// takes more of an engine than there is, and every profile as often as NVML
// says, no more and no less.
func TestCountersSayExactlyWhatFits(t *testing.T) {
	for model, profiles := range map[string][]Profile{"A30": a30(), "A100": a100(), "H100": h100(), "RTX PRO 6000": rtxPro6000()} {
		t.Run(model, func(t *testing.T) {
			l := layoutOf(profiles, 1)
			for _, r := range parts(profiles) {
				assert.LessOrEqual(t, peak(profiles, r.takes, l.scarce), r.total, r.counter)
			}
			for _, p := range profiles {
				assert.EqualValues(t, p.Max, peak([]Profile{p}, func(Profile) int64 { return 1 }, l.scarce), p.Name)
			}
		})
	}
}

// An exhaustive look at all sets of placements of one GPU, against the arithmetic
// that the scheduler does with the counters.
func TestEverySetOfCutsOfA30(t *testing.T) {
	profiles := a30()
	l := layoutOf(profiles, 1)
	total := l.counters()
	placements := ordered(profiles)
	for set := range 1 << len(placements) {
		sum := gpu.Counters{}
		engines := map[string]int64{}
		free := true
		var taken [4]bool
		for i, c := range placements {
			if set&(1<<i) == 0 {
				continue
			}
			sum.Add(l.consumption(c))
			for engine, n := range c.Engines {
				engines[engine] += n
			}
			for s := c.at.Start; s < c.at.end(); s++ {
				free = free && !taken[s]
				taken[s] = true
			}
		}
		legal := free && engines[CopyEngines] <= 4 && engines[Decoders] <= 4 && engines[JPEGEngines] <= 1 && engines[OFAEngines] <= 1
		require.Equal(t, legal, sum.Exceeds(total) == "", "placements %b", set)
	}
}

func TestPeak(t *testing.T) {
	one := func(Profile) int64 { return 1 }
	p := func(starts []int, size int) Profile {
		var spans []Span
		for _, s := range starts {
			spans = append(spans, Span{s, size})
		}
		return Profile{Spans: spans}
	}
	for _, test := range []struct {
		name     string
		profiles []Profile
		want     int64
	}{
		{"no profiles", nil, 0},
		{"side by side", []Profile{p([]int{0, 1, 2}, 1)}, 3},
		{"overlapping starts", []Profile{p([]int{0, 1, 2, 3}, 2)}, 2},
		{"a gap", []Profile{p([]int{0, 5}, 1)}, 2},
		{"small beside large", []Profile{p([]int{0}, 4), p([]int{4, 5}, 1)}, 3},
		{"one slice twice", []Profile{p([]int{3}, 1), p([]int{3}, 1)}, 1},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, peak(test.profiles, one, nil)) })
	}
}

// A GPU of the future whose limit no engine explains still gets it right.
func TestProfileThatFitsLessOftenThanItsEnginesSay(t *testing.T) {
	profiles := table([]row{
		{"1g.10gb", 1, 1, ones, 16, [5]int64{1, 1, 0, 1, 0}, 7},
		{"1g.10gb+nvl", 1, 1, ones, 16, [5]int64{1, 1, 0, 1, 0}, 2},
		{"7g.80gb", 7, 8, []int{0}, 132, [5]int64{8, 7, 0, 7, 0}, 1},
	})
	l := layoutOf(profiles, 1)
	assert.Equal(t, map[string]int64{"instances-1g-10gb-plus-nvl": 2}, beside(l.counters()))
	assert.Contains(t, l.consumption(placement{Profile: profiles[1], at: Span{3, 1}}), "instances-1g-10gb-plus-nvl")
	assert.NotContains(t, l.consumption(placement{Profile: profiles[0], at: Span{3, 1}}), "instances-1g-10gb-plus-nvl")
}

// The memory counter never keeps placements apart that fit together, and the whole GPU always
// excludes every placement, whatever sizes the driver tells.
func TestMemoryCounter(t *testing.T) {
	for name, test := range map[string]struct {
		gpu, each, want int64
	}{
		"as much as the placements":       {70, 10, 70},
		"the placements add up to more":   {60, 10, 70},
		"the placements leave a rest":     {80, 10, 80},
		"sizes that nobody tells":         {0, 0, 7},
		"placements whose size is untold": {80, 0, 80},
	} {
		t.Run(name, func(t *testing.T) {
			profiles := table([]row{{"1g", 1, 1, ones, 16, [5]int64{1}, 7}, {"7g", 7, 7, []int{0}, 132, [5]int64{7}, 1}})
			profiles[0].Memory, profiles[1].Memory = test.each, test.each*7
			placements, counters := Devices(Facts{PCIAddress: "0000:c1:00.0", Capable: true, Switchable: true, Memory: test.gpu}, profiles)
			assert.Equal(t, test.want, counters[names.CounterMemory])
			all := gpu.Counters{}
			whole := placements[len(placements)-1]
			require.Equal(t, gpu.TypeGPU, whole.Type)
			for _, p := range placements[:7] {
				all.Add(p.Consumes)
				both := gpu.Counters{}
				both.Add(p.Consumes)
				both.Add(whole.Consumes)
				assert.Equal(t, names.CounterMemory, both.Exceeds(counters), "%s beside the whole GPU", p.Name())
			}
			assert.Empty(t, all.Exceeds(counters), "all small placements together")
		})
	}
}
