package sysfs

import (
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

func (c *GPU) describe() (gpu.GPU, error) {
	g := gpu.GPU{PCIAddress: c.PCIAddress, Vendor: gpu.AMD, UntestedLimits: true}
	l, err := c.Look()
	if err != nil {
		return g, err
	}
	nodes := l.Nodes()
	if len(nodes) == 0 {
		return g, c.WithoutKFD()
	}
	g.Architecture = nodes[0].Architecture()
	if g.Minor, err = c.firstMinor(); err != nil {
		return g, err
	}
	if g.DriverVersion, err = c.ReadOptional(path.Join(ModuleDir, "version")); err != nil {
		return g, err
	}
	if err := c.name(&g); err != nil {
		return g, err
	}
	c.locate(&g)
	if g.PCIID, err = c.pciID("device", "vendor"); err != nil {
		return g, err
	}
	if g.PCISubsystemID, err = c.pciID("subsystem_device", "subsystem_vendor"); err != nil {
		return g, err
	}
	facts, err := c.facts(l)
	if err != nil {
		return g, err
	}
	g.Memory, g.MemoryMode = facts.Memory, string(facts.MemoryMode)
	if l.Mode != "" {
		if g.Modes, err = c.modesByMemory(facts.MemoryMode, facts.Modes, l); err != nil {
			return g, err
		}
	}
	for _, names := range g.Modes {
		facts.Elsewhere = append(facts.Elsewhere, xcp.Named(names...)...)
	}
	g.ComputeUnits = facts.ComputeUnits
	g.Placements, g.Counters = xcp.Devices(facts)
	g.Partitionable = facts.Partitionable()
	return g, nil
}

// pciID is what two files of the GPU say it is to the PCI bus, empty where there
// are none.
func (c *GPU) pciID(device, vendor string) (string, error) {
	var numbers [2]uint16
	for i, name := range []string{device, vendor} {
		text, err := c.ReadOptional(c.File(name))
		if err != nil {
			return "", c.Explain(err)
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 16)
		if err != nil {
			return "", nil //nolint:nilerr // a machine that does not say is no error
		}
		numbers[i] = uint16(n)
	}
	return gpu.PCIIDOf(numbers[0], numbers[1]), nil
}

// device is the PCI device id, zero when the machine does not report it.
func (c *GPU) device() (uint16, error) {
	text, err := c.ReadOptional(c.File(DeviceFile))
	if err != nil {
		return 0, err
	}
	id, _ := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 16)
	return uint16(id), nil
}

// name says what the GPU calls itself.
func (c *GPU) name(g *gpu.GPU) error {
	var err error
	if g.UUID, err = c.UUID(); err != nil {
		return err
	}
	if g.ProductName, err = c.ReadOptional(c.File("product_name")); err != nil || g.ProductName != "" {
		return err
	}
	device, err := c.device()
	if product, vf, ok := xcp.ProductOf(device); ok {
		g.ProductName = product.FullName(vf)
	}
	return err
}

// UUID is "GPU-" and the 16 hexadecimal digits of the GPU's unique_id, as rocminfo prints it.
// It is empty for GPUs without a unique_id.
func (c *GPU) UUID() (string, error) {
	text, err := c.ReadOptional(c.File("unique_id"))
	if err != nil {
		return "", c.Explain(err)
	}
	id, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil || id == 0 {
		return "", nil //nolint:nilerr // a GPU without a number, or with one that says nothing
	}
	return fmt.Sprintf("GPU-%016x", id), nil
}

// locate reads the NUMA node and the PCIe root of the GPU. They stay empty where the machine
// does not report them.
func (c *GPU) locate(g *gpu.GPU) {
	if text, err := c.Read(c.File("numa_node")); err == nil {
		// -1 says that there is none.
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			g.NUMANode = &n
		}
	}
	place, err := c.RealPath(c.File(""))
	if err != nil {
		return
	}
	for _, part := range strings.Split(place, "/") {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") {
			g.PCIeRoot = part
			return
		}
	}
}

// facts collects the facts that the GPU's placements follow from.
func (c *GPU) facts(l Live) (xcp.Facts, error) {
	f := xcp.Facts{PCIAddress: c.PCIAddress}
	s, err := c.capacity()
	if err != nil {
		return f, err
	}
	nodes := l.Nodes()
	if f.XCCs, err = c.xccs(l.Mode, nodes); err != nil {
		return f, err
	}
	f.ComputeUnits = nodes[0].ComputeUnits * int64(len(l.Partitions))
	if f.Memory, err = c.memory(s, l); err != nil {
		return f, err
	}
	if l.Mode == "" {
		return f, nil // a GPU that cannot be partitioned
	}
	f.MemoryMode = s.memory
	if f.Modes, err = c.ComputeModes(l.Mode, s.memory, nodes); err != nil {
		return f, err
	}
	f.Engines = c.configs(s).engines
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	f.Seen = maps.Clone(s.seen)
	return f, nil
}

// Placements are the GPU's, as Inventory last reported them.
func (c *GPU) Placements() ([]gpu.Placement, error) {
	if known, ok := c.machine.Known(c.PCIAddress); ok {
		return known.Placements, nil
	}
	g, err := c.describe()
	return g.Placements, err
}
