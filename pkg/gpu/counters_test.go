package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestCounters(t *testing.T) {
	takes := gpu.Counters{"memory-slice-1": 1, "decoders": 2, "memory-slice-0": 1}
	assert.Equal(t, []string{"decoders", "memory-slice-0", "memory-slice-1"}, takes.Names())
	assert.Empty(t, gpu.Counters(nil).Names())

	sum := gpu.Counters{"decoders": 1}
	sum.Add(takes)
	sum.Add(nil)
	assert.Equal(t, gpu.Counters{"memory-slice-0": 1, "memory-slice-1": 1, "decoders": 3}, sum)
	assert.EqualValues(t, 2, takes["decoders"], "what is added stays as it was")
}

func TestCountersExceed(t *testing.T) {
	total := gpu.Counters{"a": 1, "b": 2, names.CounterMemory: 80 << 30}
	for _, test := range []struct {
		name  string
		takes gpu.Counters
		want  string
	}{
		{"nothing", nil, ""},
		{"all there is", total, ""},
		{"part of it", gpu.Counters{"b": 1}, ""},
		{"one too many", gpu.Counters{"a": 1, "b": 3}, "b"},
		{"several: the first by name", gpu.Counters{"b": 9, "a": 9}, "a"},
		{"what the GPU does not have", gpu.Counters{"ofa-engines": 1}, "ofa-engines"},
		{"none of what the GPU does not have", gpu.Counters{"ofa-engines": 0}, ""},
		{"one byte too many", gpu.Counters{names.CounterMemory: 80<<30 + 1}, names.CounterMemory},
	} {
		assert.Equal(t, test.want, test.takes.Exceeds(total), test.name)
	}
}

// h100 is as much of an H100 as the tests below need.
func h100() gpu.GPU {
	g := gpu.GPU{PCIAddress: "0000:c1:00.0", Counters: gpu.Counters{"ofa-engines": 1}}
	for _, name := range []string{"memory-slice-0", "memory-slice-1", "memory-slice-2", "memory-slice-3"} {
		g.Counters[name] = 1
	}
	add := func(kind gpu.Type, profile string, start, size int, takes gpu.Counters) {
		g.Placements = append(g.Placements, gpu.Placement{
			GPU: g.PCIAddress, Type: kind, Profile: profile, Start: start, Size: size, Consumes: takes,
		})
	}
	add(gpu.TypeMIG, "1g.10gb", 3, 1, gpu.Counters{"memory-slice-3": 1})
	add(gpu.TypeMIG, "1g.10gb", 2, 1, gpu.Counters{"memory-slice-2": 1})
	add(gpu.TypeMIG, "1g.10gb+me", 3, 1, gpu.Counters{"memory-slice-3": 1, "ofa-engines": 1})
	add(gpu.TypeMIG, "1g.10gb+me", 2, 1, gpu.Counters{"memory-slice-2": 1, "ofa-engines": 1})
	add(gpu.TypeMIG, "2g.20gb", 2, 2, gpu.Counters{"memory-slice-2": 1, "memory-slice-3": 1})
	add(gpu.TypeMIG, "2g.20gb", 0, 2, gpu.Counters{"memory-slice-0": 1, "memory-slice-1": 1})
	add(gpu.TypeGPU, "", 0, 0, g.Counters)
	return g
}

func TestConflict(t *testing.T) {
	g := h100()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"mig-1g-10gb-3", "mig-1g-10gb-2", false},
		{"mig-1g-10gb-3", "mig-1g-10gb-3", true}, // itself
		{"mig-1g-10gb-3", "mig-2g-20gb-2", true},
		{"mig-1g-10gb-3", "mig-2g-20gb-0", false},
		{"mig-2g-20gb-2", "mig-2g-20gb-0", false},
		{"mig-1g-10gb-plus-me-3", "mig-1g-10gb-2", false},
		{"mig-1g-10gb-plus-me-3", "mig-1g-10gb-plus-me-2", true}, // there is one OFA engine
		{"mig-1g-10gb-plus-me-3", "mig-1g-10gb-3", true},
		{"", "mig-1g-10gb-3", true},
		{"", "mig-2g-20gb-0", true},
		{"", "", true},
	} {
		a, b := placement(t, g, test.a), placement(t, g, test.b)
		assert.Equal(t, test.want, g.Conflict(a, b), "%s with %s", a.Name(), b.Name())
		assert.Equal(t, test.want, g.Conflict(b, a), "%s with %s", b.Name(), a.Name())
	}
}

// placement finds a placement by the end of its device name.
func placement(t *testing.T, g gpu.GPU, end string) gpu.Placement {
	t.Helper()
	name := g.Name()
	if end != "" {
		name += "-" + end
	}
	p, ok := g.Placement(name)
	if !ok {
		t.Fatalf("no placement %s", name)
	}
	return p
}
