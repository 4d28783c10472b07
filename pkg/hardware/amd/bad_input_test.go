package amd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

const computeFile = "current_compute_partition"

func nodeNumber(path string) int64 {
	var n int64
	_, _ = fmt.Sscanf(path, "/dev/dri/renderD%d", &n)
	return n
}

// fault is a write of the first GPU's mode that goes wrong.
func fault(w amdgpu.WriteFault) amdgpu.Faults {
	w.GPU, w.File = first, computeFile
	return amdgpu.Faults{Writes: []amdgpu.WriteFault{w}}
}

// nothingTwice makes sure that no two partitions of a GPU share a node.
func (m *machine) nothingTwice(gpuID string) {
	m.t.Helper()
	live, err := m.Live(m.t.Context(), gpuID)
	require.NoError(m.t, err)
	seen := map[string]string{}
	for _, p := range live {
		if !p.Complete {
			continue
		}
		node := m.nodes(xcpOf(gpuID, p.Profile, p.Start))[1]
		assert.Empty(m.t, seen[node], "%s", p.Name())
		seen[node] = p.Name()
	}
}

func TestMemoryModeChangedBehindOurBack(t *testing.T) {
	m := simulated(t, "mi300x8")
	before := m.gpus()[0]
	m.create(xcpOf(first, "dpx", 0))
	m.faults(amdgpu.Faults{MemoryModes: []amdgpu.MemoryModeFault{{GPU: "*", Mode: xcp.NPS4}}})
	_, err := m.Create(t.Context(), xcpOf(first, "dpx", 0))
	require.ErrorContains(t, err, "cannot be put into mode DPX: in memory mode NPS4 it has QPX, CPX")
	assert.ErrorContains(t, err, "if the memory mode was changed, what the GPU offers is published again and the pod can be deleted")

	after := m.gpus()[0]
	assert.Equal(t, "NPS4", after.MemoryMode)
	assert.Less(t, len(after.Placements), len(before.Placements), "what is not to be had any more is not offered")
	for _, p := range after.Placements {
		assert.NotEqual(t, "dpx", p.Profile)
		assert.Equal(t, gpu.TypeXCP, p.Type)
	}
	m.create(xcpOf(first, "cpx", 7))
	m.nothingTwice(first)
	m.faults(amdgpu.Faults{})
	assert.Equal(t, before, m.gpus()[0])
	m.create(xcpOf(first, "dpx", 0))
}

func TestWriteThatSucceedsAndChangesNothing(t *testing.T) {
	m := simulated(t, "mi300x8")
	m.faults(fault(amdgpu.WriteFault{Ignored: true, Times: 1}))
	_, err := m.Create(t.Context(), xcpOf(first, "cpx", 0))
	require.ErrorContains(t, err, "GPU 0000:05:00.0: amdgpu took mode CPX without an error, but the GPU is in SPX")
	m.create(whole(first))
	m.create(xcpOf(first, "cpx", 0))
	m.nothingTwice(first)
}

func TestProcessThatTakesTheGPUBetweenCheckAndWrite(t *testing.T) {
	m := simulated(t, "mi300x8")
	g := m.gpus()[0]
	obstacles, err := m.Obstacles(t.Context(), first, false)
	require.NoError(t, err)
	require.Empty(t, obstacles)
	m.faults(fault(amdgpu.WriteFault{Process: &amdgpu.Process{PID: 4242, Name: "python3", GPUs: []string{first}}}))
	_, err = m.Create(t.Context(), xcpOf(first, "cpx", 0))
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorIs(t, err, unix.EBUSY)
	assert.ErrorContains(t, err, "GPU 0000:05:00.0 cannot be put into mode CPX: process 4242 (python3) uses it")
	assert.NotEmpty(t, m.switches(), "the kernel is asked: its answer counts")
	obstacles, err = m.Obstacles(t.Context(), first, false)
	require.NoError(t, err)
	require.Len(t, obstacles, len(g.Placements)-1, "fenced, all but what needs no switch")
	assert.Equal(t, gpu.ObstacleBusy, obstacles[0].Kind)
	assert.Contains(t, obstacles[0].Reason, "process 4242 (python3)")
	m.create(whole(first))

	m.faults(amdgpu.Faults{})
	require.NoError(t, amdgpu.EndProcess(m.root, 4242))
	obstacles, err = m.Obstacles(t.Context(), first, false)
	require.NoError(t, err)
	assert.Empty(t, obstacles)
	m.create(xcpOf(first, "cpx", 0))
	m.nothingTwice(first)
}

