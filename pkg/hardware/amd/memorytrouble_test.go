package amd_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

func TestWritesOfMemoryModesThatFail(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EINVAL: "amdgpu refuses memory mode NPS4: GPU",
		unix.EPERM:  "is being reset",
		unix.EIO:    "amdgpu refuses memory mode NPS4: GPU",
	} {
		m := reloadable(t, "mi300x8")
		before := m.load()
		m.faults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: "*", File: memoryFile, Error: amdgpu.Errno(errno)}}})
		err := m.setMemory("NPS4")
		require.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, errno)
		assert.NotContains(t, err.Error(), "stays asked for")
		assert.Equal(t, before, m.load())
	}
	// What one GPU of a hive takes counts for all.
	m := reloadable(t, "mi300x8")
	m.faults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: first, File: memoryFile, Error: amdgpu.Errno(unix.EINVAL)}}})
	require.NoError(t, m.setMemory("NPS4"))
	assert.Equal(t, "NPS4", m.memory())

	m.faults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: m.inventory.AMD[7].PCI, File: memoryFile, Error: amdgpu.Errno(unix.EPERM)}}})
	err := m.setMemory("NPS1")
	require.ErrorContains(t, err, "is being reset")
	assert.ErrorContains(t, err, "memory mode NPS1 stays asked for", "the others took it")
}

// A write that hangs in the kernel holds the caller no longer than he waits. The GPUs
// stay closed until it returns.
func TestWriteOfMemoryModeHangs(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		m := reloadable(t, "mi300x8")
		before := m.load()
		m.faults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: first, File: memoryFile, Hang: when}}})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := m.SetMemoryPartition(ctx, "NPS4")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "memory mode NPS4: writing NPS4 to /sys/bus/pci/devices/"+first+"/"+memoryFile+" on GPU "+first+" has not returned since ")
		_, err = m.Inventory(t.Context())
		require.ErrorContains(t, err, "amdgpu is being reloaded")
		m.faults(amdgpu.Faults{})
		require.Eventually(t, func() bool { _, err := m.Inventory(t.Context()); return err == nil }, time.Minute, time.Millisecond)
		assert.Equal(t, "NPS1", m.memory(), "time was up: nothing was loaded")
		assert.Equal(t, before, m.load())
		require.NoError(t, m.setMemory("NPS4"))
	}
}

// The caller's time may end: the driver is loaded all the same.
func TestCallersTimeEndsDuringReload(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.gpus()
	ctx, cancel := context.WithCancel(t.Context())
	m.onReload = cancel // after the load
	err := m.SetMemoryPartition(ctx, "NPS4")
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "amdgpu was reloaded, and then time was up")
	m.onReload = nil
	assert.Equal(t, "NPS4", m.memory())
	assert.NoError(t, m.setMemory("NPS4"))

	ctx, cancel = context.WithCancel(t.Context())
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Delay: metav1.Duration{Duration: time.Nanosecond}}}})
	m.whileOut = cancel
	require.ErrorIs(t, m.SetMemoryPartition(ctx, "NPS1"), context.Canceled)
	m.whileOut = nil
	assert.Equal(t, "NPS1", m.memory(), "it was out when time was up, and is in again")
}

// Who asks meanwhile is told at once, and no GPU counts as lost.
func TestOthersDuringReload(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.gpus()
	asked := false
	m.whileOut = func() {
		asked = true
		const want = "amdgpu is being reloaded for memory mode NPS4"
		var health *amd.HealthError
		for what, err := range map[string]error{
			"inventory": second(m.Inventory(t.Context())), "live": second(m.Live(t.Context(), first)), "create": second(m.Create(t.Context(), whole(first))),
			"health": m.CheckHealth(t.Context(), first), "again": m.setMemory("NPS1"),
		} {
			assert.ErrorContains(t, err, want, what)
			assert.NotErrorAs(t, err, &health, what)
		}
		_, err := m.LoadID()
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
	require.NoError(t, m.setMemory("NPS4"))
	assert.True(t, asked)
	assert.NoError(t, m.CheckHealth(t.Context(), first))
}
