package hardware

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// checksOfAMD are what must hold on every machine with AMD GPUs.
var checksOfAMD = []struct {
	name string
	run  func(*testing.T, *machine)
}{
	{"Inventory", checkAMDInventory},
	{"Slices", checkSlices},
	{"Scheduler", checkScheduler},
	{"Health", checkHealth},
	{"LoadID", checkLoadID},
	{"WatchHealth", checkWatchHealth},
	{"Kernel", tellKernel},
}

// TestAMD checks the AMD GPUs of this machine. It reads files of the kernel.
func TestAMD(t *testing.T) {
	files := sysfs.Host("/")
	if _, err := files.Stat("/sys/module/amdgpu"); err != nil {
		t.Skipf("no AMD driver on this machine: %v", err)
	}
	m := openAMD(t, files)
	for _, check := range checksOfAMD {
		t.Run(check.name, func(t *testing.T) {
			before := stateOf(t, m)
			check.run(t, m)
			assert.Equal(t, before, stateOf(t, m), "the check has changed the GPUs")
		})
	}
}

// openAMD opens the driver of a machine. Without Reload it cannot change memory modes.
func openAMD(t *testing.T, files sysfs.Files) *machine {
	t.Helper()
	driver, err := amd.New(amd.Config{Files: files})
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	return &machine{reader: driver, kernel: files}
}

// checkAMDInventory: every GPU tells who it is, and its placements fit its counters.
func checkAMDInventory(t *testing.T, m *machine) {
	seen := map[string]bool{}
	for _, g := range gpusOf(t, m) {
		t.Logf("%s: %s, %s, driver %s, %s, PCIe root %q, %d placements, counters %v",
			g.Name(), g.ProductName, g.Architecture, g.DriverVersion, g.UUID, g.PCIeRoot, len(g.Placements), g.Counters)
		assert.Equal(t, gpu.AMD, g.Vendor)
		assert.NotEmpty(t, g.UUID)
		assert.NotEmpty(t, g.Architecture)
		require.NotEmpty(t, g.Placements, "the GPU offers nothing")
		for _, p := range g.Placements {
			assert.False(t, seen[p.Name()], "%s is there twice", p.Name())
			seen[p.Name()] = true
			checkAmounts(t, &g, p)
		}
	}
}

// filesOfGPU and filesOfDriver are what decides about modes, below the GPU's folder and below /sys.
var (
	filesOfGPU = []string{
		"available_compute_partition", "current_compute_partition", "available_memory_partition", "current_memory_partition",
		"compute_partition_mem_alloc_mode", "vbios_version", "product_name", "ras/features", "reset_method",
	}
	filesOfDriver = []string{
		"module/amdgpu/version", "module/amdgpu/refcnt", "module/amdgpu/initstate", "module/amdgpu/taint",
		"fs/cgroup/cgroup.controllers", "fs/cgroup/dmem.capacity",
	}
)

// tellKernel prints the files that decide whether modes can be changed, and by whom the driver and
// its GPUs are used.
func tellKernel(t *testing.T, m *machine) {
	tell := func(name string) {
		content, err := m.kernel.ReadFile(name)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Logf("%s: %q (%v)", name, strings.TrimSpace(string(content)), err)
		}
	}
	for _, name := range filesOfDriver {
		tell(filepath.Join("/sys", name))
	}
	for _, folder := range []string{"/sys/module/amdgpu/holders", "/sys/class/kfd/kfd/proc"} {
		names, err := m.kernel.ReadDir(folder)
		t.Logf("%s: %v (%v)", folder, names, err)
	}
	for _, g := range gpusOf(t, m) {
		for _, name := range filesOfGPU {
			tell(filepath.Join("/sys/bus/pci/devices", g.PCIAddress, name))
		}
		live, err := m.Live(m.ctx(t), g.PCIAddress)
		assert.NoError(t, err)
		obstacles, err := m.Obstacles(m.ctx(t), g.PCIAddress, false)
		assert.NoError(t, err)
		t.Logf("%s: %d partitions; in the way of a change: %v", g.Name(), len(live), obstacles)
	}
}
