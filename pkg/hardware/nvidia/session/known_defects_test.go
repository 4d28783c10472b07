package session_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The defects that NVIDIA's DRA driver had in what this folder does. Each must
// be impossible here.

func TestKnownDefectWrongUUID(t *testing.T) {
	m := simulated(t, "h100x8")
	parent := m.GPUs()[0].UUID
	seen := map[string]bool{parent: true}
	for _, start := range []int{6, 5, 4} {
		made := m.Made(m.Placement("1g.10gb", start))
		assert.False(t, seen[made.UUID], "a UUID of its own, and not the GPU's")
		seen[made.UUID] = true
		device, ret := m.NVML.DeviceGetHandleByUUID(made.UUID)
		require.Equal(t, nvml.SUCCESS, ret)
		isMIG, _ := device.IsMigDeviceHandle()
		assert.True(t, isMIG)
		name, _ := device.GetName()
		assert.Contains(t, name, "MIG 1g.10gb")
	}
}

func TestKnownDefectLeakedInstanceWhenItCannotBeFilled(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 6)
	for _, call := range []string{"CreateComputeInstance", "GetComputeInstances"} {
		m.Fail(call, nvml.ERROR_INSUFFICIENT_RESOURCES, 1)
		_, err := m.Create(t.Context(), p)
		require.ErrorIs(t, err, nvml.ERROR_INSUFFICIENT_RESOURCES)
		assert.Empty(t, m.Partitions(p.GPU), "the GPU instance is gone")
	}
	m.Made(p)
}

func TestKnownDefectInstanceThatCannotBeRemovedIsNamed(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 6)
	for _, call := range []string{"CreateComputeInstance", "GetComputeInstances"} {
		m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
			{Call: call, GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN), Times: 1},
			{Call: "GpuInstanceDestroy", GPU: "*", Error: nvdriver.Return(nvml.ERROR_IN_USE)},
		}})
		_, err := m.Create(t.Context(), p)
		require.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
		assert.ErrorContains(t, err, "could not be removed again")
		m.NoFaults()
		live := m.Partitions(p.GPU)
		require.Len(t, live, 1, "and an instance without compute instance is visible")
		assert.False(t, live[0].Complete)
		require.NoError(t, m.Destroy(t.Context(), p))
	}
	m.Made(p)
}

func TestKnownDefectModeIsReadAtUse(t *testing.T) {
	m := simulated(t, "h100x8")
	before := m.GPUs()
	current, _ := m.MIGModes()
	require.Equal(t, nvml.DEVICE_MIG_DISABLE, current, "as when a plugin starts")
	keep, gone := m.Placement("1g.10gb", 6), m.Placement("1g.10gb", 5)
	m.Made(keep)
	m.Made(gone)
	require.NoError(t, m.Destroy(t.Context(), gone))
	current, pending := m.MIGModes()
	assert.Equal(t, nvml.DEVICE_MIG_ENABLE, current)
	assert.Equal(t, nvml.DEVICE_MIG_ENABLE, pending, "nobody tried to switch it off beside a live partition")
	assert.Len(t, m.Partitions(keep.GPU), 1)
	assert.Equal(t, before, m.GPUs())
}

func TestKnownDefectWholeGPUInMIGMode(t *testing.T) {
	m := simulated(t, "h100x8")
	m.Made(m.Placement("1g.10gb", 6))
	_, err := m.Create(t.Context(), m.Whole())
	require.ErrorContains(t, err, "GPU 0000:1b:00.0 is partitioned: gpu-0000-1b-00-0-mig-1g-10gb-6 (GI ")
	assert.Len(t, m.Partitions("0000:1b:00.0"), 1, "and what is there stays")
}

func TestKnownDefectHalfMadePartitionCountsToo(t *testing.T) {
	m := simulated(t, "h100x8")
	m.MIGOn()
	m.BareInstance(m.Placement("3g.40gb", 4))
	_, err := m.Create(t.Context(), m.Whole())
	assert.ErrorContains(t, err, "gpu-0000-1b-00-0-mig-3g-40gb-4")
}

func TestKnownDefectErrorsNameTheCallThatFailed(t *testing.T) {
	for call, want := range map[string]string{
		"CreateGpuInstance":     "DeviceCreateGpuInstanceWithPlacement: ERROR_UNKNOWN",
		"CreateComputeInstance": "GpuInstanceCreateComputeInstance: ERROR_UNKNOWN",
		"SetMigMode":            "DeviceSetMigMode: ERROR_UNKNOWN",
		"GetGpuInstances":       "DeviceGetGpuInstances: ERROR_UNKNOWN",
	} {
		t.Run(call, func(t *testing.T) {
			m := simulated(t, "h100x8")
			p := m.Placement("1g.10gb", 6)
			m.Fail(call, nvml.ERROR_UNKNOWN, 0)
			_, err := m.Create(t.Context(), p)
			var failed *session.CallError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, nvml.ERROR_UNKNOWN, failed.Return)
			assert.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "SUCCESS")
		})
	}
}

func TestDraDriverNvidiaGpuIssue1454FullComputeInstance(t *testing.T) {
	var asked []nvml.ComputeInstanceProfileInfo
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return asymmetric{d, &asked} }))
	m.Made(m.Placement("1g.20gb", 6))
	require.Len(t, asked, 1)
	assert.EqualValues(t, 30, asked[0].MultiprocessorCount)
	m.Made(m.Placement("1g.20gb", 4))
	require.Len(t, asked, 3)
	assert.EqualValues(t, 18, asked[2].MultiprocessorCount, "where the full one is not supported")
	_, err := m.Create(t.Context(), m.Placement("2g.20gb", 0))
	assert.ErrorContains(t, err, "(2g.20gb) offers no compute instance with its 2 slices")
}
