package nvdriver

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// TestRandomOrdersNeverOverCommit creates and destroys at random on every
// model and checks after each step, counting from scratch, that no slice is
// held twice, no engine is over-committed, ids are unique, and that a refusal
// was due.
func TestRandomOrdersNeverOverCommit(t *testing.T) {
	for _, key := range models.NVIDIAModels() {
		m, _ := models.NVIDIAModelByKey(key)
		if !m.HasMIG() || m.ProfilesOf != nil {
			continue
		}
		t.Run(key, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var live []nvstate.GPUInstance
			created := 0
			for range 2000 {
				if len(live) > 0 && random.IntN(3) == 0 {
					i := random.IntN(len(live))
					live = slices.Delete(live, i, i+1)
					continue
				}
				p := &m.Profiles[random.IntN(len(m.Profiles))]
				start := p.Starts[random.IntN(len(p.Starts))]
				next := append(slices.Clone(live), nvstate.GPUInstance{ID: instanceID(m, p, start), Profile: p.ID, Start: start})
				legal := countFromScratch(m, next)
				require.Equal(t, legal, fits(m, live, p, start), "%s at %d beside %v", p.Name, start, live)
				if legal {
					live = next
					created++
					assertUnique(t, live)
				}
			}
			assert.Greater(t, created, 100)
		})
	}
}

// countFromScratch says whether a set of instances is legal, by owner of each
// slice and sum of each engine.
func countFromScratch(m *models.NVIDIAModel, live []nvstate.GPUInstance) bool {
	slicesHeld := make([]int, m.MemorySlices)
	var engines models.Engines
	for _, i := range live {
		p, _ := profileByID(m, uint32(i.Profile))
		for s := i.Start; s < i.Start+p.Size; s++ {
			slicesHeld[s]++
		}
		for e := range engines {
			engines[e] += p.Engines[e]
		}
	}
	for e := range engines {
		if engines[e] > m.Engines[e] {
			return false
		}
	}
	return !slices.ContainsFunc(slicesHeld, func(n int) bool { return n > 1 })
}

func assertUnique(t *testing.T, live []nvstate.GPUInstance) {
	t.Helper()
	seen := map[int]bool{}
	for _, i := range live {
		require.False(t, seen[i.ID], "id %d twice in %v", i.ID, live)
		seen[i.ID] = true
	}
}

// TestFullGPUs: the largest sets that the GPUs' users count on.
func TestFullGPUs(t *testing.T) {
	d := handleOf(t, machine(t, "h100x8"), 0)
	migOn(t, d)
	for _, name := range []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
		info := profileInfo(t, d, name)
		free, ret := d.GetGpuInstanceRemainingCapacity(&info)
		require.Equal(t, nvml.SUCCESS, ret)
		var made []nvml.GpuInstance
		for range free {
			gi, ret := d.CreateGpuInstance(&info)
			require.Equal(t, nvml.SUCCESS, ret, name)
			made = append(made, gi)
		}
		assert.Len(t, made, int(info.InstanceCount), name)
		assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, second(d.CreateGpuInstance(&info)), name)
		for _, gi := range made {
			require.Equal(t, nvml.SUCCESS, gi.Destroy())
		}
	}
	// 3g + 2g + 1g + 1g, as four claims on one GPU.
	makeGI(t, d, "3g.40gb", 4)
	makeGI(t, d, "2g.20gb", 2)
	makeGI(t, d, "1g.10gb", 1)
	makeGI(t, d, "1g.10gb", 0)
}