func TestGPUInReset(t *testing.T) {
	m := simulated(t, "mi300x8")
	gpus := m.gpus()
	m.faults(amdgpu.Faults{Resetting: []string{first}})
	for _, p := range []gpu.Placement{xcpOf(first, "cpx", 0), whole(first)} {
		_, err := m.Create(t.Context(), p)
		require.ErrorContains(t, err, "GPU 0000:05:00.0 is being reset")
		require.ErrorIs(t, err, unix.EPERM)
	}
	_, err := m.Edits(t.Context(), whole(first))
	require.Error(t, err, "nothing is handed out of it")
	require.ErrorContains(t, m.CheckHealth(t.Context(), first), "is being reset")
	others, err := m.Inventory(t.Context())
	assert.Equal(t, gpus[1:], renumbered(others), "the other GPUs are as they were")
	require.ErrorContains(t, err, "GPU 0000:05:00.0 (amdgpu): GPU 0000:05:00.0 is being reset")
	m.create(xcpOf(gpus[1].PCIAddress, "cpx", 0))

	m.faults(amdgpu.Faults{})
	require.NoError(t, m.CheckHealth(t.Context(), first))
	m.create(xcpOf(first, "cpx", 0))
	m.nothingTwice(first)
	assert.Equal(t, gpus, m.gpus())
}

// renumbered gives GPUs the numbers that they have when the first one answers.
func renumbered(gpus []gpu.GPU) []gpu.GPU {
	for i := range gpus {
		gpus[i].Index++
	}
	return gpus
}

func TestGPUThatVanishes(t *testing.T) {
	m := simulated(t, "mi300x8")
	gpus := m.gpus()
	m.create(xcpOf(first, "cpx", 0))
	m.faults(amdgpu.Faults{Lost: []string{first}})
	for name, call := range map[string]func() error{
		"create": func() error { _, err := m.Create(t.Context(), xcpOf(first, "cpx", 0)); return err },
		"live":   func() error { _, err := m.Live(t.Context(), first); return err },
		"edits":  func() error { _, err := m.Edits(t.Context(), xcpOf(first, "cpx", 0)); return err },
		"health": func() error { return m.CheckHealth(t.Context(), first) },
	} {
		assert.ErrorContains(t, call(), "GPU 0000:05:00.0 is gone from the PCI bus", name)
	}
	others, err := m.Inventory(t.Context())
	assert.Equal(t, gpus[1:], renumbered(others))
	require.ErrorContains(t, err, "0000:05:00.0 is gone from the PCI bus")

	m.faults(amdgpu.Faults{})
	assert.Equal(t, gpus, m.gpus())
	m.create(xcpOf(first, "cpx", 0))
}

