package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
)

// Vendor is NVIDIA on this machine.
type Vendor struct {
	// HostRoot is where the host's root file system is mounted.
	HostRoot string
	// DriverRoot is the folder of the driver on the host. Empty: FindDriverRoot looks for it.
	DriverRoot string
	// MachineRoot is the root folder of a simulated machine, by the same path here and on the
	// host. Empty: the host is the machine.
	MachineRoot string
	// CDIHook is the program that CDI hooks run, CDIHookPath where it is installed on the
	// host.
	CDIHook, CDIHookPath string
}

var _ hardware.Vendor = Vendor{}

// Name implements hardware.Vendor.
func (v Vendor) Name() gpu.Vendor { return gpu.NVIDIA }

// Open implements hardware.Vendor.
func (v Vendor) Open(ctx context.Context) (*hardware.Opened, error) {
	hostRoot, driverRoot, procRoot, sysRoot := v.HostRoot, v.DriverRoot, "/", "/sys"
	if v.MachineRoot != "" {
		hostRoot, driverRoot = "/", hardware.DriverRoot(v.MachineRoot)
		procRoot, sysRoot = v.MachineRoot, filepath.Join(v.MachineRoot, "sys")
	}
	root, library, err := FindDriverRoot(hostRoot, driverRoot)
	if err != nil {
		return WithoutLibrary(procRoot, sysRoot, err)
	}
	if err := bound.bind(library); err != nil {
		return nil, err
	}
	devRoot := FindDevRoot(hostRoot, root)
	return v.Use(ctx, Config{
		NVML:           nvml.New(nvml.WithLibraryPath(library)),
		DriverRoot:     filepath.Join(hostRoot, root),
		HostDriverRoot: root,
		DevRoot:        filepath.Join(hostRoot, devRoot),
		HostDevRoot:    devRoot,
		ProcRoot:       procRoot,
		SysRoot:        sysRoot,
	})
}

// WithoutLibrary is what Open returns if the driver's library is missing, with the reason.
// The kernel module may be loaded: during an upgrade of the driver, or after one that failed.
func WithoutLibrary(procRoot, sysRoot string, err error) (*hardware.Opened, error) {
	read := func() (string, error) { return LoadID(procRoot, sysRoot) }
	if id, notLoaded := read(); notLoaded == nil {
		return &hardware.Opened{LoadID: id, ReadLoadID: read}, fmt.Errorf("its kernel module is loaded, but there is %w", err)
	}
	return nil, hardware.NoDriver(gpu.NVIDIA, err)
}

// Use opens a driver, real or simulated. It sets the fields of config that follow from the
// Vendor.
func (v Vendor) Use(ctx context.Context, config Config) (*hardware.Opened, error) {
	config.Logger = klog.FromContext(ctx)
	config.CDIHookPath = v.CDIHookPath
	programs := cmp.Or(config.HostDriverRoot, config.DriverRoot)
	config.Run = mps.New(mps.Config{HostRoot: v.HostRoot, DriverRoot: programs}).Run
	driver, err := New(config)
	if err != nil {
		return nil, err
	}
	loadID, err := driver.LoadID()
	if err != nil {
		return nil, hardware.NoDriver(gpu.NVIDIA, err)
	}
	if err := driver.Open(ctx); err != nil {
		return &hardware.Opened{LoadID: loadID, ReadLoadID: driver.LoadID}, err
	}
	if err := v.installHook(); err != nil {
		return &hardware.Opened{LoadID: loadID, ReadLoadID: driver.LoadID}, errors.Join(err, driver.Close(ctx))
	}
	return &hardware.Opened{Driver: driver, LoadID: loadID, ProgramRoot: programs}, nil
}
