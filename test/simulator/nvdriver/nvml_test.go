package nvdriver

import (
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

func TestNothingWorksBeforeInit(t *testing.T) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	n, err := New(inv, Options{Root: memory.TempDir(t)})
	require.NoError(t, err)
	_, ret := n.DeviceGetCount()
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, ret)
	_, ret = n.DeviceGetHandleByIndex(0)
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, ret)
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, n.Shutdown())

	require.Equal(t, nvml.SUCCESS, n.Init())
	require.Equal(t, nvml.SUCCESS, n.InitWithFlags(0))
	require.Equal(t, nvml.SUCCESS, n.Shutdown())
	d, ret := n.DeviceGetHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret, "counted: one Init is left")
	require.Equal(t, nvml.SUCCESS, n.Shutdown())
	_, ret = d.GetUUID()
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, ret)
}

func TestRootIsChecked(t *testing.T) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	_, err = New(inv, Options{})
	assert.ErrorContains(t, err, "Options.Root is empty")
	_, err = New(inv, Options{Root: "/"})
	assert.ErrorContains(t, err, "Options.Root is /")
}

func TestSystem(t *testing.T) {
	n := machine(t, "h100x8")
	driver, ret := n.SystemGetDriverVersion()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, "580.159.04", driver)
	version, _ := n.SystemGetNVMLVersion()
	assert.Equal(t, "13.580.159.04", version)
	cuda, _ := n.SystemGetCudaDriverVersion()
	assert.Equal(t, 13000, cuda)
	cuda, _ = n.SystemGetCudaDriverVersion_v2()
	assert.Equal(t, 13000, cuda)
	count, _ := n.DeviceGetCount()
	assert.Equal(t, 8, count)
	assert.Equal(t, "ERROR_IN_USE", n.ErrorString(nvml.ERROR_IN_USE))
	assert.NoError(t, n.Extensions().LookupSymbol("nvmlDeviceGetMigMode"))
	assert.Error(t, n.Extensions().LookupSymbol("nvmlDeviceGetGpuInstanceProfileInfoV"))
}

func TestHandles(t *testing.T) {
	n := machine(t, "h100x8")
	d := handleOf(t, n, 2)
	uuid, ret := d.GetUUID()
	require.Equal(t, nvml.SUCCESS, ret)
	require.Regexp(t, `^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, uuid)
	same, ret := n.DeviceGetHandleByUUID(uuid)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Same(t, d, same)
	for _, id := range []string{"0000:52:00.0", "00000000:52:00.0", "00000000:52:00.0"} {
		same, ret = n.DeviceGetHandleByPciBusId(id)
		require.Equal(t, nvml.SUCCESS, ret, id)
		assert.Same(t, d, same)
	}
	capital, ret := n.DeviceGetHandleByPciBusId("00000000:9D:00.0")
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Same(t, handleOf(t, n, 4), capital)

	for _, index := range []int{-1, 8} {
		_, ret = n.DeviceGetHandleByIndex(index)
		assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret)
	}
	for _, id := range []string{"", "GPU-0", "MIG-0", "MIG-" + uuid} {
		_, ret = n.DeviceGetHandleByUUID(id)
		assert.Equal(t, nvml.ERROR_NOT_FOUND, ret, id)
	}
	_, ret = n.DeviceGetHandleByPciBusId("0000:00:00.0")
	assert.Equal(t, nvml.ERROR_NOT_FOUND, ret)
}

func TestUUIDsDependOnTheNode(t *testing.T) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	seen := map[string]bool{}
	uuids := func(seed string) []string {
		n, err := New(inv, Options{Root: memory.TempDir(t), Seed: seed})
		require.NoError(t, err)
		var all []string
		for _, d := range n.devices {
			all = append(all, d.uuid)
		}
		return all
	}
	for _, seed := range []string{"node-a", "node-b"} {
		for _, u := range uuids(seed) {
			assert.False(t, seen[u])
			seen[u] = true
		}
	}
	assert.Equal(t, uuids("node-a"), uuids("node-a"))
}

func TestWhatIsNotSimulatedSaysSo(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	assert.PanicsWithValue(t, "Device.GetSerialFunc: method is nil but Device.GetSerial was just called", func() { _, _ = d.GetSerial() })
	assert.Panics(t, func() { _, _ = n.SystemGetTopologyGpuSet(1) })
	assert.Panics(t, func() { d.GetGpuInstanceProfileInfoV(0) })
}

// What a reset by nvidia-smi leaves behind is put right when NVML is opened again.
func TestResetBySMI(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	makeCI(t, makeGI(t, d, "1g.5gb", 0))
	capability := filepath.Join(n.root, "proc/driver/nvidia/capabilities/gpu0/mig/gi7")
	node := filepath.Join(n.root, "driver/dev/nvidia-caps/nvidia-cap66")
	require.FileExists(t, node)
	said, code := nvtools.RunSMI(n.root, "--gpu-reset", "-i", pciOf(d))
	assert.Equal(t, 255, code)
	assert.Contains(t, string(said), "In use by another client", "we have a session")

	require.Equal(t, nvml.SUCCESS, n.Init())
	require.Equal(t, nvml.SUCCESS, n.Shutdown())
	_, code = nvtools.RunSMI(n.root, "--gpu-reset", "-i", pciOf(d))
	assert.Equal(t, 255, code, "one of two")
	require.Equal(t, nvml.SUCCESS, n.Shutdown())
	said, code = nvtools.RunSMI(n.root, "--gpu-reset", "-i", pciOf(d))
	require.Zero(t, code, string(said))
	assert.Contains(t, string(said), "GPU 00000000:07:00.0 was successfully reset.")
	assert.Equal(t, nvml.ERROR_UNINITIALIZED, n.Shutdown())

	require.Equal(t, nvml.SUCCESS, n.Init())
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(d.GetGpuInstanceById(7)))
	assert.NoDirExists(t, capability)
	assert.NoFileExists(t, node)
}
