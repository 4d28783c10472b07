package nvdriver

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/gofrs/flock"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/description"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// Options say where a simulated machine lives.
type Options struct {
	// Root is the folder for state and files; it must be on a file system
	// that has device nodes. Processes with the same root share the machine.
	Root string
	// Seed goes into the UUIDs: give the node's name, and no two nodes of a
	// cluster have a GPU in common.
	Seed string
	// Tools is the program test/simulator/cmd/simulated-nvidia-tools, which becomes those of NVIDIA's
	// driver. Empty: nothing of the driver's runs, and there is no MPS.
	Tools string
	// Library is the version or branch of the driver whose library answers. Empty: that of
	// the inventory's driver.
	Library string
	// Libraries are the files of libraries to install, by their names ("libnvidia-ml.so"). The
	// others are files without functions.
	Libraries map[string]string
	// Sleep waits for the hardware; nil is time.Sleep.
	Sleep func(time.Duration)
	// Logf reports what no NVML answer can say, like a broken faults.yaml;
	// nil is log.Printf.
	Logf func(format string, args ...any)
}

// NVML is the simulated library. It is safe for concurrent use.
type NVML struct {
	// Interface panics with the method's name on calls not simulated.
	nvml.Interface

	inventory *models.Inventory
	// library is the version that the inventory's driver has.
	library  library
	root     string
	seed     string
	store    *disk.Store[nvstate.State]
	faults   *disk.Faults[Faults]
	sleepFor func(time.Duration)
	logf     func(format string, args ...any)
	devices  []*device
	loads    atomic.Int64
	observed atomic.Bool
	// sessions protects changes of loads, and session.
	sessions sync.Mutex
	// session is locked while loads is above zero.
	session *flock.Flock
	files   *nvfiles.Layout
}

var _ nvml.Interface = (*NVML)(nil)

// Shared by all values: a moq type without functions panics with the name of
// the method called, which is what we want of methods not simulated.
var (
	missingLibrary  = &mock.Interface{}
	missingDevice   = &mock.Device{}
	missingInstance = &mock.GpuInstance{}
	missingCompute  = &mock.ComputeInstance{}
	missingEvents   = &mock.EventSet{}
)

// New opens the machine at the root, starting it if it is not running there,
// and lays out its files. A machine whose GPUs are other than the
// inventory's is taken for one that was switched off to change them.
func New(inv *models.Inventory, o Options) (*NVML, error) {
	if o.Root == "" {
		return nil, errors.New("simulated NVIDIA driver: Options.Root is empty: name a folder for the simulated machine")
	}
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	if root == "/" {
		return nil, errors.New("simulated NVIDIA driver: Options.Root is /: name a folder of its own, the host's files are never touched")
	}
	o.Root = root
	n := opened(inv, o)
	if err := n.start(); err != nil {
		return nil, fmt.Errorf("simulated machine in %s: %w", root, err)
	}
	m := description.Machine{Inventory: inv.Text, Seed: o.Seed, Library: o.Library, Instant: o.Sleep != nil}
	if err := m.Write(root); err != nil {
		return nil, fmt.Errorf("simulated machine in %s: %w", root, err)
	}
	return n, nil
}

// opened is the machine at an absolute path.
func opened(inv *models.Inventory, o Options) *NVML {
	root := o.Root
	n := &NVML{
		Interface: missingLibrary,
		inventory: inv, library: libraryOf(cmp.Or(o.Library, inv.DriverVersion), inv.GPUs), root: root, seed: o.Seed,
		store:    nvstate.Store(root),
		sleepFor: o.Sleep, logf: o.Logf,
	}
	if n.sleepFor == nil {
		n.sleepFor = time.Sleep
	}
	if n.logf == nil {
		n.logf = log.Printf
	}
	n.faults = &disk.Faults[Faults]{Path: faultsPath(root), Parse: ParseFaults, Report: func(err error) {
		n.logf("simulated NVIDIA driver: %s: %v; the faults before it stay", faultsPath(root), err)
	}}
	n.files = &nvfiles.Layout{Root: root, DriverVersion: inv.DriverVersion, GPUs: inv.GPUs, Tools: o.Tools, Libraries: o.Libraries, NoMPS: inv.NoMPS}
	for i := range inv.GPUs {
		d := newDevice(n, i)
		n.devices = append(n.devices, d)
		n.files.UUIDs = append(n.files.UUIDs, d.uuid)
	}
	return n
}

// DriverRoot is the folder to give to nvcdi as driver root and device root.
func (n *NVML) DriverRoot() string { return nvfiles.DriverRoot(n.root) }

// HasDeviceNodes says whether the nodes below dev are character devices. Only
// root can make those; without it they are empty files.
func (n *NVML) HasDeviceNodes() bool { return n.files.HasDeviceNodes() }

func (n *NVML) sleep(d time.Duration) {
	if d > 0 {
		n.sleepFor(d)
	}
}

// unexpected turns a failure of the simulation itself into NVML's answer for
// what should not happen, and says why where it can be read.
func (n *NVML) unexpected(call string, err error) nvml.Return {
	n.logf("simulated NVIDIA driver: %s: %v", call, err)
	return nvml.ERROR_UNKNOWN
}

