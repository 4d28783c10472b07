package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/gate"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

var _ interface {
	hardware.Driver
	hardware.MIGSwitcher
	hardware.TimeSlicer
	hardware.Obstructed
	hardware.ForeignRemover
	hardware.Releaser
} = (*Driver)(nil)

// Config says where the driver is. Paths come in pairs where this process, in
// its container, sees a folder under another name than the host does.
type Config struct {
	// NVML is the library, real or simulated.
	NVML nvml.Interface

	// DriverRoot is the folder that holds the driver's libraries and programs,
	// as this process sees it ("/host/run/nvidia/driver").
	DriverRoot string
	// HostDriverRoot is the same folder by the host's name
	// ("/run/nvidia/driver"). Empty: the same name.
	HostDriverRoot string
	// DevRoot is the folder that has dev/nvidia0 in it, as this process sees
	// it. Empty: DriverRoot.
	DevRoot string
	// HostDevRoot is the same folder by the host's name. Empty: the same name.
	HostDevRoot string

	// ProcRoot is the folder that has proc in it. Empty: "/".
	ProcRoot string
	// SysRoot is sysfs. Empty: "/sys".
	SysRoot string

	// CDIHookPath is where the host has nvidia-cdi-hook.
	CDIHookPath string

	// Run runs a program of the driver to its end, and gives back what it says. Nil:
	// it is run from here, which does where nothing of the driver's is in a root of
	// its own.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)

	// Logger hears of what is odd but no failure. The zero value is silent.
	Logger logr.Logger
}

// Driver is the machine's NVIDIA GPUs. It implements hardware.Driver.
type Driver struct {
	cfg     Config
	library *gate.Gate
	session *session
	common  commonCache

	// mu protects what follows.
	mu    sync.Mutex
	gates map[string]*gate.Gate
	// memory is the memory of whole GPUs, by UUID and driver version: wholeMemory.
	memory map[string]int64
	// seen remembers the PCI addresses by index, to name a GPU that is lost.
	seen map[int]string
}

// New makes a driver. It touches nothing; Open starts it.
func New(cfg Config) (*Driver, error) {
	if cfg.NVML == nil {
		return nil, errors.New("nvidia: Config.NVML is not set")
	}
	if cfg.DriverRoot == "" {
		cfg.DriverRoot = "/"
	}
	setDefault(&cfg.HostDriverRoot, cfg.DriverRoot)
	setDefault(&cfg.DevRoot, cfg.DriverRoot)
	if cfg.HostDevRoot == "" {
		cfg.HostDevRoot = cfg.DevRoot
		if cfg.DevRoot == cfg.DriverRoot {
			cfg.HostDevRoot = cfg.HostDriverRoot
		}
	}
	setDefault(&cfg.ProcRoot, "/")
	setDefault(&cfg.SysRoot, "/sys")
	setDefault(&cfg.CDIHookPath, "/usr/bin/nvidia-cdi-hook")
	if cfg.Run == nil {
		cfg.Run = runBelow(cfg.DriverRoot)
	}
	return &Driver{
		cfg:     cfg,
		library: newGate("NVML"),
		session: newSession(),
		gates:   map[string]*gate.Gate{},
		memory:  map[string]int64{},
		seen:    map[int]string{},
	}, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// Open starts the NVML session.
func (d *Driver) Open(ctx context.Context) error {
	_, err := through(ctx, d, d.library, func(t *task) (struct{}, error) {
		return struct{}{}, t.session.begin(t)
	})
	if err != nil {
		return fmt.Errorf("open NVML: %w", err)
	}
	return nil
}

// Close ends the NVML session. It does not wait for calls that hang.
func (d *Driver) Close(ctx context.Context) error {
	_, err := through(ctx, d, d.library, func(t *task) (struct{}, error) { return struct{}{}, t.session.end(t) })
	if err != nil && !errors.Is(err, nvml.ERROR_UNINITIALIZED) && !errors.Is(err, errReleased) {
		return fmt.Errorf("close NVML: %w", err)
	}
	return nil
}

// gateOf is the gate of one GPU.
func (d *Driver) gateOf(pciAddress string) *gate.Gate {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, ok := d.gates[pciAddress]
	if !ok {
		g = newGate("GPU " + pciAddress)
		d.gates[pciAddress] = g
	}
	return g
}

// gpuHandle is one GPU during one task.
type gpuHandle struct {
	*task
	driver     *Driver
	pciAddress string
	device     nvml.Device
	// known are the GPU's profiles, once read.
	known []mig.Profile
}

// undoing is the GPU for taking things back after the caller has given up.
func (c *gpuHandle) undoing() *gpuHandle {
	u := *c
	u.task = c.task.undoing()
	return &u
}

// onGPU runs f for one GPU, alone. The handle is looked up each time: that
// costs little, and no handle goes stale when the driver is loaded again.
func onGPU[T any](ctx context.Context, d *Driver, pciAddress string, f func(*gpuHandle) (T, error)) (T, error) {
	return through(ctx, d, d.gateOf(pciAddress), func(t *task) (T, error) {
		device, err := d.lookup(t, pciAddress)
		if err != nil {
			var none T
			return none, err
		}
		c := &gpuHandle{task: t, driver: d, pciAddress: pciAddress, device: device}
		value, err := f(c)
		return value, c.confirmLoss(err)
	})
}

// confirmLoss adds gpu.ErrLost to an unknown error of a GPU that is lost. Several
// calls, those for GPU instances among them, document ERROR_UNKNOWN but not
// ERROR_GPU_IS_LOST (nvml.h); DeviceGetMemoryInfo documents both and asks the GPU.
func (c *gpuHandle) confirmLoss(err error) error {
	if !errors.Is(err, nvml.ERROR_UNKNOWN) {
		return err
	}
	if _, asked := c.totalMemory(); lost(asked) {
		return fmt.Errorf("%w: %w", err, asked)
	}
	return err
}

// lookup finds a GPU's handle. It reopens an NVML session that was lost. A GPU that
// the driver no longer lists was removed from the bus, and counts as lost.
func (d *Driver) lookup(t *task, pciAddress string) (nvml.Device, error) {
	find := func() (nvml.Device, nvml.Return) { return t.nvml.DeviceGetHandleByPciBusId(pciAddress) }
	device, err := ask(t, "DeviceGetHandleByPciBusId", find)
	if errors.Is(err, nvml.ERROR_UNINITIALIZED) {
		if err := t.session.begin(t); err != nil {
			return nil, err
		}
		device, err = ask(t, "DeviceGetHandleByPciBusId", find)
	}
	if errors.Is(err, nvml.ERROR_NOT_FOUND) {
		return nil, fmt.Errorf("%w: %w: the driver does not list it", err, gpu.ErrLost)
	}
	return device, err
}
