package amd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

// ModuleName is the kernel module of the driver.
const ModuleName = "amdgpu"

// Vendor is AMD on this machine.
type Vendor struct {
	// HostRoot is where the host's root folder is mounted.
	HostRoot string
	// MachineRoot is the root folder of a simulated machine, by the same path here and on the
	// host. Empty: the host is the machine.
	MachineRoot string
	// MemoryModes allows reloading the driver, which a change of the memory partition
	// mode takes.
	MemoryModes bool
	// Marker is the file that exists while Tranche has unloaded the driver.
	Marker string
	// Manager loads the driver on machines where modprobe does not. Nil: there is none.
	Manager kmod.Manager
	// BusyPatience is that of Config.
	BusyPatience time.Duration
}

var _ hardware.Vendor = Vendor{}

// Name implements hardware.Vendor.
func (v Vendor) Name() gpu.Vendor { return gpu.AMD }

// Open implements hardware.Vendor. The driver's files are the host's: /proc of a
// container lists the processes of the container only.
func (v Vendor) Open(ctx context.Context) (*hardware.Opened, error) {
	root, devRoot, manager := v.HostRoot, "/", v.Manager
	if v.MachineRoot != "" {
		root, devRoot, manager = v.MachineRoot, v.MachineRoot, nil // nobody else loads a simulated driver
	}
	return v.Use(ctx, Config{Files: sysfs.Host(root), HostDevRoot: devRoot}, kmod.Module{
		// modprobe, which is the machine's.
		Run:      mps.New(mps.Config{HostRoot: v.HostRoot, DriverRoot: hardware.DriverRoot(v.MachineRoot)}).Run,
		ReadFile: func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, name)) },
		Manager:  manager,
	})
}

// Use opens a driver, real or simulated. module is how its kernel module is
// loaded. The fields of config and module that follow from the Vendor need not be set.
// A machine whose only AMD GPU drives a screen has none for us.
func (v Vendor) Use(ctx context.Context, config Config, module kmod.Module) (*hardware.Opened, error) {
	config.Logger, config.BusyPatience = klog.FromContext(ctx), v.BusyPatience
	module.Name, module.Marker, module.Logger = ModuleName, v.Marker, klog.FromContext(ctx)
	if v.MemoryModes {
		config.Reload = module.Reload
		if err := module.Resume(ctx); err != nil {
			return nil, hardware.NoDriver(gpu.AMD, err)
		}
	}
	driver, err := New(config)
	if err != nil {
		return nil, err
	}
	if err := driver.Open(ctx); err != nil {
		return nil, hardware.NoDriver(gpu.AMD, err)
	}
	loadID, err := driver.LoadID() //nolint:contextcheck // it has a deadline of its own
	if err != nil {
		return nil, hardware.NoDriver(gpu.AMD, err)
	}
	if gpus, err := driver.Inventory(ctx); err == nil && len(gpus) == 0 {
		return nil, hardware.NoDriver(gpu.AMD, errors.New("amdgpu drives no GPU that is made for computing"))
	}
	o := &hardware.Opened{Driver: driver, LoadID: loadID}
	if v.MemoryModes {
		o.Resume = module.Resume
	}
	return o, nil
}
