package gpu

import (
	"slices"
	"strings"
)

// Links says which other GPUs a GPU reaches directly, not through PCIe or the host.
type Links struct {
	// Fabric names what joins GPUs each to each: NVSwitches, or an XGMI hive whose GPUs are one hop
	// apart. It is the same for GPUs of one fabric.
	Fabric string
	// Peers are the PCI addresses of the GPUs at the other ends of the GPU's own links.
	Peers []string
}

// SetLinkGroups sets LinkGroup of the GPUs of a vendor. links are by PCI address; a GPU that is not
// there has none. A link counts if both GPUs have it. GPUs that are linked, but to different others,
// are in no group: of three in a row, the first and the last are not linked.
func SetLinkGroups(gpus []GPU, links map[string]Links) {
	groups := map[string][]int{}
	for i := range gpus {
		gpus[i].LinkGroup = ""
		fabric := links[gpus[i].PCIAddress].Fabric
		key := fabric
		if fabric == "" {
			// GPUs are linked each to each if they are linked to the same GPUs, each counted as
			// linked to itself.
			key = strings.Join(linkedTo(gpus, i, links), " ")
		}
		groups[key] = append(groups[key], i)
	}
	for _, same := range groups {
		if len(same) < 2 {
			continue
		}
		first := &gpus[same[0]]
		name := links[first.PCIAddress].Fabric
		if name == "" {
			name = first.Name()
		}
		for _, i := range same {
			gpus[i].LinkGroup = name
		}
	}
}

// linkedTo returns the addresses of the GPUs that a GPU is linked to, and its own, in the order of
// the GPUs.
func linkedTo(gpus []GPU, i int, links map[string]Links) []string {
	own := gpus[i].PCIAddress
	var all []string
	for j := range gpus {
		other := gpus[j].PCIAddress
		if i == j || slices.Contains(links[own].Peers, other) && slices.Contains(links[other].Peers, own) {
			all = append(all, other)
		}
	}
	return all
}
