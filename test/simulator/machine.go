package simulator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// Machine is one simulated machine.
type Machine struct {
	// Inventory names the GPUs: a built-in inventory, a file, or an inventory in
	// InventoryDir.
	Inventory, InventoryDir string
	// Root is the folder of the machine's files, by the same path here and on the host.
	Root string
	// Node is the node's name. GPUs of different nodes have different UUIDs.
	Node string
	// Tools is the program that stands in for those of NVIDIA's driver. Empty: none of
	// them runs, and there is no MPS.
	Tools string
	// Library is the version or branch of NVIDIA's driver whose NVML answers. Empty: that of
	// the inventory.
	Library string
	// NVIDIA and AMD say how the drivers are used. Where they are is not read.
	NVIDIA nvidia.Vendor
	AMD    amd.Vendor
}

// Hardware returns the machine as the plugin uses it.
func (m *Machine) Hardware() hardware.Machine {
	return hardware.Machine{Vendors: m.vendors, BootID: m.bootID, Reboot: m.reboot, Now: time.Now}
}

func (m *Machine) inventory() (*models.Inventory, error) {
	return models.LoadInventory(m.Inventory, m.InventoryDir)
}

// vendors are those of the GPUs in the inventory.
func (m *Machine) vendors() ([]hardware.Vendor, error) {
	inv, err := m.inventory()
	if err != nil {
		return nil, err
	}
	var all []hardware.Vendor
	if len(inv.GPUs) > 0 {
		all = append(all, nvidiaVendor{m.NVIDIA, m})
	}
	if len(inv.AMD) > 0 {
		all = append(all, amdVendor{m.AMD, m})
	}
	return all, nil
}

func (m *Machine) bootID() string { return hardware.BootID(m.Root) }

func (m *Machine) reboot(context.Context) error {
	inv, err := m.inventory()
	if err != nil {
		return err
	}
	if len(inv.GPUs) > 0 {
		return nvdriver.Reboot(m.Root) // of all GPUs
	}
	return amdgpu.Reboot(m.Root)
}

// nvidiaVendor opens the simulated NVIDIA driver.
type nvidiaVendor struct {
	nvidia.Vendor
	machine *Machine
}

// Open implements hardware.Vendor. The inventory is read again: a driver that was
// replaced has another version.
func (v nvidiaVendor) Open(ctx context.Context) (*hardware.Opened, error) {
	m := v.machine
	inv, err := m.inventory()
	if err != nil {
		return nil, err
	}
	sys := filepath.Join(m.Root, "sys")
	switch missing, err := nvdriver.LibraryMissing(m.Root); {
	case err != nil:
		return nil, err
	case missing:
		return nvidia.WithoutLibrary(m.Root, sys, errors.New("no library: faults.yaml says that it is missing"))
	}
	library, err := nvdriver.New(inv, nvdriver.Options{Root: m.Root, Seed: m.Node, Tools: m.Tools, Library: m.Library})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", m.Inventory, err)
	}
	return v.Use(ctx, nvidia.Config{NVML: library, DriverRoot: library.DriverRoot(), ProcRoot: m.Root, SysRoot: sys})
}

// amdVendor opens the simulated amdgpu.
type amdVendor struct {
	amd.Vendor
	machine *Machine
}

// lookPause is kmod.Module's LookPause for a driver that is loaded at once.
const lookPause = 100 * time.Millisecond

// Open implements hardware.Vendor.
func (v amdVendor) Open(ctx context.Context) (*hardware.Opened, error) {
	m := v.machine
	inv, err := m.inventory()
	if err != nil {
		return nil, err
	}
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: m.Root, Seed: m.Node})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", m.Inventory, err)
	}
	module := kmod.Module{Run: kernel.Modprobe, ReadFile: kernel.ReadFile, Manager: v.Manager, LookPause: lookPause}
	return v.Use(ctx, amd.Config{Files: kernel, HostDevRoot: m.Root, Groups: kernel.Groups()}, module)
}
