package nvidia

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
)

func TestRemovalCommand(t *testing.T) {
	whole := gpu.Partition{GPU: firstGPU, Type: gpu.TypeMIG, ID: "GI 9", Complete: true}
	half := gpu.Partition{GPU: firstGPU, Type: gpu.TypeMIG, ID: "GI 9"}
	m := simulated(t, "h100x8")
	assert.Equal(t, "nvidia-smi mig -i 0000:1b:00.0 -dci -gi 9 && nvidia-smi mig -i 0000:1b:00.0 -dgi -gi 9", m.RemovalCommand(whole))
	assert.Equal(t, "nvidia-smi mig -i 0000:1b:00.0 -dci -gi 9 ; nvidia-smi mig -i 0000:1b:00.0 -dgi -gi 9", m.RemovalCommand(half))
	assert.Empty(t, m.RemovalCommand(gpu.Partition{GPU: firstGPU, Type: gpu.TypeGPU, ID: "GPU"}))
	assert.Empty(t, m.RemovalCommand(gpu.Partition{GPU: firstGPU, Type: gpu.TypeMIG, ID: "GI ?"}))
	m = simulated(t, "h100x8", func(c *Config) { c.HostDriverRoot = "/run/nvidia/driver" })
	assert.Equal(t, "chroot /run/nvidia/driver nvidia-smi mig -i 0000:1b:00.0 -dci -gi 9 && "+
		"chroot /run/nvidia/driver nvidia-smi mig -i 0000:1b:00.0 -dgi -gi 9", m.RemovalCommand(whole))
}

func TestIdle(t *testing.T) {
	m := simulated(t, "h100x8")
	used := m.create(m.placement("1g.10gb", 6))
	free := m.create(m.placement("1g.10gb", 5))
	id, ok := instanceID(used)
	require.True(t, ok)
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: firstGPU, GPUInstance: &id, PID: 7}}})
	idle := func(p gpu.Partition) bool {
		idle, err := m.Idle(t.Context(), p)
		require.NoError(t, err)
		return idle
	}
	assert.False(t, idle(used))
	assert.True(t, idle(free))

	// Not to know is not to be idle.
	m.fail("GetComputeRunningProcesses", nvml.ERROR_NO_PERMISSION, 0)
	_, err := m.Idle(t.Context(), free)
	require.ErrorIs(t, err, nvml.ERROR_NO_PERMISSION)
	m.noFaults()
	assert.True(t, idle(used))
	_, err = m.Idle(t.Context(), gpu.Partition{GPU: firstGPU, Type: gpu.TypeGPU, ID: "GPU"})
	assert.Error(t, err)
}
