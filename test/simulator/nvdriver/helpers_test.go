package nvdriver

import (
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// machine opens a built-in inventory in a folder of its own, initialised and
// without delays.
func machine(t *testing.T, name string) *NVML {
	t.Helper()
	return machineIn(t, name, memory.TempDir(t))
}

// machineAndGPU is machine with the handle of its first GPU.
func machineAndGPU(t *testing.T, name string) (*NVML, nvml.Device) {
	t.Helper()
	n := machine(t, name)
	return n, handleOf(t, n, 0)
}

func machineIn(t *testing.T, name, root string) *NVML {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	return open(t, inv, root)
}

// parsed reads an inventory.
func parsed(t *testing.T, yaml string) *models.Inventory {
	t.Helper()
	inv, err := models.ParseInventory([]byte(yaml))
	require.NoError(t, err)
	return inv
}

func open(t *testing.T, inv *models.Inventory, root string) *NVML {
	t.Helper()
	return openLibrary(t, inv, root, "")
}

// openLibrary is open with the library of a driver's version.
func openLibrary(t *testing.T, inv *models.Inventory, root, version string) *NVML {
	t.Helper()
	n, err := New(inv, Options{Root: root, Seed: "node-a", Library: version, Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, n.Init())
	t.Cleanup(func() { n.Shutdown() })
	return n
}

// handleOf returns the handle of a GPU.
func handleOf(t *testing.T, n *NVML, index int) nvml.Device {
	t.Helper()
	d, ret := n.DeviceGetHandleByIndex(index)
	require.Equal(t, nvml.SUCCESS, ret)
	return d
}

// migOn switches MIG mode on.
func migOn(t *testing.T, d nvml.Device) {
	t.Helper()
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	require.Equal(t, nvml.SUCCESS, ret)
	require.Equal(t, nvml.SUCCESS, activation)
}

// setMIG asks for a MIG mode. It returns the answer of the call and that of the activation.
func setMIG(d nvml.Device, mode int) [2]nvml.Return {
	activation, ret := d.SetMigMode(mode)
	return [2]nvml.Return{ret, activation}
}

// profileInfo finds a profile by name.
func profileInfo(t *testing.T, d nvml.Device, name string) nvml.GpuInstanceProfileInfo {
	t.Helper()
	m := model(t, d)
	for _, p := range m.Profiles {
		if p.Name == name {
			info, ret := d.GetGpuInstanceProfileInfo(p.Enum)
			require.Equal(t, nvml.SUCCESS, ret)
			return info
		}
	}
	t.Fatalf("%s has no profile %s", m.Key, name)
	return nvml.GpuInstanceProfileInfo{}
}

// tryGI asks for a GPU instance at a start.
func tryGI(t *testing.T, d nvml.Device, name string, start uint32) (nvml.GpuInstance, nvml.Return) {
	t.Helper()
	info := profileInfo(t, d, name)
	p, _ := profileByID(model(t, d), info.Id)
	return d.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: start, Size: uint32(p.Size)})
}

// makeGI creates a GPU instance at a start.
func makeGI(t *testing.T, d nvml.Device, name string, start uint32) nvml.GpuInstance {
	t.Helper()
	gi, ret := tryGI(t, d, name, start)
	require.Equal(t, nvml.SUCCESS, ret, "%s at %d", name, start)
	return gi
}

// makeCI creates the compute instance that takes the whole GPU instance.
func makeCI(t *testing.T, gi nvml.GpuInstance) nvml.ComputeInstance {
	t.Helper()
	info := fullCompute(t, gi)
	ci, ret := gi.CreateComputeInstance(&info)
	require.Equal(t, nvml.SUCCESS, ret)
	return ci
}

// fullCompute finds the largest compute profile of a GPU instance.
func fullCompute(t *testing.T, gi nvml.GpuInstance) nvml.ComputeInstanceProfileInfo {
	t.Helper()
	var best nvml.ComputeInstanceProfileInfo
	for enum := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(enum, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.SUCCESS && info.SliceCount > best.SliceCount {
			best = info
		}
	}
	require.NotZero(t, best.SliceCount)
	return best
}

// model and pciOf look behind a GPU's handle.
func model(t *testing.T, d nvml.Device) *models.NVIDIAModel {
	t.Helper()
	c, ok := d.(*device)
	require.True(t, ok)
	return c.gpu().Model
}

func pciOf(d nvml.Device) string {
	c, ok := d.(*device)
	if !ok {
		return ""
	}
	return c.gpu().PCI
}
