package models

import (
	"crypto/sha1"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// UUID hashes a name as RFC 9562's version 5 does, the version of the UUIDs
// that the driver gives to MIG devices.
func UUID(name string) string {
	u := sha1.Sum([]byte("tranche simulated hardware " + name))
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// GPUUUID is the UUID of the GPU with an index: another on every machine, by
// the seed, and always the same on one.
func (inv *Inventory) GPUUUID(seed string, index int) string {
	return "GPU-" + UUID(fmt.Sprintf("%s/%s/%d", seed, inv.GPUs[index].Model.Key, index))
}

// Hardware is the machine's GPUs of both vendors as their drivers tell them
// (nvidia.Driver's and amd.Driver's Inventory), in PCI order. The seed is the
// node's name on a simulated node.
func (inv *Inventory) Hardware(seed string) []gpu.GPU {
	gpus := append(inv.nvidiaGPUs(seed), inv.amdGPUs(seed)...)
	gpu.SortGPUs(gpus)
	return gpus
}

// OneOfEach returns a GPU of each model.
func OneOfEach() (all []gpu.GPU, err error) {
	for _, model := range slices.Concat(NVIDIAModels(), AMDModels()) {
		inventory, err := ParseInventory(fmt.Appendf(nil, "gpus: [{model: %q}]", model))
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", model, err)
		}
		all = append(all, inventory.Hardware(model)...)
	}
	return all, nil
}

func (inv *Inventory) nvidiaGPUs(seed string) []gpu.GPU {
	gpus, links := make([]gpu.GPU, len(inv.GPUs)), map[string]gpu.Links{}
	for i, g := range inv.GPUs {
		total, _ := g.Model.Memory()
		gpus[i] = gpu.GPU{
			PCIAddress:            g.PCI,
			Vendor:                gpu.NVIDIA,
			Index:                 i,
			Minor:                 i,
			UUID:                  inv.GPUUUID(seed, i),
			ProductName:           g.Model.ProductName,
			PCIID:                 gpu.PCIIDOf(uint16(g.Model.DeviceID()>>16), uint16(g.Model.DeviceID())), //nolint:gosec // two numbers in one
			Architecture:          g.Model.Architecture,
			DriverVersion:         inv.DriverVersion,
			CUDAComputeCapability: g.Model.CUDAComputeCapability,
			CUDADriverVersion:     fmt.Sprintf("%d.%d", inv.CUDADriverVersion/1000, inv.CUDADriverVersion%1000/10),
			Memory:                int64(total), //nolint:gosec // is no exbibyte
			PCIeRoot:              PCIeRoot(g.PCI),
			NUMANode:              numaNode(g.NUMANode),
		}
		gpus[i].ComputeUnits = mig.Multiprocessors(g.facts(), g.Model.profiles())
		gpus[i].Placements, gpus[i].Counters = mig.Devices(g.facts(), g.Model.profiles())
		gpus[i].OtherMIG = mig.Other(g.facts(), g.Model.profiles())
		gpus[i].Partitionable = g.facts().Partitionable()
		links[g.PCI] = inv.nvLinks(i, &gpus[i])
	}
	gpu.SetLinkGroups(gpus, links)
	return gpus
}

// nvLinks are the links of a GPU. Ampere turns them off in MIG mode (NVIDIA's Fabric Manager User
// Guide, Interoperability With MIG).
func (inv *Inventory) nvLinks(index int, of *gpu.GPU) (l gpu.Links) {
	g := &inv.GPUs[index]
	switch {
	case g.MIGMode && g.Model.KeepsMIGMode():
	case g.Model.NVSwitch:
		l.Fabric = "nvswitch-" + of.PCIID + ".0"
	default:
		l.Peers = lists.Map(inv.Bridged(index), func(i int) string { return inv.GPUs[i].PCI })
	}
	return l
}

// Bridged are the other GPUs at the bridge of a GPU.
func (inv *Inventory) Bridged(index int) (others []int) {
	for i := range inv.GPUs {
		if bridge := inv.GPUs[i].Bridge; i != index && bridge != "" && bridge == inv.GPUs[index].Bridge {
			others = append(others, i)
		}
	}
	return others
}

// facts is what decides, beside the profiles, what the GPU offers.
func (g *GPU) facts() mig.Facts {
	major, _ := g.Model.ComputeCapability()
	total, reserved := g.Model.Memory()
	return mig.Facts{
		PCIAddress:      g.PCI,
		Capable:         g.Model.HasMIG(),
		On:              g.MIGMode,
		Switchable:      g.Model.HasMIG() && major >= mig.Hopper,
		NeedsReset:      g.Model.HasMIG() && major < mig.Hopper,
		Memory:          int64(total - reserved), //nolint:gosec // is no exbibyte
		Multiprocessors: int64(g.Model.Multiprocessors),
	}
}

func (m *NVIDIAModel) profiles() []mig.Profile {
	var all []mig.Profile
	for _, p := range m.Profiles {
		profile := mig.Profile{
			ID:              uint32(p.ID),
			Name:            p.Name,
			Slices:          p.ComputeSlices,
			Memory:          int64(p.MemoryMiB) << 20,
			Multiprocessors: int64(p.Multiprocessors),
			Engines:         p.Engines.byName(),
			Max:             p.MaxInstances,
		}
		for _, start := range p.Starts {
			profile.Spans = append(profile.Spans, mig.Span{Start: start, Size: p.Size})
		}
		all = append(all, profile)
	}
	return all
}

// byName is the engines as capacities; those that are not there are left out.
func (e Engines) byName() map[string]int64 {
	engines := map[string]int64{}
	for i, name := range [...]string{
		EngineCopy: mig.CopyEngines, EngineDecoder: mig.Decoders, EngineEncoder: mig.Encoders,
		EngineJPEG: mig.JPEGEngines, EngineOFA: mig.OFAEngines,
	} {
		if e[i] > 0 {
			engines[name] = int64(e[i])
		}
	}
	return engines
}
