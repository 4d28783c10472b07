package amd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/short"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

const memoryFile = "current_memory_partition"

// reloadable is a machine whose driver the plugin may reload, as on a node: with
// modprobe, which here is the simulated machine's.
func reloadable(t *testing.T, name string, change ...func(*models.Inventory)) *machine {
	t.Helper()
	m := simulated(t, name, change...)
	kernel := m.files.Files.(*amdgpu.Kernel)
	m.module = &kmod.Module{
		Name: "amdgpu", Run: kernel.Modprobe, ReadFile: kernel.ReadFile, Marker: filepath.Join(t.TempDir(), "out"),
		LookPause: time.Millisecond,
	}
	m.restart()
	return m
}

func (m *machine) setMemory(mode string) error { return m.SetMemoryPartition(m.t.Context(), mode) }

// memory is the mode of all GPUs.
func (m *machine) memory() string {
	m.t.Helper()
	mode := ""
	for _, g := range m.gpus() {
		now := m.modes(g.PCIAddress).Memory
		require.True(m.t, mode == "" || mode == now, "%s and %s", mode, now)
		mode = now
	}
	return mode
}

func (m *machine) load() string {
	m.t.Helper()
	id, err := m.LoadID()
	require.NoError(m.t, err)
	return id
}

// Every pair of modes of every model: the memory mode, then the compute mode, from
// each to each; and what is published of it is what the inventory says of such a GPU.
func TestEveryPairOfModes(t *testing.T) {
	for _, name := range short.Some(inventories, 2) {
		t.Run(name, func(t *testing.T) {
			m := reloadable(t, name)
			gpus := m.gpus()
			model := m.inventory.AMD[0].Model
			for _, memory := range append(model.MemoryModes, model.MemoryModes[0]) {
				require.NoError(t, m.setMemory(string(memory)))
				for i, g := range m.gpus() {
					assert.Equal(t, gpus[i].PCIAddress, g.PCIAddress, "GPUs keep their addresses")
					assert.Equal(t, string(memory), g.MemoryMode)
				}
				for _, compute := range m.modes(gpus[0].PCIAddress).Computes {
					require.NoError(t, m.SetComputePartition(t.Context(), gpus[0].PCIAddress, compute))
					got := m.modes(gpus[0].PCIAddress)
					assert.Equal(t, []string{string(memory), compute}, []string{got.Memory, got.Compute})
					paper := simulated(t, name, func(inv *models.Inventory) {
						for i := range inv.AMD {
							inv.AMD[i].MemoryMode, inv.AMD[i].ComputeMode = memory, xcp.Mode(compute)
						}
					})
					assert.Equal(t, paper.gpus()[0], m.gpus()[0], "%s %s", memory, compute)
				}
			}
		})
	}
}

func TestSetMemoryPartition(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.create(xcpOf(first, "dpx", 1))
	before := m.load()
	require.NoError(t, m.setMemory("NPS1"), "they are in it")
	assert.Equal(t, before, m.load())
	assert.Equal(t, "DPX", m.modes(first).Compute)

	require.NoError(t, m.setMemory("NPS4"))
	assert.NotEqual(t, before, m.load())
	assert.Equal(t, "NPS4", m.memory())
	assert.Equal(t, "CPX", m.modes(first).Compute, "what amdgpu chooses")
	assert.Equal(t, "renderD131", m.create(xcpOf(first, "cpx", 3)).ID)
	require.NoError(t, m.CheckHealth(t.Context(), first))
	assert.NoFileExists(t, m.module.Marker)

	loaded := m.load()
	for mode, want := range map[string]string{
		"nps4": `"nps4" is no memory mode`, "": `"" is no memory mode`, "CPX": `"CPX" is no memory mode`, "NPS1, NPS4": "is no memory mode",
		"NPS8": "GPU 0000:05:00.0 cannot be put into memory mode NPS8: not supported by the GPU: it has NPS1, NPS2, NPS4",
	} {
		assert.ErrorContains(t, m.setMemory(mode), want, mode)
	}
	assert.ErrorIs(t, m.setMemory("NPS8"), gpu.ErrNotSupported)
	assert.Equal(t, loaded, m.load(), "nothing was touched")
}

