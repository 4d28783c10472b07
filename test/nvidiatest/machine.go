// Package nvidiatest has simulated machines with NVIDIA GPUs, for the tests of the packages that drive
// them.
//
// It may import pkg/gpu, pkg/hardware, pkg/publish/models and the simulator. It must not import
// pkg/hardware/nvidia, whose tests use it.
package nvidiatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// Machine is a simulated node with an open driver on it.
type Machine struct {
	hardware.Driver
	T    *testing.T
	Root string
	NVML *nvdriver.NVML
}

// Library makes the library of a machine with one of the simulator's inventories, in a folder.
func Library(t *testing.T, name, library string) (root string, lib *nvdriver.NVML) {
	t.Helper()
	if folder := os.Getenv(LibraryFolder); folder != "" && filepath.Base(folder) != library {
		t.Skipf("%s is not the library of %s", folder, library)
	}
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	root = memory.TempDir(t)
	lib, err = nvdriver.New(inv, nvdriver.Options{Root: root, Library: library, Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	return root, lib
}

var libraryInUse bool

// LibraryFolder names a variable: a folder <branch> with the simulated library file of a driver.
const LibraryFolder = "TRANCHE_TEST_NVML"

// Binding is the library that the driver uses: the simulated one in this process, or go-nvml on a
// library file. That serves one machine at a time: run with -parallel 1.
func Binding(t *testing.T, root string, lib *nvdriver.NVML) nvml.Interface {
	t.Helper()
	folder := os.Getenv(LibraryFolder)
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

// InProcess skips a test that puts something of its own between the driver and go-nvml.
func InProcess(t *testing.T) {
	t.Helper()
	if os.Getenv(LibraryFolder) != "" {
		t.Skip("needs the simulated library in this process")
	}
}

// OfModel writes an inventory of one model and gives its path.
func OfModel(t *testing.T, model, extra string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inventory.yaml")
	text := "driverVersion: \"580.159.04\"\ngpus:\n- model: " + model + "\n  count: 2\n  pci: [\"0000:1b:00.0\", \"0000:43:00.0\"]\n" + extra
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// GPUs is the inventory, which must be complete.
func (m *Machine) GPUs() []gpu.GPU {
	m.T.Helper()
	gpus, err := m.Inventory(m.T.Context())
	require.NoError(m.T, err)
	return gpus
}

// Placement finds a placement of the first GPU.
func (m *Machine) Placement(profile string, start int) gpu.Placement {
	m.T.Helper()
	for _, p := range m.GPUs()[0].Placements {
		if p.Type == gpu.TypeMIG && p.Profile == profile && p.Start == start {
			return p
		}
	}
	m.T.Fatalf("no placement %s at %d", profile, start)
	return gpu.Placement{}
}

// Whole is the whole first GPU.
func (m *Machine) Whole() gpu.Placement {
	m.T.Helper()
	placements := m.GPUs()[0].Placements
	last := placements[len(placements)-1]
	require.Equal(m.T, gpu.TypeGPU, last.Type)
	return last
}

// Made creates a partition.
func (m *Machine) Made(p gpu.Placement) gpu.Partition {
	m.T.Helper()
	partition, err := m.Create(m.T.Context(), p)
	require.NoError(m.T, err)
	return partition
}

// Partitions are those that exist.
func (m *Machine) Partitions(pciAddress string) []gpu.Partition {
	m.T.Helper()
	live, err := m.Live(m.T.Context(), pciAddress)
	require.NoError(m.T, err)
	return live
}

// SetFaults makes calls fail.
func (m *Machine) SetFaults(f nvdriver.Faults) {
	m.T.Helper()
	require.NoError(m.T, nvdriver.SetFaults(m.Root, f))
}

// Fail makes a call on all GPUs fail, as often as told (0: always).
func (m *Machine) Fail(call string, ret nvml.Return, times int) {
	m.T.Helper()
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: call, GPU: "*", Error: nvdriver.Return(ret), Times: times}}})
}

// times is how often each call of an operation is made to fail.
const times = 6

// Reported returns the calls of NVML that an operation does not succeed without: each of those that can
// fail does so in turn, with ERROR_UNKNOWN, always and once. A call that the operation makes several times
// is followed by those times at which it need not succeed. undo, which may be nil, follows each time,
// without faults.
func (m *Machine) Reported(operation func() error, undo func()) (calls []string) {
	m.T.Helper()
	fails := func(faults ...nvdriver.CallFault) (reported, fired bool) {
		m.SetFaults(nvdriver.Faults{Calls: faults})
		reported = operation() != nil
		st, err := nvstate.Store(m.Root).Read()
		require.NoError(m.T, err)
		m.NoFaults()
		if undo != nil {
			undo()
		}
		return reported, st.FiredFaults[fmt.Sprintf("calls/%d", len(faults)-1)] > 0
	}
	for _, call := range nvdriver.FaultCalls() {
		fault := nvdriver.CallFault{Call: call, GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}
		if always, _ := fails(fault); !always {
			continue
		}
		fault.Times = 1
		faults := []nvdriver.CallFault{fault}
		for n := 1; n <= times; n++ {
			reported, fired := fails(faults...)
			if !fired {
				break
			}
			if !reported {
				call += fmt.Sprintf(" %d", n)
			}
			passes := nvdriver.CallFault{Call: fault.Call, GPU: "*", Times: n, Delay: metav1.Duration{Duration: 1}}
			faults = []nvdriver.CallFault{passes, fault}
		}
		calls = append(calls, call)
	}
	return calls
}

// NoFaults ends the faults.
func (m *Machine) NoFaults() {
	m.T.Helper()
	m.SetFaults(nvdriver.Faults{})
}

