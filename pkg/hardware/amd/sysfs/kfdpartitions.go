package sysfs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// address is a PCI address in numbers.
type address struct{ domain, bus, device, function uint64 }

// ParseAddress reads a PCI address.
func ParseAddress(pciAddress string) (address, error) {
	normal, err := gpu.NormalizePCIAddress(pciAddress)
	if err != nil {
		return address{}, err
	}
	var a address
	if _, err := fmt.Sscanf(normal, "%x:%x:%x.%x", &a.domain, &a.bus, &a.device, &a.function); err != nil {
		return address{}, fmt.Errorf("PCI address %q: %w", pciAddress, err)
	}
	if a.device > 0x1f {
		return address{}, fmt.Errorf("PCI address %q: a bus has 32 devices", pciAddress)
	}
	return a, nil
}

// Of returns the nodes of one GPU, by the render node. They are found by what
// KFD says of the place on the bus and never by unique_id: that is the GPU's
// with some drivers and the partition's with others
// (https://github.com/ROCm/k8s-gpu-dra-driver/issues/20).
func (top *Topology) Of(a address) []Node {
	var nodes []Node
	for _, n := range top.Nodes {
		if n.domain == a.domain && n.location>>8&0xff == a.bus && n.location>>3&0x1f == a.device &&
			// The lowest bits are the function of the GPU, or the partition of
			// a GPU whose function is 0, as that of all real ones is.
			(a.function == 0 || n.location&7 == a.function) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Minor, b.Minor) })
	return nodes
}

// Indexes says which partition each node of a GPU is, for nodes in the order of
// their render nodes. first is the minor of the GPU's own render node, count the
// number of partitions of the mode.
//
// The driver puts the partition in the lowest three bits of location_id, or in the
// highest four (https://rocm.docs.amd.com/projects/amdsmi, "GPU partitioning";
// amd-smi tries both in turn). Whatever it says must agree with the order of the render
// nodes, which the driver assigns in the order of the partitions; nothing is
// handed out of a GPU where it does not. Nodes whose location_id says nothing of
// partitions are told by their render nodes alone.
func Indexes(nodes []Node, first, count int) ([]int, error) {
	high := func(n Node) int { return int(n.location >> 28 & 0xf) }
	low := func(n Node) int { return int(n.location & 7) }
	minor := func(n Node) int { return n.Minor - first }
	decode := low
	if slices.ContainsFunc(nodes, func(n Node) bool { return high(n) != 0 }) {
		decode = high
	}
	if len(nodes) > 1 && !slices.ContainsFunc(nodes, func(n Node) bool { return decode(n) != decode(nodes[0]) }) {
		decode = minor
	}
	if count == 1 && len(nodes) == 1 {
		return []int{0}, nil // a whole GPU, whose lowest bits are its function
	}
	out := make([]int, len(nodes))
	for i, n := range nodes {
		out[i] = decode(n)
		if out[i] < 0 || out[i] >= count || i > 0 && out[i] <= out[i-1] {
			return nil, fmt.Errorf("KFD does not tell its partitions apart: %s, for %d partitions from renderD%d on", describe(nodes), count, first)
		}
	}
	return out, nil
}

func describe(nodes []Node) string {
	texts := lists.Map(nodes, func(n Node) string {
		return fmt.Sprintf("node %d has location_id %#x and renderD%d", n.Number, n.location, n.Minor)
	})
	return strings.Join(texts, ", ")
}
