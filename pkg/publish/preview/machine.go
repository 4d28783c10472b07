package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// machine has the GPUs of a report whose product is known. Maps are by PCI address.
type machine struct {
	gpus    []gpu.GPU
	modes   map[string]gpu.Modes
	live    map[string][]gpu.Partition
	held    map[string][]string
	unknown []string
}

// machineOf builds the GPUs that a node reports from the tables of models. It does not take held
// devices from the report, which lags behind the claims by a few seconds.
func machineOf(report *v1alpha1.NodeReport, held []string) *machine {
	m := &machine{modes: map[string]gpu.Modes{}, live: map[string][]gpu.Partition{}, held: map[string][]string{}}
	inv := &models.Inventory{}
	for i := range report.GPUs {
		r := &report.GPUs[i]
		address, ok := addressOf(r.Name)
		if ok {
			ok = add(inv, r, address)
		}
		if !ok {
			m.unknown = append(m.unknown, r.Name)
			continue
		}
		for _, device := range held {
			if gpu.OfDevice(device) == r.Name {
				m.held[address] = append(m.held[address], device)
			}
		}
	}
	slices.Sort(m.unknown)
	m.gpus = inv.Hardware("")
	for i := range m.gpus {
		g := &m.gpus[i]
		r := reportOf(report, g.Name())
		g.Index = int(r.Index)
		m.modes[g.PCIAddress] = modesOf(g, r.Mode)
		for _, name := range r.Partitions {
			if p, ok := placement(g, name); ok && p.Type != gpu.TypeGPU {
				m.live[g.PCIAddress] = append(m.live[g.PCIAddress],
					gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, Complete: true})
			}
		}
	}
	return m
}

func reportOf(report *v1alpha1.NodeReport, name string) *v1alpha1.GPUReport {
	i := slices.IndexFunc(report.GPUs, func(r v1alpha1.GPUReport) bool { return r.Name == name })
	return &report.GPUs[i]
}

// add adds a GPU to an inventory, and reports whether its product is known.
func add(inv *models.Inventory, r *v1alpha1.GPUReport, address string) bool {
	for _, key := range models.NVIDIAModels() {
		if model, _ := models.NVIDIAModelByKey(key); r.Vendor == string(gpu.NVIDIA) && model.ProductName == r.Product {
			inv.GPUs = append(inv.GPUs, models.GPU{Model: model, PCI: address, MIGMode: r.Mode == migPrefix+string(gpu.MIGOn), NUMANode: -1})
			return true
		}
	}
	for _, key := range models.AMDModels() {
		if model, _ := models.AMDModelByKey(key); r.Vendor == string(gpu.AMD) && model.ProductName == r.Product {
			compute, memory, _ := strings.Cut(r.Mode, " ")
			inv.AMD = append(inv.AMD, models.AMDGPU{Model: model, PCI: address, ComputeMode: xcp.Mode(compute), MemoryMode: xcp.MemoryMode(memory), NUMANode: -1})
			return true
		}
	}
	return false
}

// migPrefix precedes the MIG mode in reports.
const migPrefix = "MIG "

// modesOf parses the modes of a report.
func modesOf(g *gpu.GPU, text string) gpu.Modes {
	if mode, ok := strings.CutPrefix(text, migPrefix); ok {
		return gpu.Modes{MIG: gpu.MIGMode(mode), MIGNeedsReset: g.OtherMIG != nil}
	}
	compute, memory, _ := strings.Cut(text, " ")
	return gpu.Modes{Compute: compute, Memory: memory}
}

// placement returns the placement with a device name, in either MIG mode. For a share, it is the
// placement that is shared.
func placement(g *gpu.GPU, device string) (gpu.Placement, bool) {
	for _, by := range gpu.Bases() {
		device = strings.TrimSuffix(device, gpu.ShareName("", by))
	}
	for _, mode := range []gpu.MIGMode{gpu.MIGOn, gpu.MIGOff} {
		other := g.WithMIG(mode)
		if p, ok := other.Placement(device); ok {
			return p, true
		}
	}
	return gpu.Placement{}, false
}

// addressOf returns the PCI address of a GPU by its name: gpu-0000-c1-00-0 is at 0000:c1:00.0.
func addressOf(name string) (string, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "gpu-"), "-")
	if len(parts) != 4 {
		return "", false
	}
	address, err := gpu.NormalizePCIAddress(fmt.Sprintf("%s:%s:%s.%s", parts[0], parts[1], parts[2], parts[3]))
	return address, err == nil && gpu.NameOf(address) == name
}
