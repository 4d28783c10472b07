package preview

import (
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// Release is what must be released for a profile.
type Release struct {
	// Devices are the held devices whose claims must be released, sorted.
	Devices []string
	// Unknown are the GPUs whose product is not known, sorted. Any of their devices may have to
	// be released.
	Unknown []string
}

// Of returns what must be released on a node for a profile, if claims hold the devices in held. It
// plans as the plugin does, on the GPUs that the node's report and the tables of models describe;
// the plugin plans again when the switch begins. It returns an error if the profile does not fit
// the node's GPUs.
func Of(n *v1beta1.GPUNode, to v1beta1.ProfileSnapshot, held []string) (Release, error) {
	var out Release
	if n.Status.Node == nil {
		return out, nil
	}
	hardware, reports, unknown := hardwareOf(n.Status.Node)
	out.Unknown = unknown
	gpus := make([]profile.NodeGPU, len(hardware))
	live := map[string]profile.Existing{}
	for i, g := range hardware {
		gpus[i] = nodeGPU(g, reports[g.PCIAddress])
		live[g.PCIAddress] = profile.Existing{Partitions: gpus[i].Live}
		for _, device := range held {
			if gpu.OfDevice(device) != g.Name() || gpu.IsMonitor(device) {
				continue
			}
			if p, ok := placement(&g, device); ok {
				gpus[i].Held = append(gpus[i].Held, profile.Holder{Device: device, Placement: p})
			} else {
				out.Devices = append(out.Devices, device)
			}
		}
	}
	desired, err := profile.Resolve(to, hardware, func(address string) profile.Existing { return live[address] })
	if err != nil {
		if len(out.Unknown) > 0 || len(gpus) == 0 {
			err = nil // The rules may select unknown GPUs.
		}
		return Release{Unknown: out.Unknown}, err
	}
	for i := range gpus {
		want := desired[gpus[i].PCIAddress]
		gpus[i].To, gpus[i].Unchanged = want.Layout, want.Unchanged
	}
	for _, g := range profile.NewChanges(gpus).GPUs {
		if monitor := gpu.Monitor(g.PCIAddress).Name(); slices.Contains(held, monitor) {
			out.Devices = append(out.Devices, monitor)
		}
		for _, h := range g.InTheWay {
			out.Devices = append(out.Devices, h.Device)
		}
	}
	slices.Sort(out.Devices)
	out.Devices = slices.Compact(out.Devices)
	return out, nil
}

// Selects reports whether a rule of a profile selects a GPU of a node. It is true if that is not known.
func Selects(n *v1beta1.GPUNode, p *v1beta1.PartitionProfile) bool {
	rules, err := profile.FromRules(p.Name, p.Spec.Rules)
	if err != nil || n.Status.Node == nil {
		return true
	}
	gpus, _, unknown := hardwareOf(n.Status.Node)
	return len(gpus) == 0 || len(unknown) > 0 || rules.Selects(gpus)
}

// hardwareOf returns the GPUs that a node reports, with their reports by PCI address, and the names of those
// whose product is not known, sorted.
func hardwareOf(n *v1beta1.NodeReport) (gpus []gpu.GPU, reports map[string]*v1beta1.GPUReport, unknown []string) {
	reports = map[string]*v1beta1.GPUReport{}
	inv := &models.Inventory{}
	for i := range n.GPUs {
		r := &n.GPUs[i]
		if address, ok := addressOf(r.Name); ok && add(inv, r, address) {
			reports[address] = r
		} else {
			unknown = append(unknown, r.Name)
		}
	}
	slices.Sort(unknown)
	gpus = inv.Hardware("")
	for i := range gpus {
		gpus[i].Index = int(reports[gpus[i].PCIAddress].Index)
	}
	return gpus, reports, unknown
}

// nodeGPU returns the state of a GPU that its node reports.
func nodeGPU(g gpu.GPU, r *v1beta1.GPUReport) profile.NodeGPU {
	out := profile.NodeGPU{GPU: g}
	switch r.MIGMode {
	case v1beta1.MIGModeEnabled:
		out.Modes = gpu.Modes{MIG: gpu.MIGOn, MIGNeedsReset: g.OtherMIG != nil}
	case v1beta1.MIGModeDisabled:
		out.Modes = gpu.Modes{MIG: gpu.MIGOff, MIGNeedsReset: g.OtherMIG != nil}
	default:
		out.Modes = gpu.Modes{
			Compute: r.ComputePartition, Computes: g.Modes[r.MemoryPartition],
			Memory: r.MemoryPartition, Memories: slices.Sorted(maps.Keys(g.Modes)), Legal: g.Modes,
		}
	}
	for _, part := range r.Partitions {
		if p, ok := placement(&g, part.Name); ok && p.Type != gpu.TypeGPU {
			out.Live = append(out.Live, gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, Complete: true})
		}
	}
	return out
}

// add adds a GPU to a machine, by its product.
func add(inv *models.Inventory, r *v1beta1.GPUReport, address string) bool {
	for _, key := range models.NVIDIAModels() {
		if model, _ := models.NVIDIAModelByKey(key); r.Vendor == string(gpu.NVIDIA) && model.ProductName == r.ProductName {
			inv.GPUs = append(inv.GPUs, models.GPU{Model: model, PCI: address, MIGMode: r.MIGMode == v1beta1.MIGModeEnabled, NUMANode: -1})
			return true
		}
	}
	for _, key := range models.AMDModels() {
		if model, _ := models.AMDModelByKey(key); r.Vendor == string(gpu.AMD) && model.ProductName == r.ProductName {
			inv.AMD = append(inv.AMD, models.AMDGPU{Model: model, PCI: address, ComputeMode: xcp.Mode(r.ComputePartition), MemoryMode: xcp.MemoryMode(r.MemoryPartition), NUMANode: -1})
			return true
		}
	}
	return false
}

// placement returns the placement with a device name, in either MIG mode; of a share, what is
// shared.
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

// addressOf returns the PCI address of a GPU with a name: gpu-0000-c1-00-0 is at 0000:c1:00.0.
func addressOf(name string) (string, bool) {
	address := gpu.AddressOf(name)
	return address, address != "" && gpu.NameOf(address) == name
}
