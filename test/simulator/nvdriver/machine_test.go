package nvdriver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

func bootID(t *testing.T, root string) string {
	t.Helper()
	return content(t, root, "proc/sys/kernel/random/boot_id")
}

func content(t *testing.T, root, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(data)
}

func TestRebootLosesInstances(t *testing.T) {
	root := memory.TempDir(t)
	n := open(t, parsed(t, "gpus: [{model: A100-40GB, count: 2, migMode: enabled}, {model: H100-80GB, migMode: enabled}, {model: L4-24GB}]"), root)
	ampere, hopper := handleOf(t, n, 0), handleOf(t, n, 2)
	gi := makeGI(t, ampere, "1g.5gb", 0)
	makeCI(t, gi)
	makeCI(t, makeGI(t, hopper, "1g.10gb", 0))
	_, ret := handleOf(t, n, 1).SetMigMode(nvml.DEVICE_MIG_DISABLE)
	require.Equal(t, nvml.SUCCESS, ret)
	seven := 7
	require.NoError(t, AddProcess(root, Process{GPU: pciOf(ampere), GPUInstance: &seven, PID: 5}))
	require.NoError(t, SetFaults(root, Faults{
		Processes: []Process{{GPU: pciOf(hopper), PID: 6}},
		Calls:     []CallFault{{Call: "SetMigMode", GPU: "*", Error: Return(nvml.ERROR_UNKNOWN)}},
	}))
	before := bootID(t, root)

	require.NoError(t, Reboot(root))
	assert.NotEqual(t, before, bootID(t, root))
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$`, bootID(t, root))
	assert.Equal(t, [2]int{1, 1}, modes(t, ampere), "kept in the InfoROM")
	assert.Equal(t, [2]int{0, 0}, modes(t, handleOf(t, n, 1)), "pending held")
	assert.Equal(t, [2]int{0, 0}, modes(t, hopper), "off from Hopper on")
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(ampere.GetGpuInstanceById(7)))
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, gi.Destroy(), "stale")
	for _, d := range []nvml.Device{ampere, hopper} {
		processes, ret := d.GetComputeRunningProcesses()
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Empty(t, processes)
	}
	assert.NoDirExists(t, filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig/gi7"))
	assert.NoFileExists(t, filepath.Join(root, "driver/dev/nvidia-caps/nvidia-cap66"))
	assert.FileExists(t, filepath.Join(root, "driver/dev/nvidia-caps/nvidia-cap1"))
	_, ret = hopper.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	assert.Equal(t, nvml.ERROR_UNKNOWN, ret, "other faults stay")
	next := makeGI(t, ampere, "1g.5gb", 0)
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(gi.GetInfo()), "also with the same id again")
	assert.Equal(t, nvml.SUCCESS, second(next.GetInfo()))
}

func TestDriverReloadKeepsTheBootID(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	makeGI(t, d, "1g.5gb", 0)
	before := bootID(t, n.root)
	module, err := os.Stat(filepath.Join(n.root, "sys/module/nvidia"))
	require.NoError(t, err)
	machineIn(t, "a100-40x8", n.root)
	now, err := os.Stat(filepath.Join(n.root, "sys/module/nvidia"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(module, now), "a start of the plugin loads nothing")
	require.NoError(t, ReloadDriver(n.root))
	now, err = os.Stat(filepath.Join(n.root, "sys/module/nvidia"))
	require.NoError(t, err)
	assert.False(t, os.SameFile(module, now), "another inode tells the load")
	assert.Equal(t, before, bootID(t, n.root))
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(d.GetGpuInstanceById(7)))
}

func TestNewDriverVersionIsADriverReload(t *testing.T) {
	root := memory.TempDir(t)
	d := handleOf(t, machineIn(t, "a100-40x8", root), 0)
	makeGI(t, d, "1g.5gb", 0)
	before := bootID(t, root)
	inv, err := models.LoadInventory("a100-40x8")
	require.NoError(t, err)
	inv.DriverVersion = "590.1"
	n := open(t, inv, root)
	assert.Equal(t, before, bootID(t, root))
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(handleOf(t, n, 0).GetGpuInstanceById(7)))
	assert.FileExists(t, filepath.Join(root, "driver/usr/lib/x86_64-linux-gnu/libcuda.so.590.1"))
	assert.NoFileExists(t, filepath.Join(root, "driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"))
	assert.NoDirExists(t, filepath.Join(root, "driver/lib/firmware/nvidia/580.159.04"))
	assert.Contains(t, content(t, root, "proc/driver/nvidia/version"), "590.1")
	assert.Equal(t, "590.1\n", content(t, root, "sys/module/nvidia/version"))
}

func TestOtherGPUsAreAnotherMachine(t *testing.T) {
	root := memory.TempDir(t)
	old := handleOf(t, machineIn(t, "a100-40x8", root), 0)
	makeGI(t, old, "1g.5gb", 0)
	before := bootID(t, root)
	n := machineIn(t, "l4x4", root)
	assert.NotEqual(t, before, bootID(t, root))
	count, _ := n.DeviceGetCount()
	assert.Equal(t, 4, count)
	assert.NoFileExists(t, filepath.Join(root, "driver/dev/nvidia4"))
	assert.NoDirExists(t, filepath.Join(root, "sys/bus/pci/devices/0000:07:00.0"))
	assert.NoDirExists(t, filepath.Join(root, "proc/driver/nvidia/capabilities/gpu0/mig/gi7"))
	_, _, ret := old.GetMigMode()
	assert.Equal(t, nvml.ERROR_GPU_IS_LOST, ret, "a library that still runs on the old GPUs")
	_, ret = old.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 19})
	assert.Equal(t, nvml.ERROR_GPU_IS_LOST, ret)
}

func TestNothingOfTheHostIsRemoved(t *testing.T) {
	root := memory.TempDir(t)
	path := filepath.Join(root, "driver/mine")
	require.NoError(t, disk.WriteFile(path, "x"))
	machineIn(t, "l4x4", root)
	assert.FileExists(t, path, "the folder was not a simulated machine's")
	require.NoError(t, os.Remove(filepath.Join(root, "state.json")))
	machineIn(t, "h100x8", root)
	assert.NoFileExists(t, path, "now it is")
}

func TestRebootNeedsAMachine(t *testing.T) {
	for _, f := range []func(string) error{Reboot, ReloadDriver, func(r string) error { return ResetGPU(r, "0000:1b:00.0") }, func(r string) error { return RemoveProcess(r, 1) }} {
		assert.ErrorContains(t, f(memory.TempDir(t)), "no simulated machine in")
	}
}

// A machine whose GPU its inventory describes restarts like others.
func TestRebootWithADescribedGPU(t *testing.T) {
	inv := parsed(t, "gpus: [{productName: NVIDIA GeForce RTX 5080, architecture: Blackwell, memory: 15839Mi, computeUnits: 84}]")
	root := memory.TempDir(t)
	for range 2 {
		name, ret := handleOf(t, open(t, inv, root), 0).GetName()
		require.Equal(t, nvml.SUCCESS, ret)
		require.Equal(t, "NVIDIA GeForce RTX 5080", name)
		require.NoError(t, Reboot(root))
	}
}
