package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A GPU that fell off the bus is lost, whatever is asked of it. One that hangs, or
// fails in another way, is not.
func TestLostIsToldFromHung(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 6)
	m.Made(p)
	asked := func(ctx context.Context) map[string]error {
		_, live := m.Live(ctx, p.GPU)
		_, settings := m.Settings(ctx, p.GPU)
		return map[string]error{
			"Live": live, "Destroy": m.Destroy(ctx, p), "Settings": settings,
			"SetTimeSlice":   m.SetTimeSlice(ctx, p.GPU, gpu.DefaultSlice),
			"SetComputeMode": m.SetComputeMode(ctx, p.GPU, gpu.ComputeDefault),
		}
	}
	m.SetFaults(nvdriver.Faults{Lost: []string{firstGPU}})
	for call, err := range asked(t.Context()) {
		assert.ErrorIs(t, err, gpu.ErrLost, call)
	}

	for _, ret := range []nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_NO_PERMISSION, nvml.ERROR_TIMEOUT} {
		m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetHandle", GPU: firstGPU, Error: nvdriver.Return(ret)}}})
		_, err := m.Live(t.Context(), p.GPU)
		require.ErrorIs(t, err, ret)
		assert.NotErrorIs(t, err, gpu.ErrLost, ret)
	}

	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMigMode", GPU: firstGPU, Hang: true}}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for call, err := range asked(ctx) {
		require.Error(t, err, call)
		assert.NotErrorIs(t, err, gpu.ErrLost, call)
	}
	m.NoFaults()
}

// Calls for instances answer ERROR_UNKNOWN for a lost GPU (nvml.h documents no
// ERROR_GPU_IS_LOST for them): another call tells.
func TestUnknownErrorOfALostGPU(t *testing.T) {
	m := simulated(t, "h100x8")
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "GetMigMode", GPU: firstGPU, Error: nvdriver.Return(nvml.ERROR_UNKNOWN)},
		{Call: "GetMemoryInfo", GPU: firstGPU, Error: nvdriver.Return(nvml.ERROR_GPU_IS_LOST)},
	}})
	_, err := m.Live(t.Context(), firstGPU)
	assert.ErrorIs(t, err, gpu.ErrLost)
	m.Fail("GetMigMode", nvml.ERROR_UNKNOWN, 0)
	_, err = m.Live(t.Context(), firstGPU)
	require.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
	assert.NotErrorIs(t, err, gpu.ErrLost)
}

// A GPU that was removed from the bus is in no list of the driver.
func TestRemovedGPUIsLost(t *testing.T) {
	m := simulated(t, "h100x8")
	_, err := m.Live(t.Context(), "0000:ff:00.0")
	assert.ErrorIs(t, err, gpu.ErrLost)
}
