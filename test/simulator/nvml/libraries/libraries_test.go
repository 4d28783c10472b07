package libraries

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvml/symbols"
)

// Each library has exactly its branch's functions, and no name of Go's runtime, which would take the
// place of that of the program.
func TestLibraries(t *testing.T) {
	branches := symbols.Branches()
	if testing.Short() {
		branches = []int{branches[0], 580}
	}
	// The go command keeps results by what tests read, and does not see what a test builds.
	sources, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, file := range sources {
		_, err := os.ReadFile(file)
		require.NoError(t, err)
	}
	folder := t.TempDir()
	require.NoError(t, Build(t.Context(), folder, branches...))
	for _, branch := range branches {
		t.Run(strconv.Itoa(branch), func(t *testing.T) {
			exported, err := symbols.In(Path(folder, branch))
			require.NoError(t, err)
			assert.Equal(t, symbols.Of(branch), exported)
			file, err := elf.Open(Path(folder, branch))
			require.NoError(t, err)
			defer file.Close()
			name, err := file.DynString(elf.DT_SONAME)
			require.NoError(t, err)
			assert.Equal(t, []string{"libnvidia-ml.so.1"}, name)
		})
	}
	t.Run("binding", func(t *testing.T) { testBinding(t, Path(folder, 580)) })
}

// testBinding uses a library as programs do, through go-nvml. The rest is tested by
// pkg/hardware/nvidia's tests on each library (make test-drivers).
func testBinding(t *testing.T, library string) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	root := memory.TempDir(t)
	machine, err := nvdriver.New(inv, nvdriver.Options{
		Root: root, Sleep: func(time.Duration) {}, Libraries: map[string]string{"libnvidia-ml.so": library},
	})
	require.NoError(t, err)
	// Where a driver is installed; no variable names the machine.
	installed := filepath.Join(machine.DriverRoot(), "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")

	lib := nvml.New(nvml.WithLibraryPath(installed))
	require.Equal(t, nvml.SUCCESS, lib.Init())
	require.NoError(t, lib.Extensions().LookupSymbol("nvmlDeviceGetHandleByUUIDV"), "added in 580")
	require.Error(t, lib.Extensions().LookupSymbol("nvmlNoSuchFunction"))
	assert.Equal(t, "In use by another client", nvml.ERROR_IN_USE.Error(), "the library's words")

	told, ret := lib.SystemGetNVMLVersion()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Contains(t, told, inv.DriverVersion)
	version, ret := lib.SystemGetDriverVersion()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, inv.DriverVersion, version)
	count, ret := lib.DeviceGetCount()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, 8, count)
	_, ret = lib.DeviceGetHandleByIndex(8)
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret)
	device, ret := lib.DeviceGetHandleByIndex(1)
	require.Equal(t, nvml.SUCCESS, ret)
	uuid, _ := device.GetUUID()
	assert.Equal(t, inv.GPUUUID("", 1), uuid)
	same, ret := lib.DeviceGetHandleByUUID(uuid)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, device, same, "one GPU, one handle")
	_, ret = device.GetFanSpeed()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "not simulated")

	persistence, ret := device.GetPersistenceMode()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.FEATURE_ENABLED, persistence)
	corrected, uncorrected, pending, failed, ret := device.GetRemappedRows()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, []any{0, 0, false, false}, []any{corrected, uncorrected, pending, failed}, "as on an H100")

	// A partition, from the mode to the device and back.
	activation, ret := device.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	require.Equal(t, nvml.SUCCESS, ret)
	require.Equal(t, nvml.SUCCESS, activation)
	profile, ret := device.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE).V3()
	require.Equal(t, nvml.SUCCESS, ret)
	info := nvml.GpuInstanceProfileInfo{Id: profile.Id, InstanceCount: profile.InstanceCount}
	placements, ret := device.GetGpuInstancePossiblePlacements(&info)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, []nvml.GpuInstancePlacement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}, placements)
	made, ret := device.CreateGpuInstanceWithPlacement(&info, &placements[1])
	require.Equal(t, nvml.SUCCESS, ret)
	instances, ret := device.GetGpuInstances(&info)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, []nvml.GpuInstance{made}, instances, "one instance, one handle")
	compute, ret := made.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE})
	require.Equal(t, nvml.SUCCESS, ret)
	partition, ret := device.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	attributes, ret := partition.GetAttributes()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.EqualValues(t, 60, attributes.MultiprocessorCount)
	parent, ret := partition.GetDeviceHandleFromMigDeviceHandle()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, device, parent)
	where, ret := compute.GetInfo()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, made, where.GpuInstance)
	assert.Equal(t, nvml.ERROR_IN_USE, made.Destroy())
	activation, ret = device.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	assert.Equal(t, nvml.ERROR_IN_USE, ret)
	assert.Equal(t, nvml.SUCCESS, activation, "as the caller has left it")
	_, ret = partition.GetPciInfo()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "a MIG device")
	_, ret = partition.GetTopologyCommonAncestor(device)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
	level, ret := device.GetTopologyCommonAncestor(device)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.TOPOLOGY_INTERNAL, level)
	require.Equal(t, nvml.SUCCESS, compute.Destroy())
	require.Equal(t, nvml.SUCCESS, made.Destroy())
	_, ret = made.GetInfo()
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, "a handle of what was destroyed")

	require.Equal(t, nvml.SUCCESS, lib.Shutdown())
	_, ret = device.GetName()
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, ret)
}
