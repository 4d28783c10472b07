package gpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// modelGPUs is a GPU of each model that ships, in each MIG mode.
func modelGPUs(t testing.TB) (all []gpu.GPU) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range models.InventoryNames() {
		inventory, err := models.LoadInventory(name)
		require.NoError(t, err)
		for _, g := range inventory.Hardware("node") {
			if !seen[g.ProductName+g.MemoryMode] {
				seen[g.ProductName+g.MemoryMode] = true
				all = append(all, g)
				if g.OtherMIG != nil {
					all = append(all, g.WithMIG(gpu.MIGOn), g.WithMIG(gpu.MIGOff))
				}
			}
		}
	}
	require.Greater(t, len(all), 10)
	return all
}

// most is the largest number of placements of a list that fit beside what is used, found by
// trying all sets.
func most(g *gpu.GPU, of []gpu.Placement, used gpu.Counters) int {
	if len(of) == 0 {
		return 0
	}
	best := most(g, of[1:], used)
	used.Add(of[0].Consumes)
	if used.Exceeds(g.Counters) == "" {
		best = max(best, 1+most(g, of[1:], used))
	}
	for name, n := range of[0].Consumes {
		used[name] -= n
	}
	return best
}

// held are some placements that fit together, and what they consume.
func held(g *gpu.GPU, random *rand.Rand) (placements []gpu.Placement, used gpu.Counters) {
	used = gpu.Counters{}
	for range random.IntN(8) {
		p := g.Placements[random.IntN(len(g.Placements))].Base()
		sum := gpu.Counters{}
		sum.Add(used)
		sum.Add(p.Consumes)
		if sum.Exceeds(g.Counters) == "" {
			placements, used = append(placements, p), sum
		}
	}
	return placements, used
}

// On every model, what Free counts is the most that any set of placements has.
func TestFreeAgainstAllSets(t *testing.T) {
	for _, g := range modelGPUs(t) {
		t.Run(g.ProductName+g.MemoryMode, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
			g.Placements = slices.Clone(g.Placements)
			for range 50 {
				random.Shuffle(len(g.Placements), func(i, j int) { g.Placements[i], g.Placements[j] = g.Placements[j], g.Placements[i] })
				placements, used := held(&g, random)
				free := g.Free(placements)
				require.Equal(t, g.Counters[names.CounterMemory]-used[names.CounterMemory], free.Memory)
				require.Equal(t, used[names.CounterMemory], free.Allocated)
				units := int64(0)
				for _, p := range placements {
					units += p.ComputeUnits
				}
				require.Equal(t, units, free.AllocatedUnits)
				require.GreaterOrEqual(t, free.ComputeUnits, int64(0))
				require.Positive(t, free.ComputeUnits+free.AllocatedUnits)
				profiles := map[gpu.Fit][]gpu.Placement{}
				for _, p := range g.Placements {
					kind := gpu.Fit{Type: p.Type}
					if p.Type != gpu.TypeGPU {
						kind.Profile = p.Profile
					}
					profiles[kind] = append(profiles[kind], p)
				}
				require.Len(t, free.Fits, len(profiles))
				for _, f := range free.Fits {
					of := profiles[gpu.Fit{Type: f.Type, Profile: f.Profile}]
					require.Equal(t, most(&g, of, used), f.Count, "%s %s beside %v", f.Type, f.Profile, placements)
				}
			}
		})
	}
}

// The compute units of a GPU are those of its hardware, also if only some devices are offered: by
// a profile, or because a taint bars the others.
func TestFreeOfWhatIsOffered(t *testing.T) {
	for _, g := range modelGPUs(t) {
		t.Run(g.ProductName+g.MemoryMode, func(t *testing.T) {
			all, smallest := g.Free(nil), g.Placements[0]
			g.Placements = g.Placements[:1]
			free := g.Free(g.Placements)
			assert.Equal(t, smallest.ComputeUnits, free.AllocatedUnits)
			assert.Equal(t, all.ComputeUnits-smallest.ComputeUnits, free.ComputeUnits)
			g.Placements = nil
			assert.Equal(t, all.ComputeUnits, g.Free(nil).ComputeUnits)
		})
	}
}

