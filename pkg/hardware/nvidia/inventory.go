package nvidia

import (
	"context"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Inventory implements hardware.Driver. It reads all GPUs at once, so that one that
// hangs does not delay the others.
func (d *Driver) Inventory(ctx context.Context) ([]gpu.GPU, error) {
	count, err := d.session.Count(ctx)
	if err != nil {
		return nil, err
	}
	gpus := make([]linkedGPU, count)
	failed := make([]error, count)
	var wait sync.WaitGroup
	for index := range count {
		wait.Go(func() { gpus[index], failed[index] = d.read(ctx, index) })
	}
	wait.Wait()

	var good []gpu.GPU
	links := map[string]gpu.Links{}
	broken := &gpu.InventoryError{}
	for index, err := range failed {
		if err != nil {
			broken.GPUs = append(broken.GPUs, &gpu.Error{PCIAddress: d.session.AddressSeen(index), ID: session.IndexName(index), Err: err})
			continue
		}
		good = append(good, gpus[index].GPU)
		links[gpus[index].PCIAddress] = gpus[index].links
	}
	gpu.SortGPUs(good)
	gpu.SetLinkGroups(good, links)
	if len(broken.GPUs) > 0 {
		return good, broken
	}
	return good, nil
}

// linkedGPU is a GPU with its links, which decide its link group when all GPUs are known.
type linkedGPU struct {
	gpu.GPU
	links gpu.Links
}

func (d *Driver) read(ctx context.Context, index int) (linkedGPU, error) {
	address, err := d.session.Address(ctx, index)
	if err != nil {
		return linkedGPU{}, err
	}
	return onGPU(ctx, d, address, func(h *handle) (linkedGPU, error) {
		g, err := h.describe(index)
		if err != nil {
			return linkedGPU{}, err
		}
		return linkedGPU{g, h.links(&g)}, nil
	})
}

func (h *handle) describe(index int) (gpu.GPU, error) {
	g := gpu.GPU{PCIAddress: h.PCIAddress, Vendor: gpu.NVIDIA, Index: index}
	var err error
	if g.UUID, err = h.UUID(); err != nil {
		return g, err
	}
	if g.ProductName, err = session.Ask(h.Task, "DeviceGetName", h.Device.GetName); err != nil {
		return g, err
	}
	if g.Minor, err = h.Minor(); err != nil {
		return g, err
	}
	if err := h.versions(&g); err != nil {
		return g, err
	}
	h.driver.locate(&g)
	if err := h.pciIDs(&g); err != nil {
		return g, err
	}
	memory, err := h.TotalMemory()
	if err != nil {
		return g, err
	}
	g.Memory = int64(memory)

	f, profiles, err := h.abilities()
	if err != nil {
		return g, err
	}
	g.ComputeUnits = mig.Multiprocessors(f, profiles)
	g.Placements, g.Counters = mig.Devices(f, profiles)
	g.OtherMIG = mig.Other(f, profiles)
	g.Partitionable = f.Partitionable()
	return g, nil
}

// versions reads which driver the GPU has, and of which generation it is.
func (h *handle) versions(g *gpu.GPU) (err error) {
	if g.DriverVersion, err = session.Ask(h.Task, "SystemGetDriverVersion", h.NVML.SystemGetDriverVersion); err != nil {
		return err
	}
	// Version 2 of the call needs libcuda.so.1, which this container may not have.
	cuda, err := session.Ask(h.Task, "SystemGetCudaDriverVersion", h.NVML.SystemGetCudaDriverVersion)
	if err != nil && !session.Unsupported(err) {
		return err
	}
	g.CUDADriverVersion = cudaVersion(cuda)
	major, minor, err := h.ComputeCapability()
	if err != nil && !session.Unsupported(err) {
		return err
	}
	if major > 0 {
		g.CUDAComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
	architecture, err := session.Ask(h.Task, "DeviceGetArchitecture", h.Device.GetArchitecture)
	if err != nil && !session.Unsupported(err) {
		return err
	}
	g.Architecture = architectures[architecture]
	return nil
}

// cudaVersion returns the text of a version that NVML encodes: 13020 is 13.2.
func cudaVersion(encoded int) string {
	if encoded <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", encoded/1000, encoded%1000/10)
}

// pciIDs reads the PCI ids of the GPU and of its board.
func (h *handle) pciIDs(g *gpu.GPU) error {
	info, err := session.Ask(h.Task, "DeviceGetPciInfo", h.Device.GetPciInfo)
	if err != nil {
		return err
	}
	g.PCIID = gpu.PCIIDOf(uint16(info.PciDeviceId>>16), uint16(info.PciDeviceId))                //nolint:gosec // two numbers in one
	g.PCISubsystemID = gpu.PCIIDOf(uint16(info.PciSubSystemId>>16), uint16(info.PciSubSystemId)) //nolint:gosec // two numbers in one
	return nil
}

// abilities reads what determines the placements of the GPU.
func (h *handle) abilities() (mig.Facts, []mig.Profile, error) {
	f := mig.Facts{PCIAddress: h.PCIAddress}
	mode, err := h.Mode()
	if err != nil {
		return f, nil, err
	}
	if f.Memory, err = h.wholeMemory(mode.On); err != nil {
		return f, nil, err
	}
	if f.Multiprocessors, err = h.multiprocessors(); err != nil {
		return f, nil, err
	}
	if !mode.Capable {
		return f, nil, nil
	}
	profiles, err := h.Profiles()
	if err != nil {
		return f, nil, err
	}
	f.On = mode.On
	f.Switchable, f.NeedsReset = mode.Switchable, mode.NeedsReset
	f.Capable = len(profiles) > 0
	return f, profiles, nil
}

// multiprocessors returns the number of SMs of the whole GPU. NVML reports only the number
// of CUDA cores. Zero if it is unknown how many an SM has.
func (h *handle) multiprocessors() (int64, error) {
	cores, err := session.Ask(h.Task, "DeviceGetNumGpuCores", h.Device.GetNumGpuCores)
	if session.Unsupported(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, minor, err := h.ComputeCapability()
	if err != nil {
		return 0, err
	}
	if each := mig.CoresPerMultiprocessor(major, minor); each > 0 {
		return int64(cores / each), nil
	}
	return 0, nil
}

// architectures has NVIDIA's names of the architectures in nvml.h, as NVIDIA's DRA driver spells
// them (GetArchitectureAsString in go-nvlib). A newer one is not published.
var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER:    "Kepler",
	nvml.DEVICE_ARCH_MAXWELL:   "Maxwell",
	nvml.DEVICE_ARCH_PASCAL:    "Pascal",
	nvml.DEVICE_ARCH_VOLTA:     "Volta",
	nvml.DEVICE_ARCH_TURING:    "Turing",
	nvml.DEVICE_ARCH_AMPERE:    "Ampere",
	nvml.DEVICE_ARCH_ADA:       "Ada Lovelace",
	nvml.DEVICE_ARCH_HOPPER:    "Hopper",
	nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	nvml.DEVICE_ARCH_RUBIN:     "Rubin",
}
