package nvidia

import (
	"context"
	"errors"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/container"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/instance"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
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
	session *session.Session
	files   *container.Files

	// mu protects memory, the memory of whole GPUs, by UUID and driver version:
	// wholeMemory.
	mu     sync.Mutex
	memory map[string]int64
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
		session: session.New(cfg.NVML, cfg.Logger),
		files: container.New(container.Config{
			DriverRoot: cfg.DriverRoot, HostDriverRoot: cfg.HostDriverRoot,
			DevRoot: cfg.DevRoot, HostDevRoot: cfg.HostDevRoot,
			ProcRoot: cfg.ProcRoot, CDIHookPath: cfg.CDIHookPath, Logger: cfg.Logger,
		}),
		memory: map[string]int64{},
	}, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// Open opens NVML.
func (d *Driver) Open(ctx context.Context) error { return d.session.Open(ctx) }

// Close closes NVML. It does not wait for calls that hang.
func (d *Driver) Close(ctx context.Context) error { return d.session.Close(ctx) }

// Release implements hardware.Releaser. See session.Session.
func (d *Driver) Release(ctx context.Context) error { return d.session.Release(ctx) }

// gpuHandle is one GPU during one task.
type gpuHandle struct {
	*instance.GPU
	driver *Driver
}

// onGPU runs f for one GPU, alone.
func onGPU[T any](ctx context.Context, d *Driver, pciAddress string, f func(*gpuHandle) (T, error)) (T, error) {
	return session.OnGPU(ctx, d.session, pciAddress, func(g *session.GPU) (T, error) {
		return f(&gpuHandle{GPU: instance.On(g), driver: d})
	})
}
