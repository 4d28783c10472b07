package nvidia

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// limited is a machine with a driver that limits memory, and the groups of a pod and of its container.
func limited(t *testing.T, inventory string) (m *machine, address, pod, container string) {
	t.Helper()
	m = withLibrary(t, inventory, "615")
	container = filepath.Join(nvdriver.Groups(m.Root), `kubepods/pod\x2da/c`) // as systemd writes kubepods/pod-a
	require.NoError(t, os.MkdirAll(container, 0o755))
	return m, m.GPUs()[0].PCIAddress, filepath.Dir(container), container
}

func (m *machine) limitOf(address, group string) gpu.MemoryLimit {
	m.T.Helper()
	limit, err := m.MemoryLimit(m.T.Context(), address, group)
	require.NoError(m.T, err)
	return limit
}

func TestMemoryLimit(t *testing.T) {
	m, address, pod, container := limited(t, "l4x4")
	assert.Zero(t, m.limitOf(address, pod), "none")
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: 2 * gib}))
	assert.Equal(t, gpu.MemoryLimit{Bytes: 2 * gib}, m.limitOf(address, pod))
	assert.Equal(t, gpu.MemoryLimit{Bytes: 2 * gib}, m.limitOf(address, container), "by the group above")
	used := nvdriver.Process{GPU: address, PID: 1, Group: container}
	used.MemoryMiB = 1500
	require.NoError(t, nvdriver.Allocate(m.Root, used))
	assert.EqualValues(t, 1500*gpu.MiB, m.limitOf(address, pod).Used)
	require.ErrorContains(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: gib}), "limit the memory of control group "+pod+" to 1024 MiB")
	require.NoError(t, nvdriver.RemoveProcess(m.Root, 1))
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{}))
	assert.Zero(t, m.limitOf(address, pod))
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{}), "again")

	burst := gpu.MemoryLimit{Guaranteed: gib, Bytes: 2 * gib}
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, burst))
	assert.Equal(t, burst, m.limitOf(address, pod))
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{}))
	assert.Zero(t, m.limitOf(address, pod), "nothing is guaranteed any more")
	require.Error(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Guaranteed: 2 * gib, Bytes: gib}))

	require.ErrorContains(t, m.SetMemoryLimit(t.Context(), address, pod+"x", gpu.MemoryLimit{Bytes: gib}), "is cgroup v2 mounted there?")
	_, err := m.MemoryLimit(t.Context(), address, pod+"x")
	require.ErrorContains(t, err, "read the memory limit of control group "+pod+"x")
	m.Fail("GetMemoryLimits", nvml.ERROR_UNKNOWN, 0)
	_, err = m.MemoryLimit(t.Context(), address, pod)
	require.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
}

// By the kernel's controller, each group has a limit of its own, which programs see.
func TestMemoryLimitByTheKernel(t *testing.T) {
	m, address, pod, container := limited(t, "l4x4")
	enable := func(group, file string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(group, file), nil, 0o600))
	}
	enable(nvdriver.Groups(m.Root), "dmem.capacity")
	require.ErrorContains(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: gib}), "controller dmem is not enabled for control group "+pod)
	enable(pod, "dmem.max")
	enable(container, "dmem.max")
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: 2 * gib}))
	assert.Equal(t, gpu.MemoryLimit{Bytes: 2 * gib}, m.limitOf(address, container))
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Guaranteed: gib, Bytes: 2 * gib}))
	assert.Equal(t, gpu.MemoryLimit{Bytes: 2 * gib}, m.limitOf(address, container), "the groups above would have it twice")

	used := nvdriver.Process{GPU: address, PID: 1, Group: container}
	used.MemoryMiB = 1500
	require.NoError(t, nvdriver.Allocate(m.Root, used))
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: gib}), "dmem does not tell")
	assert.Equal(t, gpu.MemoryLimit{Guaranteed: gib, Bytes: 2 * gib, Used: 1500 * gpu.MiB}, m.limitOf(address, pod))
	require.NoError(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{}))
	assert.Zero(t, m.limitOf(address, container).Bytes)
}

// What cannot limit memory says so, whatever is asked.
func TestMemoryLimitNotSupported(t *testing.T) {
	for name, tt := range map[string]struct {
		m    *machine
		says string
	}{
		"older driver": {withLibrary(t, "l4x4", "610"), "its driver is older than R615"},
		"MIG":          {withLibrary(t, nvidiatest.OfModel(t, "H100-80GB", "  migMode: enabled\n"), "615"), "while MIG is enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			address, group := tt.m.GPUs()[0].PCIAddress, nvdriver.Groups(tt.m.Root)
			err := tt.m.SetMemoryLimit(t.Context(), address, group, gpu.MemoryLimit{Bytes: gib})
			require.ErrorIs(t, err, gpu.ErrNotSupported)
			require.ErrorContains(t, err, tt.says)
			_, err = tt.m.MemoryLimit(t.Context(), address, group)
			require.ErrorIs(t, err, gpu.ErrNotSupported)
		})
	}
	m, address, pod, _ := limited(t, "l4x4")
	m.Fail("SetMemoryLimits", nvml.ERROR_NOT_SUPPORTED, 0)
	require.ErrorIs(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: gib}), gpu.ErrNotSupported)
	m.Fail("SetMemoryLimits", nvml.ERROR_NO_PERMISSION, 0)
	require.NotErrorIs(t, m.SetMemoryLimit(t.Context(), address, pod, gpu.MemoryLimit{Bytes: gib}), gpu.ErrNotSupported)
}
