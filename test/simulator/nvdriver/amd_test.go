package nvdriver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// The AMD GPU of h100x2-mi300x2 that the tests switch.
const amdGPU = "/sys/bus/pci/devices/0000:26:00.0/current_compute_partition"

func amdIn(t *testing.T, root, name string) *amdgpu.Kernel {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	k, err := amdgpu.New(inv, amdgpu.Options{Root: root, Seed: "node-a", Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	return k
}

func fileOf(t *testing.T, k *amdgpu.Kernel, name string) string {
	t.Helper()
	data, err := k.ReadFile(name)
	require.NoError(t, err)
	return strings.TrimSpace(string(data))
}

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// A machine with GPUs of both vendors has one boot id, whichever simulator is
// there first, and reboots as one.
func TestBothVendorsRebootAsOne(t *testing.T) {
	const name = "h100x2-mi300x2"
	for order, start := range map[string]func(root string) (*NVML, *amdgpu.Kernel){
		"NVIDIA first": func(root string) (*NVML, *amdgpu.Kernel) {
			n := machineIn(t, name, root)
			return n, amdIn(t, root, name)
		},
		"AMD first": func(root string) (*NVML, *amdgpu.Kernel) {
			k := amdIn(t, root, name)
			return machineIn(t, name, root), k
		},
	} {
		t.Run(order, func(t *testing.T) {
			root := memory.TempDir(t)
			n, k := start(root)
			boot := bootID(t, root)
			require.Equal(t, strings.TrimSpace(boot), fileOf(t, k, bootIDFile))
			d := handleOf(t, n, 0)
			migOn(t, d)
			makeGI(t, d, "1g.10gb", 0)
			require.NoError(t, k.WriteFile(amdGPU, []byte("CPX")))

			n, k = start(root)
			assert.Equal(t, boot, bootID(t, root), "both start again on a machine that goes on")
			assert.Equal(t, "CPX", fileOf(t, k, amdGPU))

			require.NoError(t, ReloadDriver(root))
			assert.Equal(t, "CPX", fileOf(t, k, amdGPU), "it is NVIDIA's driver")
			require.NoError(t, Reboot(root))
			assert.NotEqual(t, boot, bootID(t, root))
			assert.Equal(t, strings.TrimSpace(bootID(t, root)), fileOf(t, k, bootIDFile))
			assert.Equal(t, "SPX", fileOf(t, k, amdGPU))
			assert.Equal(t, [2]int{0, 0}, modes(t, handleOf(t, n, 0)))
		})
	}
}

func TestRebootOfAMDAlone(t *testing.T) {
	root := memory.TempDir(t)
	k := amdIn(t, root, "mi300x8")
	boot := bootID(t, root)
	require.NoError(t, k.WriteFile("/sys/bus/pci/devices/0000:05:00.0/current_compute_partition", []byte("CPX")))
	require.NoError(t, Reboot(root))
	assert.NotEqual(t, boot, bootID(t, root))
	assert.Equal(t, "SPX", fileOf(t, k, "/sys/bus/pci/devices/0000:05:00.0/current_compute_partition"))
	assert.ErrorContains(t, ReloadDriver(root), "no simulated machine")
	assert.ErrorContains(t, Reboot(memory.TempDir(t)), "no simulated machine")
}

// Other GPUs of NVIDIA's mean that the machine was switched off, for AMD's too.
func TestOtherGPUsOfNVIDIARestartAMD(t *testing.T) {
	root := memory.TempDir(t)
	machineIn(t, "h100x2-mi300x2", root)
	k := amdIn(t, root, "h100x2-mi300x2")
	require.NoError(t, k.WriteFile(amdGPU, []byte("CPX")))
	machineIn(t, "l4x4", root)
	k = amdIn(t, root, "h100x2-mi300x2")
	assert.Equal(t, "SPX", fileOf(t, k, amdGPU))
}

// One file has the faults of both vendors.
func TestFaultsOfBothVendors(t *testing.T) {
	n := machine(t, "h100x2-mi300x2")
	k := amdIn(t, n.root, "h100x2-mi300x2")
	require.NoError(t, amdgpu.SetFaults(n.root, amdgpu.Faults{Lost: []string{"0000:26:00.0"}}))
	require.NoError(t, SetFaults(n.root, Faults{Lost: []string{"0000:1b:00.0"}}))
	_, err := k.ReadFile(amdGPU)
	assert.Error(t, err, "setting those of NVIDIA's GPUs leaves AMD's")
	faults, _ := n.faults.Read()
	require.Equal(t, []string{"0000:1b:00.0"}, faults.Lost)
	require.NoError(t, amdgpu.SetFaults(n.root, amdgpu.Faults{}))
	assert.Equal(t, "SPX", fileOf(t, k, amdGPU))
	faults, _ = n.faults.Read()
	assert.Equal(t, []string{"0000:1b:00.0"}, faults.Lost)

	require.NoError(t, SetFaults(n.root, Faults{AMD: &amdgpu.Faults{Lost: []string{"0000:26:00.0"}}}))
	_, err = k.ReadFile(amdGPU)
	assert.Error(t, err)
	_, err = ParseFaults([]byte("amd: {lost: [x]}"))
	assert.ErrorContains(t, err, `amd.lost[0]: "x"`)
}

// A change of the memory mode of AMD's GPUs reloads their driver, and leaves
// NVIDIA's GPUs, with what runs on them, as they are.
func TestMemoryModeOfAMDLeavesNVIDIA(t *testing.T) {
	const name = "h100x2-mi300x2"
	root := memory.TempDir(t)
	n := machineIn(t, name, root)
	k := amdIn(t, root, name)
	d := handleOf(t, n, 0)
	migOn(t, d)
	makeGI(t, d, "1g.10gb", 0)
	require.NoError(t, AddProcess(root, Process{GPU: "0000:9d:00.0", PID: 17}))
	before, err := os.ReadFile(filepath.Join(root, "state.json"))
	require.NoError(t, err)
	boot := bootID(t, root)

	module := &kmod.Module{Name: "amdgpu", Run: k.Modprobe, ReadFile: k.ReadFile, Marker: filepath.Join(memory.TempDir(t), "out")}
	driver, err := amd.New(amd.Config{Files: k, HostDevRoot: root, Reload: module.Reload})
	require.NoError(t, err)
	require.NoError(t, driver.SetMemoryPartition(t.Context(), "NPS4"))
	assert.Equal(t, "CPX", fileOf(t, k, amdGPU))

	after, err := os.ReadFile(filepath.Join(root, "state.json"))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	assert.Equal(t, boot, bootID(t, root))
}
