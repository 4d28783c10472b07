package amd

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// address is a PCI address in numbers.
type address struct{ domain, bus, device, function uint64 }

func parseAddress(pciAddress string) (address, error) {
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

// of gives the nodes of one GPU, by the render node. They are found by what
// KFD says of the place on the bus and never by unique_id: that is the GPU's
// with some drivers and the partition's with others
// (https://github.com/ROCm/k8s-gpu-dra-driver/issues/20).
func (top *topology) of(a address) []node {
	var nodes []node
	for _, n := range top.nodes {
		if n.domain == a.domain && n.location>>8&0xff == a.bus && n.location>>3&0x1f == a.device &&
			// The lowest bits are the function of the GPU, or the partition of
			// a GPU whose function is 0, as that of all real ones is.
			(a.function == 0 || n.location&7 == a.function) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.minor, b.minor) })
	return nodes
}

// indexes says which partition each node of a GPU is, for nodes in the order of
// their render nodes. first is the minor of the GPU's own render node, count the
// number of partitions of the mode.
//
// The driver puts the partition in the lowest three bits of location_id, or in the
// highest four (https://rocm.docs.amd.com/projects/amdsmi, "GPU partitioning";
// amd-smi tries both in turn). Whatever it says must agree with the order of the render
// nodes, which the driver gives out in the order of the partitions; nothing is
// handed out of a GPU where it does not. Nodes whose location_id says nothing of
// partitions are told by their render nodes alone.
func indexes(nodes []node, first, count int) ([]int, error) {
	high := func(n node) int { return int(n.location >> 28 & 0xf) }
	low := func(n node) int { return int(n.location & 7) }
	minor := func(n node) int { return n.minor - first }
	decode := low
	if slices.ContainsFunc(nodes, func(n node) bool { return high(n) != 0 }) {
		decode = high
	}
	if len(nodes) > 1 && !slices.ContainsFunc(nodes, func(n node) bool { return decode(n) != decode(nodes[0]) }) {
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

func describe(nodes []node) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = fmt.Sprintf("node %d has location_id %#x and renderD%d", n.number, n.location, n.minor)
	}
	return strings.Join(texts, ", ")
}

// partition is a piece of a GPU that the live mode has.
type partition struct {
	index int
	// node is nil when KFD has none: nothing can run there.
	node *node
}

// live is what a GPU is at the moment.
type live struct {
	mode xcp.Mode
	// partitions are those that the mode should have, by their index. The whole
	// GPU is one, in SPX and where there are no modes.
	partitions []partition
}

// nodes are the nodes that KFD has for the GPU, in the order of the partitions.
func (l live) nodes() []node {
	var out []node
	for _, p := range l.partitions {
		if p.node != nil {
			out = append(out, *p.node)
		}
	}
	return out
}

// missing are the indexes of the partitions that KFD does not have.
func (l live) missing() []int {
	var out []int
	for _, p := range l.partitions {
		if p.node == nil {
			out = append(out, p.index)
		}
	}
	return out
}

// mode is the compute mode that the GPU is in, empty for a GPU that has none.
func (c *gpuHandle) mode() (xcp.Mode, error) {
	text, err := c.optional(c.file(computeFile))
	if err != nil || text == "" {
		return "", c.told(err)
	}
	modes := xcp.ParseModes(text)
	if len(modes) != 1 {
		return "", fmt.Errorf("GPU %s: amdgpu says that the compute mode is %q, which is none", c.pciAddress, text)
	}
	return modes[0], nil
}

