package sysfs

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Partition is a piece of a GPU that the live mode has.
type Partition struct {
	Index int
	// Node is nil when KFD has none: nothing can run there.
	Node *Node
}

// Live is the mode that a GPU is in, and its partitions.
type Live struct {
	Mode xcp.Mode
	// Partitions are those that the mode should have, by their index. The whole
	// GPU is one, in SPX and where there are no modes.
	Partitions []Partition
}

// Nodes are the nodes that KFD has for the GPU, in the order of the partitions.
func (l Live) Nodes() []Node {
	var out []Node
	for _, p := range l.Partitions {
		if p.Node != nil {
			out = append(out, *p.Node)
		}
	}
	return out
}

// Missing are the indexes of the partitions that KFD does not have.
func (l Live) Missing() []int {
	var out []int
	for _, p := range l.Partitions {
		if p.Node == nil {
			out = append(out, p.Index)
		}
	}
	return out
}

// GPUIDs are KFD's ids of the nodes.
func (l Live) GPUIDs() []string {
	return lists.Map(l.Nodes(), func(n Node) string { return n.GPUID })
}

// live looks what the GPU is, by a topology.
func (c *GPU) live(top *Topology) (Live, error) {
	mode, err := c.ComputeMode()
	if err != nil {
		return Live{}, err
	}
	a, err := ParseAddress(c.PCIAddress)
	if err != nil {
		return Live{}, err
	}
	nodes := top.Of(a)
	l := Live{Mode: mode}
	count := 1
	if mode != "" && mode != xcp.SPX {
		xccs, err := c.xccs(mode, nodes)
		if err != nil {
			return Live{}, err
		}
		if count = mode.Count(xccs); count == 0 {
			return Live{}, fmt.Errorf("GPU %s: it is in mode %s, which a chip of %d XCCs does not have", c.PCIAddress, mode, xccs)
		}
	}
	for i := range count {
		l.Partitions = append(l.Partitions, Partition{Index: i})
	}
	if len(nodes) == 0 {
		return l, nil
	}
	first, err := c.firstMinor()
	if err != nil {
		return Live{}, err
	}
	found, err := Indexes(nodes, first, count)
	if err != nil {
		return Live{}, fmt.Errorf("GPU %s in mode %s: %w", c.PCIAddress, mode, err)
	}
	for i, index := range found {
		l.Partitions[index].Node = &nodes[i]
	}
	return l, nil
}

// Look reads which partitions the GPU has now. It reads the topology again only if that
// has changed, or does not fit the GPU: its mode may just have been switched.
func (c *GPU) Look() (Live, error) {
	top, err := c.machine.recentTopology(c.Task)
	if err != nil {
		return Live{}, err
	}
	if l, err := c.live(top); err == nil && len(l.Missing()) == 0 {
		return l, nil
	}
	return c.fresh()
}

// Confirmed is Look that also reads the GPU's own nodes again.
func (c *GPU) Confirmed() (Live, error) {
	l, err := c.Look()
	if err != nil {
		return l, err
	}
	for _, p := range l.Partitions {
		if p.Node == nil {
			continue
		}
		again, _, err := ReadNode(c.Task, p.Node.Number)
		if err != nil && !Absent(err) {
			return l, err
		}
		if again != *p.Node { // also if it is gone
			return c.fresh()
		}
	}
	return l, nil
}

// fresh is what the GPU is by a topology that was read just now.
func (c *GPU) fresh() (Live, error) {
	top, err := c.machine.readTopology(c.Task)
	if err != nil {
		return Live{}, err
	}
	return c.live(top)
}

// firstMinor is the number of the GPU's own render node, which is also that of
// its first partition.
func (c *GPU) firstMinor() (int, error) {
	names, err := c.List(c.File("drm"))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if minor, ok := RenderMinor(name); ok {
			return minor, nil
		}
	}
	return 0, fmt.Errorf("GPU %s: it has no render node in %s", c.PCIAddress, c.File("drm"))
}

// CheckMinor makes sure that a render node is one of amdgpu's: the GPU's own or
// that of a partition device. Drivers name these amdgpu_xcp_8 or amdgpu_xcp.8
// (https://github.com/ROCm/k8s-device-plugin/issues/157).
func (c *GPU) CheckMinor(p Partition) error {
	node := path.Join("drm", RenderName(p.Node.Minor))
	if _, err := c.Stat(c.File(node)); !Absent(err) {
		return err
	}
	names, err := c.List(PlatformDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "amdgpu_xcp") {
			continue
		}
		if _, err := c.Stat(path.Join(PlatformDir, name, node)); !Absent(err) {
			return err
		}
	}
	return fmt.Errorf("GPU %s: KFD node %d names %s, which is none of amdgpu's render nodes", c.PCIAddress, p.Node.Number, RenderName(p.Node.Minor))
}

// Live lists the partitions of the mode that the GPU is in, none for a GPU in
// SPX. Those without a KFD node are incomplete. See hardware.Driver.
func (m *Machine) Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	return OnGPU(ctx, m, pciAddress, func(c *GPU) ([]gpu.Partition, error) {
		l, err := c.Look()
		if err != nil || l.Mode == "" || l.Mode == xcp.SPX {
			return nil, err
		}
		return lists.Map(l.Partitions, func(p Partition) gpu.Partition { return c.Partition(l.Mode, p) }), nil
	})
}

// Partition is a partition of a compute mode in the words of pkg/gpu.
func (c *GPU) Partition(mode xcp.Mode, p Partition) gpu.Partition {
	out := gpu.Partition{GPU: c.PCIAddress, Type: gpu.TypeXCP, Profile: mode.Profile(), Start: p.Index, ID: "no KFD node"}
	if p.Node != nil {
		out.Complete, out.ID = true, RenderName(p.Node.Minor)
	}
	return out
}
