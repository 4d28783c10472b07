package nvidia

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// machine is a simulated node with an open driver on it.
type machine struct {
	*Driver
	t    *testing.T
	root string
	nvml *nvdriver.NVML
}

// simulated starts a machine with one of the simulator's inventories. change
// alters the configuration, for instance to put a trap before NVML.
func simulated(t *testing.T, name string, change ...func(*Config)) *machine {
	t.Helper()
	return withLibrary(t, name, nvdriver.LibraryForTest(t.Name()), change...)
}

// withLibrary is simulated with the library of a driver.
func withLibrary(t *testing.T, name, library string, change ...func(*Config)) *machine {
	t.Helper()
	if folder := os.Getenv(libraryFolder); folder != "" && filepath.Base(folder) != library {
		t.Skipf("%s is not the library of %s", folder, library)
	}
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	root := memory.TempDir(t)
	lib, err := nvdriver.New(inv, nvdriver.Options{Root: root, Library: library, Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	return machineWith(t, root, lib, change...)
}

// machineWith opens a driver on a simulated machine.
func machineWith(t *testing.T, root string, lib *nvdriver.NVML, change ...func(*Config)) *machine {
	t.Helper()
	cfg := Config{
		NVML:       binding(t, root, lib),
		DriverRoot: filepath.Join(root, "driver"),
		ProcRoot:   root,
		SysRoot:    filepath.Join(root, "sys"),
	}
	for _, f := range change {
		f(&cfg)
	}
	d, err := New(cfg)
	require.NoError(t, err)
	m := &machine{Driver: d, t: t, root: root, nvml: lib}
	require.NoError(t, d.Open(t.Context()))
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return m
}

// libraryFolder names a variable: a folder <branch> with the simulated library file of a driver.
const libraryFolder = "TRANCHE_TEST_NVML"

// binding is the library that the driver uses: the simulated one in this process, or go-nvml on a
// library file. That serves one machine at a time: run with -parallel 1.
func binding(t *testing.T, root string, lib *nvdriver.NVML) nvml.Interface {
	t.Helper()
	folder := os.Getenv(libraryFolder)
	if folder == "" {
		return lib
	}
	if libraryInUse {
		t.Skip("the library file serves one machine at a time")
	}
	libraryInUse = true
	t.Cleanup(func() { libraryInUse = false })
	require.NoError(t, os.Setenv("TRANCHE_SIMULATED_MACHINE", root))
	lib.Observe()
	return nvml.New(nvml.WithLibraryPath(filepath.Join(folder, "libnvidia-ml.so.1")))
}

var libraryInUse bool

// inProcess skips a test that puts something of its own between the driver and go-nvml.
func inProcess(t *testing.T) {
	t.Helper()
	if os.Getenv(libraryFolder) != "" {
		t.Skip("needs the simulated library in this process")
	}
}

// ofModel writes an inventory of one model and gives its path.
func ofModel(t *testing.T, model, extra string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inventory.yaml")
	text := "driverVersion: \"580.159.04\"\ngpus:\n- model: " + model + "\n  count: 2\n  pci: [\"0000:1b:00.0\", \"0000:43:00.0\"]\n" + extra
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// gpus is the inventory, which must be complete.
func (m *machine) gpus() []gpu.GPU {
	m.t.Helper()
	gpus, err := m.Inventory(m.t.Context())
	require.NoError(m.t, err)
	return gpus
}

// placement finds a placement of the first GPU.
func (m *machine) placement(profile string, start int) gpu.Placement {
	m.t.Helper()
	for _, p := range m.gpus()[0].Placements {
		if p.Type == gpu.TypeMIG && p.Profile == profile && p.Start == start {
			return p
		}
	}
	m.t.Fatalf("no placement %s at %d", profile, start)
	return gpu.Placement{}
}

// whole is the whole first GPU.
func (m *machine) whole() gpu.Placement {
	m.t.Helper()
	placements := m.gpus()[0].Placements
	last := placements[len(placements)-1]
	require.Equal(m.t, gpu.TypeGPU, last.Type)
	return last
}

func (m *machine) create(p gpu.Placement) gpu.Partition {
	m.t.Helper()
	partition, err := m.Create(m.t.Context(), p)
	require.NoError(m.t, err)
	return partition
}

func (m *machine) live(pciAddress string) []gpu.Partition {
	m.t.Helper()
	live, err := m.Live(m.t.Context(), pciAddress)
	require.NoError(m.t, err)
	return live
}

func (m *machine) faults(f nvdriver.Faults) {
	m.t.Helper()
	require.NoError(m.t, nvdriver.SetFaults(m.root, f))
}

// fail makes a call on all GPUs fail, as often as told (0: always).
func (m *machine) fail(call string, ret nvml.Return, times int) {
	m.t.Helper()
	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: call, GPU: "*", Error: nvdriver.Return(ret), Times: times}}})
}

func (m *machine) noFaults() {
	m.t.Helper()
	m.faults(nvdriver.Faults{})
}

// device is a GPU's own handle, to look or meddle behind the driver's back.
func (m *machine) device(index int) nvml.Device {
	m.t.Helper()
	device, ret := m.nvml.DeviceGetHandleByIndex(index)
	require.Equal(m.t, nvml.SUCCESS, ret)
	return device
}

// migOn switches the first GPU's mode without the driver.
func (m *machine) migOn() {
	m.t.Helper()
	activation, ret := m.device(0).SetMigMode(nvml.DEVICE_MIG_ENABLE)
	require.Equal(m.t, nvml.SUCCESS, ret)
	require.Equal(m.t, nvml.SUCCESS, activation)
}

func (m *machine) modes() (current, pending int) {
	m.t.Helper()
	current, pending, ret := m.device(0).GetMigMode()
	require.Equal(m.t, nvml.SUCCESS, ret)
	return current, pending
}

// bareInstance makes a GPU instance without a compute instance, as a crash
// would leave it.
func (m *machine) bareInstance(p gpu.Placement) nvml.GpuInstance {
	m.t.Helper()
	device := m.device(0)
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := device.GetGpuInstanceProfileInfo(enum)
		if ret != nvml.SUCCESS || int64(info.MemorySizeMB)<<20 != p.Memory || int64(info.MultiprocessorCount) != p.ComputeUnits {
			continue
		}
		gi, ret := device.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)})
		require.Equal(m.t, nvml.SUCCESS, ret)
		return gi
	}
	m.t.Fatalf("no profile for %s", p.Name())
	return nil
}

// trap is a library whose devices are wrapped, for what the simulator cannot
// be told to do.
type trap struct {
	nvml.Interface
	wrap func(nvml.Device) nvml.Device
}

// trapping puts wrap around the handles of GPUs.
func trapping(wrap func(nvml.Device) nvml.Device) func(*Config) {
	return func(c *Config) { c.NVML = &trap{Interface: c.NVML, wrap: wrap} }
}

func (l *trap) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	device, ret := l.Interface.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return l.wrap(device), ret
}

func (l *trap) DeviceGetHandleByPciBusId(id string) (nvml.Device, nvml.Return) {
	device, ret := l.Interface.DeviceGetHandleByPciBusId(id)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return l.wrap(device), ret
}