// The shares of a partition take what the partition does, once, and are no profile.
func TestFreeBesideShares(t *testing.T) {
	g := h100()
	share := gpu.ShareOf(g.Placements[0], gpu.ByMemory, gpu.Sharing{})
	want := g.Free(g.Placements[:1])
	assert.Equal(t, want, g.Free([]gpu.Placement{share, share, g.Placements[0]}))
	shared := g
	shared.Placements = append([]gpu.Placement{share}, g.Placements...)
	assert.Equal(t, want, shared.Free([]gpu.Placement{share}))
}

// A driver may name positions that overlap, and in any order: two of the three below fit.
func TestFreeWithOverlappingPositions(t *testing.T) {
	g := h100()
	g.Placements = []gpu.Placement{{Type: gpu.TypeMIG, Profile: "2g.20gb", Start: 1, Size: 2, Consumes: gpu.Counters{"memory-slice-1": 1, "memory-slice-2": 1}}, g.Placements[4], g.Placements[5]}
	assert.Equal(t, []gpu.Fit{{Type: gpu.TypeMIG, Profile: "2g.20gb", Count: 2}}, g.Free(nil).Fits)
}

func TestFragmentation(t *testing.T) {
	half := func(count int) gpu.Fit { return gpu.Fit{Type: gpu.TypeMIG, Profile: "3g.40gb", Count: count} }
	other := gpu.Free{Memory: 24, Fits: []gpu.Fit{{Type: gpu.TypeGPU, Count: 1}}}
	for name, test := range map[string]struct {
		gpus []gpu.Free
		want float64
	}{
		"no GPU":                      {nil, 0},
		"empty GPUs":                  {[]gpu.Free{{Memory: 80, Fits: []gpu.Fit{half(2)}}, {Memory: 80, Fits: []gpu.Fit{half(2)}}}, 0},
		"full GPUs":                   {[]gpu.Free{{Memory: 0, Fits: []gpu.Fit{half(0)}}}, 0},
		"one fits where the most is":  {[]gpu.Free{{Memory: 60, Fits: []gpu.Fit{half(1)}}, {Memory: 20, Fits: []gpu.Fit{half(0)}}}, .25},
		"enough memory in two halves": {[]gpu.Free{{Memory: 30, Fits: []gpu.Fit{half(0)}}, {Memory: 30, Fits: []gpu.Fit{half(0)}}}, 1},
		"another model":               {[]gpu.Free{{Memory: 80, Fits: []gpu.Fit{half(2)}}, other}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.InDelta(t, test.want, gpu.Fragmentation(test.gpus, gpu.TypeMIG, "3g.40gb"), 1e-9)
		})
	}
}

// Two partitions at bad positions leave half of an H100 that no 3g.40gb can use.
func TestFragmentationOfAnH100(t *testing.T) {
	inventory, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	g := inventory.Hardware("node")[0]
	at := func(profile string, start int) gpu.Placement {
		for _, p := range g.Placements {
			if p.Profile == profile && p.Start == start && p.Share == nil {
				return p
			}
		}
		require.FailNow(t, "no placement", "%s at %d", profile, start)
		return gpu.Placement{}
	}
	for _, test := range []struct {
		held []gpu.Placement
		want float64
	}{
		{nil, 0},
		{[]gpu.Placement{at("1g.10gb", 0), at("1g.10gb", 1)}, 0},
		{[]gpu.Placement{at("1g.10gb", 0), at("1g.10gb", 4)}, 1},
	} {
		assert.InDelta(t, test.want, gpu.Fragmentation([]gpu.Free{g.Free(test.held)}, gpu.TypeMIG, "3g.40gb"), 1e-9)
	}
	assert.InDelta(t, 1, gpu.Fragmentation([]gpu.Free{g.Free([]gpu.Placement{at("1g.10gb", 0)})}, gpu.TypeGPU, ""), 1e-9)
}

func BenchmarkFree(b *testing.B) {
	inventory, err := models.LoadInventory("h100x8")
	require.NoError(b, err)
	g := inventory.Hardware("node")[0]
	held := g.Placements[:1]
	b.ReportAllocs()
	for b.Loop() {
		g.Free(held)
	}
}