// Init loads the library; each Init wants its Shutdown.
func (n *NVML) Init() nvml.Return {
	if ret := n.inject("Init", "*"); ret != nvml.SUCCESS {
		return ret
	}
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if n.loads.Load() == 0 {
		switch err := n.openSession(); {
		case errors.Is(err, errUnloaded):
			return nvml.ERROR_DRIVER_NOT_LOADED
		case err != nil:
			return n.unexpected("Init", err)
		}
	}
	n.loads.Add(1)
	return nvml.SUCCESS
}

// openSession waits until no GPU is being reset, and makes the files follow what a
// reset did: nvidia-smi leaves that to us.
func (n *NVML) openSession() error {
	session := flock.New(nvstate.SessionLock(n.root))
	if err := session.RLock(); err != nil {
		return err
	}
	err := n.store.Update(func(st *nvstate.State) (*nvstate.State, error) {
		switch {
		case st == nil || !n.sameGPUs(st):
			return nil, nil
		case st.Unloaded:
			return nil, errUnloaded
		}
		return nil, n.files.SyncCapabilities(st)
	})
	if err != nil {
		session.Close()
		return err
	}
	n.session = session
	return nil
}

// InitWithFlags is Init: no flag changes anything here.
func (n *NVML) InitWithFlags(uint32) nvml.Return { return n.Init() }

// Shutdown undoes one Init. Without one, the libraries of 535, 550 and 555 answer SUCCESS, that of
// 580 what nvml.h says.
func (n *NVML) Shutdown() nvml.Return {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	switch n.loads.Load() {
	case 0:
		return nvml.ERROR_UNINITIALIZED
	case 1:
		n.session.Close()
	}
	n.loads.Add(-1)
	return nvml.SUCCESS
}

func (n *NVML) initialized() nvml.Return {
	if n.loads.Load() == 0 && !n.observed.Load() {
		return nvml.ERROR_UNINITIALIZED
	}
	return nvml.SUCCESS
}

// ErrorString names an answer.
func (n *NVML) ErrorString(r nvml.Return) string { return r.Error() }

// SystemGetDriverVersion returns the inventory's.
func (n *NVML) SystemGetDriverVersion() (string, nvml.Return) {
	return n.inventory.DriverVersion, n.initialized()
}

// SystemGetNVMLVersion is the driver's version behind its CUDA major version,
// as the real library has it. It needs no Init.
func (n *NVML) SystemGetNVMLVersion() (string, nvml.Return) {
	return fmt.Sprintf("%d.%s", n.inventory.CUDADriverVersion/1000, n.inventory.DriverVersion), nvml.SUCCESS
}

// SystemGetCudaDriverVersion is major × 1000 + minor × 10. It needs an Init, which nvml.h does not
// say.
func (n *NVML) SystemGetCudaDriverVersion() (int, nvml.Return) {
	return n.inventory.CUDADriverVersion, n.initialized()
}

// SystemGetCudaDriverVersion_v2 is the same number.
func (n *NVML) SystemGetCudaDriverVersion_v2() (int, nvml.Return) {
	return n.SystemGetCudaDriverVersion()
}

// DeviceGetCount counts the GPUs, lost ones included.
func (n *NVML) DeviceGetCount() (int, nvml.Return) {
	if ret := n.initialized(); ret != nvml.SUCCESS {
		return 0, ret
	}
	return len(n.devices), n.inject("GetCount", "*")
}

// DeviceGetHandleByIndex finds a GPU by its place in PCI order.
func (n *NVML) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	if index < 0 || index >= len(n.devices) {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return n.handle(n.devices[index])
}

// DeviceGetHandleByUUID finds a GPU or a MIG device.
func (n *NVML) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	for _, d := range n.devices {
		if d.uuid == uuid {
			return n.handle(d)
		}
	}
	if !strings.HasPrefix(uuid, "MIG-") {
		return nil, nvml.ERROR_NOT_FOUND
	}
	if ret := n.initialized(); ret != nvml.SUCCESS {
		return nil, ret
	}
	for _, d := range n.devices {
		if g, ret := d.view("GetHandle"); ret == nvml.SUCCESS {
			for _, m := range d.migDevices(g) {
				if m.uuid() == uuid {
					return m, nvml.SUCCESS
				}
			}
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// DeviceGetHandleByPciBusId takes four or eight digits of domain in either case.
func (n *NVML) DeviceGetHandleByPciBusId(id string) (nvml.Device, nvml.Return) {
	addr := sysfsBusID(id)
	for _, d := range n.devices {
		if d.gpu().PCI == addr {
			return n.handle(d)
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func (n *NVML) handle(d *device) (nvml.Device, nvml.Return) {
	if _, ret := d.view("GetHandle"); ret != nvml.SUCCESS {
		return nil, ret
	}
	return d, nvml.SUCCESS
}

// Extensions says which symbols the library has: libraries above NVML ask
// before they call.
func (n *NVML) Extensions() nvml.ExtendedInterface { return symbols{n.library} }

type symbols struct{ library }

// LookupSymbol knows the optional calls that are simulated.
func (s symbols) LookupSymbol(name string) error {
	switch name {
	case "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons":
		if s.clocksEvents {
			return nil
		}
	case "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1":
		if s.memoryLimits {
			return nil
		}
	case "nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetAttributes_v2", "nvmlInit_v2", "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetGpuFabricInfo":
		return nil
	}
	return fmt.Errorf("simulated libnvidia-ml.so.1: undefined symbol: %s", name)
}
