package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// Inventory lists the GPUs in PCI order, with all their placements. GPUs
// that cannot be read do not hide the others: the rest comes out together with
// an error of type *gpu.InventoryError that names them.
func (d *Driver) Inventory(ctx context.Context) ([]gpu.GPU, error) {
	count, err := d.count(ctx)
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
			broken.GPUs = append(broken.GPUs, &gpu.Error{PCIAddress: d.addressSeen(index), ID: indexName(index), Err: err})
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

// count is the number of GPUs. An NVML session that was lost is opened again.
func (d *Driver) count(ctx context.Context) (int, error) {
	return through(ctx, d, d.library, func(t *task) (int, error) {
		n, err := ask(t, "DeviceGetCount", t.nvml.DeviceGetCount)
		if !errors.Is(err, nvml.ERROR_UNINITIALIZED) {
			return n, err
		}
		if err := t.session.begin(t); err != nil {
			return 0, err
		}
		return ask(t, "DeviceGetCount", t.nvml.DeviceGetCount)
	})
}

// read reads the GPU with an index.
func (d *Driver) read(ctx context.Context, index int) (gpu.GPU, error) {
	address, err := d.address(ctx, index)
	if err != nil {
		return gpu.GPU{}, err
	}
	return onGPU(ctx, d, address, func(c *gpuHandle) (gpu.GPU, error) { return c.describe(index) })
}

// address finds out which GPU has an index, behind a gate of its own: a GPU
// that hangs here must not hold up the others.
func (d *Driver) address(ctx context.Context, index int) (string, error) {
	g := d.gateOf("with " + indexName(index))
	address, err := through(ctx, d, g, func(t *task) (string, error) {
		device, err := ask(t, "DeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) {
			return t.nvml.DeviceGetHandleByIndex(index)
		})
		if err != nil {
			return "", err
		}
		info, err := ask(t, "DeviceGetPciInfo", device.GetPciInfo)
		if err != nil {
			return "", err
		}
		return addressIn(info)
	})
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[index] = address
	return address, nil
}

// indexName is a GPU as long as nothing else is known of it.
func indexName(index int) string { return fmt.Sprintf("NVML index %d", index) }

func addressIn(info nvml.PciInfo) (string, error) {
	return gpu.NormalizePCIAddress(cString(info.BusId[:]))
}

// addressSeen is the address that the GPU with an index had when it last
// answered, empty when it never did.
func (d *Driver) addressSeen(index int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[index]
}

// describe reads everything about a GPU.
func (c *gpuHandle) describe(index int) (gpu.GPU, error) {
	g := gpu.GPU{PCIAddress: c.pciAddress, Vendor: gpu.NVIDIA, Index: index}
	var err error
	if g.UUID, err = ask(c.task, "DeviceGetUUID", c.device.GetUUID); err != nil {
		return g, err
	}
	if g.ProductName, err = ask(c.task, "DeviceGetName", c.device.GetName); err != nil {
		return g, err
	}
	if g.Minor, err = ask(c.task, "DeviceGetMinorNumber", c.device.GetMinorNumber); err != nil {
		return g, err
	}
	if g.DriverVersion, err = ask(c.task, "SystemGetDriverVersion", c.nvml.SystemGetDriverVersion); err != nil {
		return g, err
	}
	architecture, err := ask(c.task, "DeviceGetArchitecture", c.device.GetArchitecture)
	if err != nil && !unsupported(err) {
		return g, err
	}
	g.Architecture = architectureName(architecture)
	c.driver.locate(&g)
	if err := c.pciIDs(&g); err != nil {
		return g, err
	}
	memory, err := c.totalMemory()
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
	info, err := ask(c.task, "DeviceGetPciInfo", c.device.GetPciInfo)
	if err != nil {
		return err
	}
	g.PCIID = gpu.PCIIDOf(uint16(info.PciDeviceId>>16), uint16(info.PciDeviceId))                //nolint:gosec // two numbers in one
	g.PCISubsystemID = gpu.PCIIDOf(uint16(info.PciSubSystemId>>16), uint16(info.PciSubSystemId)) //nolint:gosec // two numbers in one
	return nil
}

// abilities reads what decides which placements the GPU offers.
func (c *gpuHandle) abilities() (mig.Facts, []mig.Profile, error) {
	f := mig.Facts{PCIAddress: c.pciAddress}
	mode, err := c.migMode()
	if err != nil {
		return f, nil, err
	}
	if f.Memory, err = c.wholeMemory(mode.on); err != nil {
		return f, nil, err
	}
	if f.Multiprocessors, err = c.multiprocessors(); err != nil {
		return f, nil, err
	}
	if !mode.capable {
		return f, nil, nil
	}
	profiles, err := c.profiles()
	if err != nil {
		return f, nil, err
	}
	if profiles, err = c.withSpans(profiles); err != nil {
		return f, nil, err
	}
	f.On = mode.on
	f.Switchable, f.NeedsReset = mode.switchable, mode.needsReset
	f.Capable = len(profiles) > 0
	return f, profiles, nil
}

// multiprocessors is the number of SMs of the whole GPU. NVML tells only how
// many CUDA cores there are; how many of them make an SM is fixed for each
// generation (CUDA C++ Programming Guide, "Compute Capabilities"). Zero when
// the generation is unknown.
func (c *gpuHandle) multiprocessors() (int64, error) {
	cores, err := ask(c.task, "DeviceGetNumGpuCores", c.device.GetNumGpuCores)
	if unsupported(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, minor, err := c.computeCapability()
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

func (c *gpuHandle) computeCapability() (major, minor int, err error) {
	version, err := ask(c.task, "DeviceGetCudaComputeCapability", func() ([2]int, nvml.Return) {
		major, minor, ret := c.device.GetCudaComputeCapability()
		return [2]int{major, minor}, ret
	})
	return version[0], version[1], err
}