// Device is a GPU's own handle, to look or meddle behind the driver's back.
func (m *Machine) Device(index int) nvml.Device {
	m.T.Helper()
	device, ret := m.NVML.DeviceGetHandleByIndex(index)
	require.Equal(m.T, nvml.SUCCESS, ret)
	return device
}

// MIGOn switches the first GPU's mode without the driver.
func (m *Machine) MIGOn() {
	m.T.Helper()
	activation, ret := m.Device(0).SetMigMode(nvml.DEVICE_MIG_ENABLE)
	require.Equal(m.T, nvml.SUCCESS, ret)
	require.Equal(m.T, nvml.SUCCESS, activation)
}

// MIGModes reads the first GPU's modes without the driver.
func (m *Machine) MIGModes() (current, pending int) {
	m.T.Helper()
	current, pending, ret := m.Device(0).GetMigMode()
	require.Equal(m.T, nvml.SUCCESS, ret)
	return current, pending
}

// BareInstance makes a GPU instance without a compute instance, as a crash
// would leave it.
func (m *Machine) BareInstance(p gpu.Placement) nvml.GpuInstance {
	m.T.Helper()
	device := m.Device(0)
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := device.GetGpuInstanceProfileInfo(enum)
		if ret != nvml.SUCCESS || int64(info.MemorySizeMB)<<20 != p.Memory || int64(info.MultiprocessorCount) != p.ComputeUnits {
			continue
		}
		gi, ret := device.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)})
		require.Equal(m.T, nvml.SUCCESS, ret)
		return gi
	}
	m.T.Fatalf("no profile for %s", p.Name())
	return nil
}

// Expiring is a context whose deadline passes when the test says so.
type Expiring struct {
	context.Context
	Passed chan struct{}
}

// Done implements context.Context.
func (e Expiring) Done() <-chan struct{} { return e.Passed }

// Err implements context.Context.
func (e Expiring) Err() error {
	select {
	case <-e.Passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// UntilFault returns a context whose deadline passes once the first fault of calls, which has a
// number of times, has come true.
func (m *Machine) UntilFault() context.Context {
	m.T.Helper()
	e := Expiring{Context: m.T.Context(), Passed: make(chan struct{})}
	go func() {
		defer close(e.Passed)
		for e.Context.Err() == nil {
			if st, err := nvstate.Store(m.Root).Read(); err == nil && st.FiredFaults["calls/0"] > 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return e
}

// SettleFaults ends what hangs and waits until no GPU is held by it, so that
// nothing writes to the test's folder any more.
func (m *Machine) SettleFaults() {
	m.T.Helper()
	m.NoFaults()
	require.Eventually(m.T, func() bool {
		_, err := m.Inventory(context.WithoutCancel(m.T.Context()))
		return err == nil
	}, time.Minute, time.Millisecond, "it passes every gate")
}

// RequireMIG checks the mode of the first GPU.
func (m *Machine) RequireMIG(on, pending gpu.MIGMode) {
	m.T.Helper()
	m.RequireMIGOf(m.GPUs()[0].PCIAddress, on, pending)
}

// RequireMIGOf checks the mode of a GPU.
func (m *Machine) RequireMIGOf(address string, on, pending gpu.MIGMode) {
	m.T.Helper()
	modes, err := m.Modes(m.T.Context(), address)
	require.NoError(m.T, err)
	assert.Equal(m.T, [2]gpu.MIGMode{on, pending}, [2]gpu.MIGMode{modes.MIG, modes.PendingMIG})
}

// RefuseResets makes resets fail.
func (m *Machine) RefuseResets(faults ...nvstate.ResetFault) {
	m.T.Helper()
	m.SetFaults(nvdriver.Faults{Resets: faults})
}

// Trap is a library whose devices are wrapped, for what the simulator cannot
// be told to do.
type Trap struct {
	nvml.Interface
	Wrap func(nvml.Device) nvml.Device
}

// DeviceGetHandleByIndex implements nvml.Interface.
func (l *Trap) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	device, ret := l.Interface.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return l.Wrap(device), ret
}

// DeviceGetHandleByPciBusId implements nvml.Interface.
func (l *Trap) DeviceGetHandleByPciBusId(id string) (nvml.Device, nvml.Return) { //nolint:revive // NVML's name
	device, ret := l.Interface.DeviceGetHandleByPciBusId(id)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return l.Wrap(device), ret
}

// Tool is nvidia-smi of a simulated machine.
type Tool struct {
	mu      sync.Mutex
	Ran     []string
	Running sync.WaitGroup
	// First, if it is set, is called before it runs.
	First func()
}

// On returns what runs it on the machine in a folder.
func (n *Tool) On(root string) func(ctx context.Context, program string, args ...string) ([]byte, error) {
	return func(ctx context.Context, program string, args ...string) ([]byte, error) {
		n.mu.Lock()
		n.Ran = append(n.Ran, program+" "+strings.Join(args, " "))
		n.mu.Unlock()
		if n.First != nil {
			n.First()
		}
		type end struct {
			said []byte
			code int
		}
		done := make(chan end, 1)
		n.Running.Go(func() {
			said, code := nvtools.RunSMI(root, args...)
			done <- end{said, code}
		})
		select {
		case e := <-done:
			if e.code != 0 {
				return e.said, fmt.Errorf("exit status %d", e.code)
			}
			return e.said, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Inventories are the inventories with GPUs of NVIDIA's, others among them
// or not.
func Inventories(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(models.InventoryNames(), func(name string) bool {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		return len(inv.GPUs) == 0
	})
}