// live looks what the GPU is, by a topology.
func (c *gpuHandle) live(top *topology) (live, error) {
	mode, err := c.mode()
	if err != nil {
		return live{}, err
	}
	a, err := parseAddress(c.pciAddress)
	if err != nil {
		return live{}, err
	}
	nodes := top.of(a)
	l := live{mode: mode}
	count := 1
	if mode != "" && mode != xcp.SPX {
		xccs, err := c.xccs(mode, nodes)
		if err != nil {
			return live{}, err
		}
		if count = mode.Count(xccs); count == 0 {
			return live{}, fmt.Errorf("GPU %s: it is in mode %s, which a chip of %d XCCs does not have", c.pciAddress, mode, xccs)
		}
	}
	for i := range count {
		l.partitions = append(l.partitions, partition{index: i})
	}
	if len(nodes) == 0 {
		return l, nil
	}
	first, err := c.firstMinor()
	if err != nil {
		return live{}, err
	}
	found, err := indexes(nodes, first, count)
	if err != nil {
		return live{}, fmt.Errorf("GPU %s in mode %s: %w", c.pciAddress, mode, err)
	}
	for i, index := range found {
		l.partitions[index].node = &nodes[i]
	}
	return l, nil
}

// look reads the topology, if it has changed, and what the GPU is by it. What
// does not fit together is looked at anew: somebody may just have switched the
// GPU.
func (c *gpuHandle) look() (live, error) {
	top, err := c.driver.recentTopology(c.task)
	if err != nil {
		return live{}, err
	}
	if l, err := c.live(top); err == nil && len(l.missing()) == 0 {
		return l, nil
	}
	return c.fresh()
}

// firstMinor is the number of the GPU's own render node, which is also that of
// its first partition.
func (c *gpuHandle) firstMinor() (int, error) {
	names, err := c.list(c.file("drm"))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if minor, ok := renderMinor(name); ok {
			return minor, nil
		}
	}
	return 0, fmt.Errorf("GPU %s: it has no render node in %s", c.pciAddress, c.file("drm"))
}

// renderMinor is the number in "renderD128".
func renderMinor(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "renderD")
	minor, err := strconv.Atoi(digits)
	return minor, ok && err == nil && minor >= 0
}

func renderName(minor int) string { return "renderD" + strconv.Itoa(minor) }

// platformDir has a device for each partition but the first of each GPU, as many
// as the finest mode has, whatever the mode is now.
const platformDir = "/sys/devices/platform"

// checkMinor makes sure that a render node is one of amdgpu's: the GPU's own or
// that of a partition device. Drivers name these amdgpu_xcp_8 or amdgpu_xcp.8
// (https://github.com/ROCm/k8s-device-plugin/issues/157).
func (c *gpuHandle) checkMinor(p partition) error {
	node := path.Join("drm", renderName(p.node.minor))
	c.driver.mu.Lock()
	last := c.driver.places[p.node.minor]
	c.driver.mu.Unlock()
	places := []string{last, c.file("")}
	if last == "" {
		places = places[1:]
	}
	for _, place := range places {
		if _, err := c.stat(path.Join(place, node)); !absent(err) {
			return err
		}
	}
	names, err := c.list(platformDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "amdgpu_xcp") {
			continue
		}
		place := path.Join(platformDir, name)
		if _, err := c.stat(path.Join(place, node)); !absent(err) {
			if err == nil {
				c.learn(func() { c.driver.places[p.node.minor] = place })
			}
			return err
		}
	}
	return fmt.Errorf("GPU %s: KFD node %d names %s, which is none of amdgpu's render nodes", c.pciAddress, p.node.number, renderName(p.node.minor))
}

// Live lists the partitions of the mode that the GPU is in, none for a GPU in
// SPX. Those without a KFD node are incomplete. See hardware.Partitioner.
func (d *Driver) Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	return onGPU(ctx, d, pciAddress, func(c *gpuHandle) ([]gpu.Partition, error) {
		l, err := c.look()
		if err != nil || l.mode == "" || l.mode == xcp.SPX {
			return nil, err
		}
		parts := make([]gpu.Partition, len(l.partitions))
		for i, p := range l.partitions {
			parts[i] = c.partition(l.mode, p)
		}
		return parts, nil
	})
}

func (c *gpuHandle) partition(mode xcp.Mode, p partition) gpu.Partition {
	out := gpu.Partition{GPU: c.pciAddress, Type: gpu.TypeXCP, Profile: mode.Profile(), Start: p.index, ID: "no KFD node"}
	if p.node != nil {
		out.Complete, out.ID = true, renderName(p.node.minor)
	}
	return out
}
