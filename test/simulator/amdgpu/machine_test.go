package amdgpu

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

func TestMemoryModeNeedsReload(t *testing.T) {
	const other = "0000:a6:00.0"
	k := machine(t, "mi300x8")
	file := of(first, "current_memory_partition")
	assert.ErrorIs(t, k.WriteFile(file, []byte("NPS8")), unix.EINVAL)
	require.NoError(t, k.WriteFile(file, []byte("NPS1")), "the mode that it is in")
	require.NoError(t, k.WriteFile(file, []byte("NPS4")))
	assert.Equal(t, "NPS1", read(t, k, file), "not before the driver is loaded again")
	module, err := k.Stat("/sys/module/amdgpu")
	require.NoError(t, err)
	boot := read(t, k, "/proc/sys/kernel/random/boot_id")

	require.NoError(t, ReloadDriver(k.root))
	for _, pci := range []string{first, other} {
		assert.Equal(t, "NPS4", read(t, k, of(pci, "current_memory_partition")), "all GPUs of the hive")
		assert.Equal(t, "CPX", read(t, k, of(pci, "current_compute_partition")), "what the driver chooses")
		assert.Equal(t, "QPX, CPX", read(t, k, of(pci, "available_compute_partition")))
	}
	assert.ErrorIs(t, switchTo(k, first, "SPX"), unix.EINVAL)
	nodes := gpuNodes(t, k, first)
	require.Len(t, nodes, 8)
	assert.EqualValues(t, 24576<<20, nodes[0].memory)
	assert.EqualValues(t, 24568<<20, nodes[7].memory, "the last region lacks 16 MiB")
	reloaded, err := k.Stat("/sys/module/amdgpu")
	require.NoError(t, err)
	assert.NotEqual(t, module.Inode, reloaded.Inode)
	assert.Equal(t, boot, read(t, k, "/proc/sys/kernel/random/boot_id"))

	require.NoError(t, Reboot(k.root))
	assert.Equal(t, "NPS1", read(t, k, file))
	assert.Equal(t, "SPX", read(t, k, of(first, "current_compute_partition")))
	assert.NotEqual(t, boot, read(t, k, "/proc/sys/kernel/random/boot_id"))
	data, err := os.ReadFile(filepath.Join(k.root, "proc/sys/kernel/random/boot_id"))
	require.NoError(t, err)
	assert.Equal(t, read(t, k, "/proc/sys/kernel/random/boot_id")+"\n", string(data))
}

func TestReloadAndRebootEndProcesses(t *testing.T) {
	k := machine(t, "mi300x8")
	for name, restart := range map[string]func(string) error{"reload": ReloadDriver, "reboot": Reboot} {
		require.NoError(t, switchTo(k, first, "CPX"))
		require.NoError(t, StartProcess(k.root, Process{PID: 1, GPUs: []string{first}}))
		require.NoError(t, SetFaults(k.root, Faults{Processes: []Process{{PID: 2}}, Lost: []string{"0000:26:00.0"}}))
		require.NoError(t, restart(k.root), name)
		assert.Empty(t, names(t, k, "/sys/class/kfd/kfd/proc"), name)
		assert.Equal(t, "SPX", read(t, k, of(first, "current_compute_partition")), name)
		assert.Len(t, names(t, k, "/sys/bus/pci/drivers/amdgpu"), 8, "seven GPUs and the module: what is lost stays lost")
		assert.ErrorContains(t, restart(memory.TempDir(t)), "no simulated AMD GPUs", name)
	}
}

func TestStateSurvivesAndIsShared(t *testing.T) {
	root := memory.TempDir(t)
	k := machineIn(t, "mi300x8", root)
	require.NoError(t, switchTo(k, first, "CPX"))
	before := gpuNodes(t, k, "")
	other := machineIn(t, "mi300x8", root)
	assert.Equal(t, before, gpuNodes(t, other, ""))
	require.NoError(t, switchTo(other, first, "DPX"))
	assert.Equal(t, "DPX", read(t, k, of(first, "current_compute_partition")), "seen at once")

	var wait sync.WaitGroup
	for i, c := range k.inventory.AMD {
		for _, kernel := range []*Kernel{k, other} {
			wait.Go(func() { assert.NoError(t, switchTo(kernel, c.PCI, "CPX"), "GPU %d", i) })
		}
	}
	wait.Wait()
	nodes := gpuNodes(t, k, "")
	require.Len(t, nodes, 64)
	ids := map[string]bool{}
	for _, n := range nodes {
		ids[n.gpuID] = true
	}
	assert.Len(t, ids, 64)
}

