package nvidia

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A GPU that shares the memory of the host reports none (GB10, Thor). It is a GPU all the same.
func TestGPUThatTellsNoMemory(t *testing.T) {
	m := simulated(t, "l4x4")
	address := m.GPUs()[0].PCIAddress
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMemoryInfo", GPU: address, Error: nvdriver.Return(nvml.ERROR_NOT_SUPPORTED)}}})
	d, err := New(m.cfg)
	require.NoError(t, err)
	require.NoError(t, d.Open(t.Context()))
	t.Cleanup(func() { assert.NoError(t, d.Close(context.Background())) })
	gpus, err := d.Inventory(t.Context())
	require.NoError(t, err)
	require.Len(t, gpus, 4)
	assert.Zero(t, gpus[0].Memory)
	require.Len(t, gpus[0].Placements, 1)
	assert.Zero(t, gpus[0].Placements[0].Memory)
	assert.NotZero(t, gpus[0].Placements[0].ComputeUnits)
	assert.NotZero(t, gpus[1].Placements[0].Memory, "its neighbours are as before")

	require.NoError(t, d.CheckHealth(t.Context(), address))
	usage, err := d.Usage(t.Context(), address)
	require.NoError(t, err)
	assert.NotContains(t, usage.Measured, gpu.MemoryUsed)
	assert.Contains(t, usage.Measured, gpu.Power)
	made, err := d.Create(t.Context(), gpus[0].Placements[0])
	require.NoError(t, err)
	assert.True(t, made.Complete)
}

// Without MIG an event is of no GPU instance, whatever the library says.
func TestEventOfAGPUWithoutMIG(t *testing.T) {
	w := simulated(t, "h100x8").watchHealth()
	zero := 0
	e := w.xid(firstGPU, 79, &zero)
	assert.Nil(t, e.GPUInstance)
	assert.NotContains(t, e.Message, "GPU instance")

	w.MIGOn()
	require.Eventually(t, func() bool {
		w.forget()
		e := w.xid(firstGPU, 94, &zero)
		return e.GPUInstance != nil && *e.GPUInstance == 0
	}, time.Minute, 10*time.Millisecond)
}

// A driver that is no module, or a stand-in for the library, has an identity too.
func TestLoadIDWithoutAModule(t *testing.T) {
	m := simulated(t, "l4x4")
	require.NoError(t, os.RemoveAll(filepath.Join(m.Root, "sys/module/nvidia")))
	version := filepath.Join(m.Root, "proc/driver/nvidia/version")
	require.NoError(t, os.WriteFile(version, []byte("NVRM version: 580.159.04\n"), 0o600))
	first, err := m.LoadID()
	require.NoError(t, err)
	again, err := m.LoadID()
	require.NoError(t, err)
	assert.Equal(t, first, again)
	require.NoError(t, os.WriteFile(version, []byte("NVRM version: 595.71.05\n"), 0o600))
	other, err := m.LoadID()
	require.NoError(t, err)
	assert.NotEqual(t, first, other, "another driver")
}
