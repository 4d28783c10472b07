package nvidia

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A process keeps a GPU in its MIG mode: what needs the other mode cannot be had, and
// what needs none is not affected.
func TestObstacles(t *testing.T) {
	m := simulated(t, "h100x8")
	gpus := m.GPUs()
	obstacles := func(gpuIndex int, held bool) (types []gpu.Type, reason string) {
		t.Helper()
		found, err := m.Obstacles(t.Context(), gpus[gpuIndex].PCIAddress, held)
		require.NoError(t, err)
		seen := map[gpu.Type]int{}
		for _, o := range found {
			p, ok := gpus[gpuIndex].Placement(o.Placement)
			require.True(t, ok, o.Placement)
			assert.Equal(t, gpu.ObstacleBusy, o.Kind)
			seen[p.Type]++
			reason = o.Reason
		}
		for kind, n := range seen {
			types = append(types, kind)
			all := 0
			for _, p := range gpus[gpuIndex].Placements {
				if p.Type == kind {
					all++
				}
			}
			assert.Equal(t, all, n, "all placements of type %s", kind)
		}
		return types, reason
	}
	busy := nvdriver.Faults{Processes: []nvdriver.Process{{GPU: firstGPU, PID: 7}, {GPU: firstGPU, PID: 9}}}

	types, _ := obstacles(0, false)
	assert.Empty(t, types)
	m.SetFaults(busy)
	types, reason := obstacles(0, false)
	assert.Equal(t, []gpu.Type{gpu.TypeMIG}, types)
	assert.Equal(t, "MIG stays off as long as processes 7, 9, which no claim explains, use the GPU", reason)
	types, _ = obstacles(0, true)
	assert.Empty(t, types, "the processes are those of a claim")
	types, _ = obstacles(1, false)
	assert.Empty(t, types, "another GPU")

	m.NoFaults()
	m.MIGOn()
	m.SetFaults(busy)
	types, _ = obstacles(0, false)
	assert.Equal(t, []gpu.Type{gpu.TypeGPU}, types)
}

// A GPU whose MIG mode needs a reset offers only what its mode has.
func TestObstaclesWithoutSwitching(t *testing.T) {
	m := simulated(t, "a100-80x8")
	address := m.GPUs()[0].PCIAddress
	m.SetFaults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: address, PID: 7}}})
	found, err := m.Obstacles(t.Context(), address, false)
	require.NoError(t, err)
	assert.Empty(t, found)
}
