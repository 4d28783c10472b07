package nvidia

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/container"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

var _ hardware.Driver = (*Driver)(nil)

// Config says where the driver is. Paths come in pairs: this process, in its container, may
// see a folder under another name than the host does.
type Config struct {
	// NVML is the library, real or simulated.
	NVML nvml.Interface

	// DriverRoot is the folder of the driver's libraries and programs, as this process
	// sees it ("/host/run/nvidia/driver").
	DriverRoot string
	// HostDriverRoot is the host's path of it ("/run/nvidia/driver"). Empty: the same.
	HostDriverRoot string
	// DevRoot is the folder that contains dev/nvidia0, as this process sees it. Empty:
	// DriverRoot.
	DevRoot string
	// HostDevRoot is the host's path of it. Empty: the same.
	HostDevRoot string

	// ProcRoot is the folder that contains proc. Empty: "/".
	ProcRoot string
	// SysRoot is sysfs. Empty: "/sys".
	SysRoot string

	// CDIHookPath is the host's path of nvidia-cdi-hook.
	CDIHookPath string

	// Run runs a program of the driver to its end, and returns its output. Nil: run it
	// from here, which works unless the driver has a root file system of its own.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)

	// Logger logs what is unusual but no failure. The zero value is silent.
	Logger logr.Logger
}

// Driver is the machine's NVIDIA GPUs. It implements hardware.Driver.
type Driver struct {
	hardware.Basic
	cfg     Config
	session *session.Session
	files   *container.Files
	usage   usageReader

	// mu protects memory and links.
	mu sync.Mutex
	// memory is the memory of whole GPUs, by UUID and driver version. See wholeMemory.
	memory map[string]int64
	// links are those that were read last, by PCI address.
	links map[string]gpu.Links
}

// New makes a driver, which Open opens.
func New(cfg Config) (*Driver, error) {
	if cfg.NVML == nil {
		return nil, errors.New("nvidia: Config.NVML is not set")
	}
	cfg.DriverRoot = cmp.Or(cfg.DriverRoot, "/")
	cfg.HostDriverRoot = cmp.Or(cfg.HostDriverRoot, cfg.DriverRoot)
	cfg.DevRoot = cmp.Or(cfg.DevRoot, cfg.DriverRoot)
	if cfg.HostDevRoot == "" {
		cfg.HostDevRoot = cfg.DevRoot
		if cfg.DevRoot == cfg.DriverRoot {
			cfg.HostDevRoot = cfg.HostDriverRoot
		}
	}
	cfg.ProcRoot, cfg.SysRoot = cmp.Or(cfg.ProcRoot, "/"), cmp.Or(cfg.SysRoot, "/sys")
	cfg.CDIHookPath = cmp.Or(cfg.CDIHookPath, "/usr/bin/nvidia-cdi-hook")
	if cfg.Run == nil {
		cfg.Run = runBelow(cfg.DriverRoot)
	}
	opened := session.New(cfg.NVML, cfg.Logger)
	return &Driver{
		cfg:     cfg,
		session: opened,
		usage:   usageReader{session: opened},
		files: container.New(container.Config{
			DriverRoot: cfg.DriverRoot, HostDriverRoot: cfg.HostDriverRoot,
			DevRoot: cfg.DevRoot, HostDevRoot: cfg.HostDevRoot,
			ProcRoot: cfg.ProcRoot, CDIHookPath: cfg.CDIHookPath, Logger: cfg.Logger,
		}),
		memory: map[string]int64{}, links: map[string]gpu.Links{},
	}, nil
}

// Open opens NVML.
func (d *Driver) Open(ctx context.Context) error { return d.session.Open(ctx) }

// Close closes NVML. It does not wait for calls that hang.
func (d *Driver) Close(ctx context.Context) error { return d.session.Close(ctx) }

// Release implements hardware.Driver. See session.Session.
func (d *Driver) Release(ctx context.Context) error { return d.session.Release(ctx) }

// Usage implements hardware.Driver.
func (d *Driver) Usage(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	return d.usage.Read(ctx, pciAddress)
}

// handle is one GPU during one task.
type handle struct {
	*session.GPU
	driver *Driver
}

// onGPU runs f for one GPU, alone.
func onGPU[T any](ctx context.Context, d *Driver, pciAddress string, f func(*handle) (T, error)) (T, error) {
	return session.OnGPU(ctx, d.session, pciAddress, func(g *session.GPU) (T, error) {
		return f(&handle{GPU: g, driver: d})
	})
}
