package plugin

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node"
)

// Options is what the flags say.
type Options struct {
	node.Config
	// NVIDIADriverRoot is the driver's folder on the host. Empty: it is searched for.
	NVIDIADriverRoot string
	// MachineRoot is the root folder of a simulated machine, by the same path here and on the
	// host. Empty, or no such folder: the host is the machine.
	MachineRoot string
	// CDIHook is the program that CDI hooks run.
	CDIHook string
	// Dynamic reads and deletes what tells the Kernel Module Management operator to
	// load AMD's driver. Nil: it does not.
	Dynamic dynamic.Interface
}

// machineRoot is MachineRoot if the node has a simulated machine, otherwise empty.
func (o *Options) machineRoot() string {
	if info, err := os.Stat(o.MachineRoot); err != nil || !info.IsDir() {
		return ""
	}
	return o.MachineRoot
}

// NVIDIA is how NVIDIA's driver is used.
func (o *Options) NVIDIA() nvidia.Vendor {
	return nvidia.Vendor{
		HostRoot: o.HostRoot, DriverRoot: o.NVIDIADriverRoot, MachineRoot: o.machineRoot(),
		CDIHook: o.CDIHook, CDIHookPath: filepath.Join(o.DataDir(), "nvidia-cdi-hook"),
	}
}

// AMD is how AMD's driver is used.
func (o *Options) AMD() amd.Vendor {
	v := amd.Vendor{HostRoot: o.HostRoot, MachineRoot: o.machineRoot(), MemoryModes: o.MemoryModes, Marker: filepath.Join(o.DataDir(), "amdgpu-is-out")}
	if o.Dynamic != nil {
		v.Manager = &kmod.KMM{Client: o.Dynamic, Node: o.NodeName, Module: amd.ModuleName}
	}
	return v
}

// Host is the machine that this process runs on.
func Host(o *Options) hardware.Machine {
	return hardware.Machine{
		Vendors: func() ([]hardware.Vendor, error) { return []hardware.Vendor{o.NVIDIA(), o.AMD()}, nil },
		BootID:  func() string { return hardware.BootID(cmp.Or(o.machineRoot(), "/")) },
		Reboot:  func(ctx context.Context) error { return reboot(ctx, o) },
		Now:     time.Now,
	}
}

// rebootAnswer is how long the machine may take to accept a reboot.
const rebootAnswer = time.Minute

func reboot(ctx context.Context, o *Options) error {
	ctx, cancel := context.WithTimeout(ctx, rebootAnswer)
	defer cancel()
	said, err := mps.New(mps.Config{HostRoot: o.HostRoot, DriverRoot: hardware.DriverRoot(o.machineRoot())}).Run(ctx, "systemctl", "reboot")
	if err != nil {
		return fmt.Errorf("systemctl reboot: %w: %s", err, said)
	}
	klog.FromContext(ctx).Info("The machine was told to reboot")
	return nil
}