// The plugin is killed at any moment of a switch; the next one finishes it.
func TestPluginKilledBetweenWriteAndReadBack(t *testing.T) {
	for name, hang := range map[string]string{"before the write took effect": "before", "after it": "after"} {
		t.Run(name, func(t *testing.T) {
			m := simulated(t, "mi300x8")
			gpus := m.gpus()
			m.faults(fault(amdgpu.WriteFault{Hang: hang}))
			ctx, cancel := context.WithCancel(t.Context())
			m.files.onWrite = cancel
			_, err := m.Create(ctx, xcpOf(first, "cpx", 3))
			m.files.onWrite = nil
			require.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, "writing CPX to /sys/bus/pci/devices/0000:05:00.0/"+computeFile+" on GPU 0000:05:00.0 has not returned")
			_, err = m.Create(t.Context(), xcpOf(first, "cpx", 3))
			require.ErrorContains(t, err, "has not returned", "as long as it hangs, the next is told at once")
			m.create(xcpOf(gpus[1].PCIAddress, "cpx", 0))

			dead := m.Driver
			m.restart()
			m.faults(amdgpu.Faults{})
			if hang == "after" {
				m.switches()
			}
			part := m.create(xcpOf(first, "cpx", 3))
			assert.Equal(t, "renderD131", part.ID)
			if hang == "after" {
				assert.Empty(t, m.switches(), "the GPU is in the mode already")
			}
			m.nothingTwice(first)
			require.Eventually(t, func() bool { // the old process' write comes back
				_, err := dead.Live(t.Context(), first)
				return err == nil
			}, time.Minute, 10*time.Millisecond)
		})
	}
}

func TestKFDThatCannotBeStartedAgain(t *testing.T) {
	m := simulated(t, "mi300x8")
	m.gpus()
	m.faults(fault(amdgpu.WriteFault{Error: amdgpu.Errno(unix.EIO), Times: 1}))
	_, err := m.Create(t.Context(), xcpOf(first, "cpx", 0))
	require.ErrorIs(t, err, unix.EIO)
	assert.ErrorContains(t, err, "KFD could not be started again on the GPU")
	require.ErrorContains(t, m.CheckHealth(t.Context(), first), "has no node in KFD's topology", "fenced")
	_, err = m.Create(t.Context(), whole(first))
	require.ErrorContains(t, err, "has no node in KFD's topology")

	m.create(xcpOf(first, "cpx", 0))
	require.NoError(t, m.CheckHealth(t.Context(), first))
	m.nothingTwice(first)
}

// After a reboot the modes are those of the start, and what was seen before does
// not count any more.
func TestReboot(t *testing.T) {
	m := simulated(t, "mi300x8")
	gpus := m.gpus()
	m.create(xcpOf(first, "cpx", 0))
	load, err := m.LoadID()
	require.NoError(t, err)
	require.NoError(t, amdgpu.Reboot(m.root))
	again, err := m.LoadID()
	require.NoError(t, err)
	assert.NotEqual(t, load, again)
	live, err := m.Live(t.Context(), first)
	require.NoError(t, err)
	assert.Empty(t, live)
	assert.Equal(t, gpus, m.gpus())
	m.create(xcpOf(first, "cpx", 0))
	m.nothingTwice(first)
}

// A virtual function is cut by its hypervisor, and offers what it is.
func TestVirtualFunction(t *testing.T) {
	m := simulated(t, "mi300x8", func(inv *models.Inventory) {
		for i := range inv.AMD {
			inv.AMD[i].VF = true
		}
	})
	for _, g := range m.gpus() {
		require.Len(t, g.Placements, 1)
		assert.Equal(t, "spx", g.Placements[0].Profile)
	}
	m.create(whole(first))
	_, err := m.Create(t.Context(), xcpOf(first, "cpx", 0))
	require.ErrorContains(t, err, "it has SPX")
	assert.ErrorContains(t, m.SetComputePartition(t.Context(), first, "CPX"), "cannot be put into mode CPX: in memory mode NPS1 it has SPX")
	assert.NoError(t, m.SetComputePartition(t.Context(), first, "SPX"))
	assert.Empty(t, m.switches())
	assert.Equal(t, gpu.Modes{Compute: "SPX", Computes: []string{"SPX"}, Memory: "NPS1", Memories: []string{"NPS1"}, Legal: map[string][]string{"NPS1": {"SPX"}}}, m.modes(first))
}