func TestOtherInventories(t *testing.T) {
	root := memory.TempDir(t)
	k := machineIn(t, "mi300x8", root)
	require.NoError(t, switchTo(k, first, "CPX"))
	load := func(k *Kernel) uint64 {
		info, err := k.Stat("/sys/module/amdgpu")
		require.NoError(t, err)
		return info.Inode
	}
	loaded := load(k)

	inv, err := models.LoadInventory("mi300x8")
	require.NoError(t, err)
	inv.AMDDriver.Version = "6.16.14"
	k = open(t, inv, root)
	assert.Equal(t, "SPX", read(t, k, of(first, "current_compute_partition")), "another version of the driver was loaded")
	assert.NotEqual(t, loaded, load(k))

	inv.AMD[0].MemoryMode, inv.AMD[0].ComputeMode = xcp.NPS4, xcp.CPX
	k = open(t, inv, root)
	assert.Equal(t, "NPS4", read(t, k, of(first, "current_memory_partition")))

	small := machineIn(t, "mi300a4", root)
	entries, err := os.ReadDir(filepath.Join(root, "dev/dri"))
	require.NoError(t, err)
	assert.Len(t, entries, 64, "the device nodes of the old GPUs are gone")
	assert.Len(t, gpuNodes(t, small, ""), 4)

	k = open(t, inv, root)
	require.NoError(t, switchTo(k, first, "QPX"))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("other\n"), 0o600))
	k = open(t, inv, root)
	assert.Equal(t, "CPX", read(t, k, of(first, "current_compute_partition")), "the machine was restarted")
	assert.Equal(t, "other", read(t, k, "/proc/sys/kernel/random/boot_id"))
}

func TestNewRefuses(t *testing.T) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	_, err = New(inv, Options{Root: memory.TempDir(t)})
	assert.ErrorContains(t, err, "the inventory has none")
	inv, err = models.LoadInventory("mi300x8")
	require.NoError(t, err)
	for _, root := range []string{"", "/"} {
		_, err = New(inv, Options{Root: root})
		assert.ErrorContains(t, err, "Options.Root is")
	}
	root := memory.TempDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "amdgpu.json"), []byte("{"), 0o600))
	_, err = New(inv, Options{Root: root})
	assert.ErrorContains(t, err, "remove the file to start afresh")
	require.NoError(t, os.WriteFile(filepath.Join(root, "amdgpu.json"), []byte(`{"version": 99}`), 0o600))
	_, err = New(inv, Options{Root: root})
	assert.ErrorContains(t, err, "version 99, this program reads 1")
	assert.True(t, Exists(root))
	assert.False(t, Exists(memory.TempDir(t)))
}

func TestBusyGPU(t *testing.T) {
	const other = "0000:26:00.0"
	k := machine(t, "mi300x8")
	require.NoError(t, switchTo(k, first, "CPX"))
	three := 3
	require.NoError(t, StartProcess(k.root, Process{PID: 4242, Name: "python3", GPUs: []string{first}, Partition: &three}))
	assert.ErrorIs(t, switchTo(k, first, "DPX"), unix.EBUSY)
	assert.NoError(t, switchTo(k, other, "DPX"), "newer drivers ask about the GPU")

	assert.Equal(t, "python3", read(t, k, "/proc/4242/comm"))
	node := gpuNodes(t, k, first)[3]
	dir := "/sys/class/kfd/kfd/proc/4242"
	assert.Equal(t, []string{"pasid", "queues", "sdma_" + node.gpuID, "stats_" + node.gpuID, "vram_" + node.gpuID}, names(t, k, dir))
	assert.Equal(t, node.gpuID, read(t, k, dir+"/queues/0/gpuid"))

	require.NoError(t, EndProcess(k.root, 4242))
	assert.ErrorContains(t, EndProcess(k.root, 4242), "no process 4242")
	assert.Empty(t, names(t, k, "/sys/class/kfd/kfd/proc"))
	assert.NoError(t, switchTo(k, first, "DPX"))

	old := machine(t, "mi308x8")
	require.NoError(t, ReloadDriver(old.root))
	require.NoError(t, old.WriteFile(of("0000:0a:00.0", "current_memory_partition"), []byte("NPS1")))
	require.NoError(t, ReloadDriver(old.root))
	require.NoError(t, StartProcess(old.root, Process{PID: 1, GPUs: nil}))
	assert.ErrorIs(t, switchTo(old, "0001:0a:00.0", "CPX"), unix.EBUSY, "older drivers ask about the host")
	assert.ErrorContains(t, StartProcess(old.root, Process{PID: 2, GPUs: []string{first}}), "gpus[0]: no AMD GPU at")
	assert.ErrorContains(t, StartProcess(old.root, Process{}), "pid: 0")
	assert.ErrorContains(t, StartProcess(memory.TempDir(t), Process{PID: 1}), "no simulated AMD GPUs")
}

func TestMemoryOfProcesses(t *testing.T) {
	k := machine(t, "mi300x8")
	assert.Equal(t, "0", read(t, k, of(first, "mem_info_vram_used")))
	require.NoError(t, switchTo(k, first, "CPX"))
	three := 3
	require.NoError(t, StartProcess(k.root, Process{PID: 1, GPUs: []string{first}, Partition: &three}))
	require.NoError(t, StartProcess(k.root, Process{PID: 2, GPUs: []string{first}}))
	assert.Equal(t, "4831838208", read(t, k, of(first, "mem_info_vram_used")), "512 MiB of each partition used")
}