// A mode is refused if one GPU does not have it, and nothing is asked of the others.
func TestMemoryModeThatOneGPUDoesNotHave(t *testing.T) {
	m := reloadable(t, "mi300x8", func(inv *models.Inventory) { inv.AMD[3].VF = true })
	err := m.setMemory("NPS4")
	require.ErrorIs(t, err, gpu.ErrNotSupported)
	assert.ErrorContains(t, err, "GPU "+m.inventory.AMD[3].PCI+" cannot be put into memory mode NPS4")
	require.NoError(t, amdgpu.ReloadDriver(m.root))
	assert.Equal(t, "NPS1", m.memory())

	a := reloadable(t, "mi300a4")
	assert.ErrorContains(t, a.setMemory("NPS4"), "it has NPS1")
	assert.NoError(t, a.setMemory("NPS1"))
}

func TestMemoryModeWithoutTheRight(t *testing.T) {
	m := simulated(t, "mi300x8")
	err := m.setMemory("NPS4")
	require.ErrorIs(t, err, gpu.ErrNotSupported)
	assert.ErrorContains(t, err, "amd.memoryPartitions.enabled=true")
	require.NoError(t, amdgpu.ReloadDriver(m.root))
	assert.Equal(t, "NPS1", m.memory(), "nothing was asked for")
	assert.NoError(t, m.setMemory("NPS1"))
}

// A process that is no pod's keeps the driver, whichever GPU it is at.
func TestMemoryModeWhileAProcessOutsideKubernetesRuns(t *testing.T) {
	m := reloadable(t, "mi300x8")
	require.NoError(t, amdgpu.StartProcess(m.root, amdgpu.Process{PID: 4242, Name: "gpuagent"}))
	m.faults(amdgpu.Faults{Holders: []string{"amdgpu_peer"}})
	before := m.load()
	err := m.setMemory("NPS4")
	require.ErrorIs(t, err, gpu.ErrInUse)
	assert.ErrorContains(t, err, "memory mode NPS4: amdgpu cannot be reloaded while it is in use: process 4242 (gpuagent) uses KFD and the kernel module amdgpu_peer uses it")
	assert.Equal(t, before, m.load())
	assert.Equal(t, "NPS1", m.memory())
	require.NoError(t, amdgpu.EndProcess(m.root, 4242))
	m.faults(amdgpu.Faults{})
	require.NoError(t, amdgpu.ReloadDriver(m.root))
	assert.Equal(t, "NPS1", m.memory(), "nothing was asked of the driver")

	// One that ends while it is waited for.
	m.waits()
	require.NoError(t, amdgpu.StartProcess(m.root, amdgpu.Process{PID: 17, GPUs: []string{first}}))
	m.files.mu.Lock()
	m.files.onRead = func(name string) {
		if strings.HasSuffix(name, "/17/comm") {
			_ = amdgpu.EndProcess(m.root, 17)
		}
	}
	m.files.mu.Unlock()
	require.NoError(t, m.setMemory("NPS4"))
	assert.Equal(t, "NPS4", m.memory())
}

// modprobe finds a user that was not seen before.
func TestUnloadRefused(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "unload", Error: "in use"}}})
	before := m.load()
	err := m.setMemory("NPS4")
	require.ErrorIs(t, err, gpu.ErrInUse)
	for _, want := range []string{"kernel module amdgpu is in use (modprobe: FATAL: Module amdgpu is in use.)", "lsof /dev/kfd", "memory mode NPS4 stays asked for"} {
		assert.ErrorContains(t, err, want)
	}
	assert.Equal(t, before, m.load())
	assert.Equal(t, "NPS1", m.memory())
	assert.NoFileExists(t, m.module.Marker)

	m.waits()
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "unload", Error: "in use", Times: 1}}})
	require.NoError(t, m.setMemory("NPS4"), "it is tried again")
	assert.Equal(t, "NPS4", m.memory())
}

func TestRequestLostOnReload(t *testing.T) {
	m := reloadable(t, "mi300x8")
	second := m.inventory.AMD[1].PCI
	for name, faults := range map[string]amdgpu.Faults{
		"of all GPUs": {MemoryModeLost: true},
		"of one":      {Driver: []amdgpu.DriverFault{{Step: "load", MemoryModeLost: []string{second}}}},
	} {
		m.faults(faults)
		before := m.load()
		err := m.setMemory("NPS4")
		require.ErrorIs(t, err, gpu.ErrModeLost, name)
		assert.ErrorContains(t, err, "memory mode NPS4 was asked for, but the driver came up in the mode before: GPU", name)
		assert.ErrorContains(t, err, "GPU "+second+" is in NPS1", name)
		assert.ErrorContains(t, err, "dmesg", name)
		assert.NotEqual(t, before, m.load(), name)
		assert.NoError(t, m.CheckHealth(t.Context(), second), "the GPUs work")
		m.faults(amdgpu.Faults{})
		require.NoError(t, m.setMemory("NPS1"), "%s: back to what was", name)
		assert.Equal(t, "NPS1", m.memory(), name)
	}
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", MemoryModeLost: []string{"*"}, Times: 1}}})
	require.ErrorIs(t, m.setMemory("NPS4"), gpu.ErrModeLost)
	require.NoError(t, m.setMemory("NPS4"), "asked for again it comes")
}

