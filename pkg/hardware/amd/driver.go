package amd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

var _ hardware.Driver = (*Driver)(nil)

// busyPatience is how long a switch waits for processes that hold the GPU, when
// Config does not say.
const busyPatience = 10 * time.Second

// Config says where the driver is.
type Config struct {
	// Files is the host's, or a simulated kernel.
	Files sysfs.Files
	// HostDevRoot is the folder that has dev/kfd in it, by the name that the
	// container runtime sees: "/", which is also the default, or the folder of a
	// simulated kernel.
	HostDevRoot string
	// Groups has the control groups, by the paths that SetMemoryLimit gets. Nil: the files that this
	// process sees.
	Groups sysfs.Files
	// BusyPatience is how long a switch waits for processes that hold the GPU.
	// Zero: 10 s.
	BusyPatience time.Duration
	// Reload unloads and loads amdgpu, for SetMemoryPartition; pkg/hardware/kmod
	// implements it. When it returns the driver is loaded, even if ctx has ended, or the
	// error says that it is not. A driver in use is left loaded: gpu.ErrInUse. Nil: memory
	// modes cannot be changed.
	Reload func(ctx context.Context) error
	// ReloadPatience is how long to wait for the GPUs after a load of the driver, which
	// resets them. Zero: 3 min.
	ReloadPatience time.Duration
	// Logger hears of what is odd but no failure. The zero value is silent.
	Logger klog.Logger
}

// Driver is the machine's AMD Instinct GPUs. It implements hardware.Driver.
//
// It can be used across reloads of amdgpu, by SetMemoryPartition or by others: what it knows
// belongs to one load and is read again under the next. While amdgpu is not loaded, calls
// fail with fs.ErrNotExist, and known GPUs are reported as gone.
type Driver struct {
	hardware.Basic
	*sysfs.Machine // LoadID, Inventory, Live
	cfg            Config

	// mu protects hostBusy: the load of the driver that was seen to refuse switches while
	// any process of the host uses KFD; empty if there is none.
	mu       sync.Mutex
	hostBusy string
}

// New makes a driver. It touches nothing.
func New(cfg Config) (*Driver, error) {
	if cfg.Files == nil {
		return nil, errors.New("amd: Config.Files is not set")
	}
	cfg.HostDevRoot = cmp.Or(cfg.HostDevRoot, "/")
	if cfg.Groups == nil {
		cfg.Groups = sysfs.Host("/")
	}
	if cfg.BusyPatience <= 0 {
		cfg.BusyPatience = busyPatience
	}
	if cfg.ReloadPatience <= 0 {
		cfg.ReloadPatience = reloadPatience
	}
	return &Driver{cfg: cfg, Machine: sysfs.New(cfg.Files, cfg.Logger)}, nil
}

// Open checks that amdgpu is loaded; otherwise it fails with fs.ErrNotExist. It holds nothing
// open.
func (d *Driver) Open(ctx context.Context) error {
	if _, err := d.Addresses(ctx); err != nil {
		return fmt.Errorf("look for AMD GPUs: %w", err)
	}
	return nil
}

// Close does nothing, since nothing is held open.
func (d *Driver) Close(context.Context) error { return nil }

// Modes implements hardware.Driver.
func (d *Driver) Modes(ctx context.Context, pciAddress string) (gpu.Modes, error) {
	return d.Machine.Modes(ctx, pciAddress)
}

// HealthError is a GPU that is not healthy.
type HealthError = sysfs.HealthError

// gpuHandle is one GPU during one task.
type gpuHandle struct {
	*sysfs.GPU
	driver *Driver
}

// forGPU runs f for one GPU, alone, if the GPU is there.
func forGPU[T any](ctx context.Context, d *Driver, pciAddress string, f func(*gpuHandle) (T, error)) (T, error) {
	return sysfs.OnGPU(ctx, d.Machine, pciAddress, func(g *sysfs.GPU) (T, error) { return f(&gpuHandle{GPU: g, driver: d}) })
}
