// Package byhand has GPUs that are written by hand, with the least that decisions about partitions and
// modes need, for the tests of these decisions and of what performs them.
package byhand

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The GPUs by their PCI addresses.
const (
	Hopper = "0000:01:00.0"
	Other  = "0000:02:00.0" // another Hopper
	Ampere = "0000:03:00.0"
	Plain  = "0000:04:00.0" // knows no MIG
	MI300  = "0000:81:00.0"
	MI300b = "0000:82:00.0"
	MI210  = "0000:83:00.0" // has no modes
)

func mig(gpuID, profile string, start, size int) gpu.Placement {
	return gpu.Placement{GPU: gpuID, Type: gpu.TypeMIG, Profile: profile, Start: start, Size: size}
}

// Ones are 1g.10gb partitions at places.
func Ones(gpuID string, starts ...int) []gpu.Placement {
	var all []gpu.Placement
	for _, start := range starts {
		all = append(all, mig(gpuID, "1g.10gb", start, 1))
	}
	return all
}

// Three is a 3g.40gb partition.
func Three(gpuID string, start int) gpu.Placement { return mig(gpuID, "3g.40gb", start, 4) }

// Whole is a whole GPU.
func Whole(gpuID string) gpu.Placement { return gpu.Placement{GPU: gpuID, Type: gpu.TypeGPU} }

// XCP is a partition of a compute mode.
func XCP(gpuID, profile string, index int) gpu.Placement {
	if profile == "spx" {
		return gpu.Placement{GPU: gpuID, Type: gpu.TypeGPU, Profile: profile}
	}
	return gpu.Placement{GPU: gpuID, Type: gpu.TypeXCP, Profile: profile, Start: index}
}

// Share is a share of a placement.
func Share(p gpu.Placement) gpu.Placement { return gpu.ShareOf(p, gpu.ByMemory, gpu.Sharing{}) }

// Partition is the complete partition at a placement.
func Partition(p gpu.Placement) gpu.Partition {
	return gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, UUID: "MIG-" + p.Name(), Complete: true, ID: "GI 1"}
}

// Partitions are the complete partitions at placements.
func Partitions(placements ...gpu.Placement) []gpu.Partition {
	var all []gpu.Partition
	for _, p := range placements {
		all = append(all, Partition(p))
	}
	return all
}

// Legal are the compute modes of an MI300 by its memory modes.
var Legal = map[string][]string{"NPS1": {"SPX", "DPX", "QPX", "CPX"}, "NPS4": {"QPX", "CPX"}}

// GPU is a GPU as it comes out of the box.
func GPU(address string) (g gpu.GPU, modes gpu.Modes) {
	g = gpu.GPU{PCIAddress: address, Vendor: gpu.NVIDIA}
	cuts := append(Ones(address, 6, 5, 4, 3, 2, 1, 0), Three(address, 4), Three(address, 0))
	switch address {
	case Hopper, Other:
		modes = gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff}
		g.Placements = slices.Concat(cuts, []gpu.Placement{Whole(address)})
	case Ampere:
		modes = gpu.Modes{MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff, MIGNeedsReset: true}
		g.Placements = []gpu.Placement{Whole(address)}
		g.OtherMIG = &gpu.Offer{Placements: cuts}
	case Plain:
		g.Placements = []gpu.Placement{Whole(address)}
	case MI210:
		g.Vendor, g.Placements = gpu.AMD, []gpu.Placement{Whole(address)}
	default:
		g.Vendor, g.Modes = gpu.AMD, Legal
		modes = gpu.Modes{Compute: "SPX", Computes: Legal["NPS1"], Memory: "NPS1", Memories: []string{"NPS1", "NPS4"}, Legal: Legal}
		for i := range 8 {
			g.Placements = append(g.Placements, XCP(address, "cpx", i))
		}
		g.Placements = append(g.Placements, XCP(address, "dpx", 0), XCP(address, "dpx", 1), XCP(address, "spx", 0))
	}
	return g, modes
}

// InMemoryMode are the modes of a GPU after the driver was loaded with a memory mode.
func InMemoryMode(modes gpu.Modes, mode string) gpu.Modes {
	modes.Memory, modes.Computes = mode, Legal[mode]
	modes.Compute = map[string]string{"NPS1": "SPX", "NPS4": "CPX"}[mode]
	return modes
}