func TestReloadFailsAndComesBack(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Error: "no device", Times: 2}}})
	require.NoError(t, m.setMemory("NPS4"), "the third try works")
	assert.Equal(t, "NPS4", m.memory())

	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Error: "key rejected"}}})
	err := m.setMemory("NPS1")
	for _, want := range []string{"could not be loaded again in 3 tries", "Key was rejected by service", "no amdgpu is loaded", "dmesg"} {
		require.ErrorContains(t, err, want)
	}
	_, err = m.LoadID()
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.FileExists(t, m.module.Marker)
	_, err = m.Inventory(t.Context())
	require.Error(t, err)
	require.ErrorContains(t, m.setMemory("NPS4"), "no amdgpu is loaded", "rolling back cannot, either")

	m.faults(amdgpu.Faults{})
	require.NoError(t, m.setMemory("NPS4"), "rolling back loads it")
	assert.Equal(t, "NPS4", m.memory())
	assert.NoFileExists(t, m.module.Marker)
}

// A plugin that was killed while the driver was unloaded loads it when it starts.
func TestPluginKilledWhileTheDriverIsOut(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Error: "no device", Times: 3}}})
	require.Error(t, m.setMemory("NPS4"))
	require.NoError(t, m.module.Resume(t.Context()))
	assert.NoFileExists(t, m.module.Marker)
	m.restart()
	assert.Equal(t, "NPS4", m.memory())
	before := m.load()
	require.NoError(t, m.module.Resume(t.Context()), "there is nothing to resume")
	assert.Equal(t, before, m.load())
}

// A GPU that the load leaves out is named, and the next load takes it.
func TestHiveMemberMissingAfterReload(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.comeBack = time.Millisecond
	m.restart()
	m.gpus()
	third := m.inventory.AMD[2].PCI
	m.faults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Missing: []string{third}, Times: 1}}})
	err := m.setMemory("NPS4")
	require.ErrorContains(t, err, "amdgpu was reloaded, and 1 of 8 GPUs did not come back: GPU "+third+" is gone")
	err = m.setMemory("NPS4")
	require.ErrorContains(t, err, "GPU "+third+" is gone", "a hive that lacks one is not switched")
	var health *amd.HealthError
	require.ErrorAs(t, err, &health)
	require.NoError(t, amdgpu.ReloadDriver(m.root))
	require.NoError(t, m.setMemory("NPS1"))
	assert.Equal(t, "NPS1", m.memory())
}

// Device nodes that udev makes late are waited for.
func TestGPUsThatComeUpSlowly(t *testing.T) {
	m := reloadable(t, "mi300x8")
	m.faults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: first, Missing: "kfd"}}})
	// A GPU without KFD node before is not waited for: the reload may cure it.
	require.NoError(t, m.setMemory("NPS4"))

	m.faults(amdgpu.Faults{})
	m.gpus()
	m.onReload = func() {
		m.faults(amdgpu.Faults{Resetting: []string{first}})
		time.AfterFunc(50*time.Millisecond, func() { _ = amdgpu.SetFaults(m.root, amdgpu.Faults{}) })
	}
	require.NoError(t, m.setMemory("NPS1"), "it is being reset, and comes")
	assert.Equal(t, "NPS1", m.memory())

	m.comeBack = time.Millisecond
	m.restart()
	m.onReload = func() { m.faults(amdgpu.Faults{Resetting: []string{first}}) }
	require.ErrorContains(t, m.setMemory("NPS4"), "1 of 8 GPUs did not come back: GPU "+first+" is being reset")
}

func second[T any](_ T, err error) error { return err }

func TestMemoryModesDoNotOutliveAReboot(t *testing.T) {
	m := reloadable(t, "mi300x8")
	require.NoError(t, m.setMemory("NPS4"))
	require.NoError(t, amdgpu.Reboot(m.root))
	m.restart()
	assert.Equal(t, "NPS1", m.memory())
	require.NoError(t, m.setMemory("NPS4"))
	assert.Equal(t, "NPS4", m.memory())
}
