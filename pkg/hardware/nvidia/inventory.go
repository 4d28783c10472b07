package nvidia

import (
	"context"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Inventory lists the GPUs in PCI order, with all their placements. GPUs
// that cannot be read do not hide the others: the rest comes out together with
// an error of type *gpu.InventoryError that names them.
func (d *Driver) Inventory(ctx context.Context) ([]gpu.GPU, error) {
	count, err := d.session.Count(ctx)
	if err != nil {
		return nil, err
	}
	gpus := make([]gpu.GPU, count)
	failed := make([]error, count)
	var wait sync.WaitGroup
	for index := range count {
		wait.Go(func() { gpus[index], failed[index] = d.read(ctx, index) })
	}
	wait.Wait()

	var good []gpu.GPU
	broken := &gpu.InventoryError{}
	for index, err := range failed {
		if err != nil {
			broken.GPUs = append(broken.GPUs, &gpu.Error{PCIAddress: d.session.AddressSeen(index), ID: session.IndexName(index), Err: err})
			continue
		}
		good = append(good, gpus[index])
	}
	gpu.SortGPUs(good)
	if len(broken.GPUs) > 0 {
		return good, broken
	}
	return good, nil
}

// read reads the GPU with an index.
func (d *Driver) read(ctx context.Context, index int) (gpu.GPU, error) {
	address, err := d.session.Address(ctx, index)
	if err != nil {
		return gpu.GPU{}, err
	}
	return onGPU(ctx, d, address, func(c *gpuHandle) (gpu.GPU, error) { return c.describe(index) })
}

// describe reads everything about a GPU.
func (c *gpuHandle) describe(index int) (gpu.GPU, error) {
	g := gpu.GPU{PCIAddress: c.PCIAddress, Vendor: gpu.NVIDIA, Index: index}
	var err error
	if g.UUID, err = c.UUID(); err != nil {
		return g, err
	}
	if g.ProductName, err = session.Ask(c.Task, "DeviceGetName", c.Device.GetName); err != nil {
		return g, err
	}
	if g.Minor, err = c.Minor(); err != nil {
		return g, err
	}
	if g.DriverVersion, err = session.Ask(c.Task, "SystemGetDriverVersion", c.NVML.SystemGetDriverVersion); err != nil {
		return g, err
	}
	architecture, err := session.Ask(c.Task, "DeviceGetArchitecture", c.Device.GetArchitecture)
	if err != nil && !session.Unsupported(err) {
		return g, err
	}
	g.Architecture = architectureName(architecture)
	c.driver.locate(&g)
	if err := c.pciIDs(&g); err != nil {
		return g, err
	}
	memory, err := c.TotalMemory()
	if err != nil {
		return g, err
	}
	g.Memory = int64(memory)

	f, profiles, err := c.abilities()
	if err != nil {
		return g, err
	}
	g.Placements, g.Counters = mig.Devices(f, profiles)
	g.OtherMIG = mig.Other(f, profiles)
	return g, nil
}

// pciIDs says what the GPU and its board are to the PCI bus.
func (c *gpuHandle) pciIDs(g *gpu.GPU) error {
	info, err := session.Ask(c.Task, "DeviceGetPciInfo", c.Device.GetPciInfo)
	if err != nil {
		return err
	}
	g.PCIID = gpu.PCIIDOf(uint16(info.PciDeviceId>>16), uint16(info.PciDeviceId))                //nolint:gosec // two numbers in one
	g.PCISubsystemID = gpu.PCIIDOf(uint16(info.PciSubSystemId>>16), uint16(info.PciSubSystemId)) //nolint:gosec // two numbers in one
	return nil
}

// abilities reads what decides which placements the GPU offers.
func (c *gpuHandle) abilities() (mig.Facts, []mig.Profile, error) {
	f := mig.Facts{PCIAddress: c.PCIAddress}
	mode, err := c.Mode()
	if err != nil {
		return f, nil, err
	}
	if f.Memory, err = c.wholeMemory(mode.On); err != nil {
		return f, nil, err
	}
	if f.Multiprocessors, err = c.multiprocessors(); err != nil {
		return f, nil, err
	}
	if !mode.Capable {
		return f, nil, nil
	}
	profiles, err := c.Profiles()
	if err != nil {
		return f, nil, err
	}
	f.On = mode.On
	f.Switchable, f.NeedsReset = mode.Switchable, mode.NeedsReset
	f.Capable = len(profiles) > 0
	return f, profiles, nil
}

// multiprocessors is the number of SMs of the whole GPU. NVML tells only how
// many CUDA cores there are; how many of them make an SM is fixed for each
// generation (CUDA C++ Programming Guide, "Compute Capabilities"). Zero when
// the generation is unknown.
func (c *gpuHandle) multiprocessors() (int64, error) {
	cores, err := session.Ask(c.Task, "DeviceGetNumGpuCores", c.Device.GetNumGpuCores)
	if session.Unsupported(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, minor, err := c.ComputeCapability()
	if err != nil {
		return 0, err
	}
	switch {
	case major == 7, major == 8 && minor == 0:
		return int64(cores / 64), nil
	case major == 8, major == 9, major == 10, major == 12:
		return int64(cores / 128), nil
	}
	return 0, nil
}

// architectureName is NVML's architecture as we publish it.
func architectureName(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_KEPLER:
		return "kepler"
	case nvml.DEVICE_ARCH_MAXWELL:
		return "maxwell"
	case nvml.DEVICE_ARCH_PASCAL:
		return "pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "volta"
	case nvml.DEVICE_ARCH_TURING:
		return "turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "blackwell"
	case nvml.DEVICE_ARCH_RUBIN:
		return "rubin"
	}
	return "" // newer than our NVML header: better nothing than a wrong name
}
