package sysfs

import (
	"context"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Modes reads how a GPU is set, and what it can be set to. It is empty for a GPU
// that cannot be cut; for one that amdgpu does not drive, whose files are gone, too, it
// fails with a *HealthError.
func (m *Machine) Modes(ctx context.Context, pciAddress string) (gpu.Modes, error) {
	return OnGPU(ctx, m, pciAddress, (*GPU).readModes)
}

func (c *GPU) readModes() (gpu.Modes, error) {
	if err := c.CheckBound(); err != nil {
		return gpu.Modes{}, err
	}
	l, err := c.Look()
	if err != nil || l.Mode == "" {
		return gpu.Modes{}, err
	}
	memory, err := c.MemoryMode()
	if err != nil {
		return gpu.Modes{}, err
	}
	computes, err := c.ComputeModes(l.Mode, memory, l.Nodes())
	if err != nil {
		return gpu.Modes{}, err
	}
	memories, err := c.MemoryModes(memory)
	if err != nil {
		return gpu.Modes{}, err
	}
	legal, err := c.modesByMemory(memory, computes, l)
	if err != nil {
		return gpu.Modes{}, err
	}
	return gpu.Modes{
		Compute: string(l.Mode), Computes: xcp.Names(computes),
		Memory: string(memory), Memories: Texts(memories), Legal: legal,
	}, nil
}

// ComputeMode is the compute mode that the GPU is in, empty for a GPU that has none.
func (c *GPU) ComputeMode() (xcp.Mode, error) {
	text, err := c.ReadOptional(c.File(ComputeFile))
	if err != nil || text == "" {
		return "", c.Explain(err)
	}
	modes := xcp.ParseModes(text)
	if len(modes) != 1 {
		return "", fmt.Errorf("GPU %s: amdgpu says that the compute mode is %q, which is none", c.PCIAddress, text)
	}
	return modes[0], nil
}

// MemoryMode is the memory mode that the GPU is in. Drivers without the file
// know no other than NPS1.
func (c *GPU) MemoryMode() (xcp.MemoryMode, error) {
	text, err := c.ReadOptional(c.File(MemoryFile))
	if err != nil {
		return "", c.Explain(err)
	}
	if text == "" {
		return xcp.NPS1, nil
	}
	if modes := xcp.ParseMemoryModes(text); len(modes) == 1 {
		return modes[0], nil
	}
	return "", fmt.Errorf("GPU %s: amdgpu says that the memory mode is %q, which is none", c.PCIAddress, text)
}

// ComputeModes are the compute modes that the GPU can be put into in its memory mode. A
// virtual function has one: its hypervisor partitions the GPU.
func (c *GPU) ComputeModes(now xcp.Mode, memory xcp.MemoryMode, nodes []Node) ([]xcp.Mode, error) {
	switchable, err := c.switchable()
	if err != nil {
		return nil, err
	}
	if !switchable {
		return []xcp.Mode{now}, nil
	}
	text, err := c.ReadOptional(c.File(AvailableComputeFile))
	if err != nil {
		return nil, c.Explain(err)
	}
	if text != "" {
		return xcp.ParseModes(text), nil
	}
	return c.legalModes(now, memory, nodes)
}

func (c *GPU) switchable() (bool, error) {
	device, err := c.device()
	if _, vf, _ := xcp.ProductOf(device); err != nil || vf {
		return false, err
	}
	info, err := c.Stat(c.File(ComputeFile))
	return err == nil && info.Mode&0o222 != 0, err
}

// legalModes is the kernel's rule, for drivers that do not list the modes.
func (c *GPU) legalModes(now xcp.Mode, memory xcp.MemoryMode, nodes []Node) ([]xcp.Mode, error) {
	xccs, err := c.xccs(now, nodes)
	if err != nil {
		return nil, err
	}
	text, err := c.ReadOptional(c.File(AvailableMemoryFile))
	if err != nil {
		return nil, c.Explain(err)
	}
	rule := xcp.Chip{XCCs: xccs, MemoryModes: xcp.ParseMemoryModes(text)}
	if len(nodes) > 0 {
		rule.GFX = nodes[0].GFX
	}
	modes := xcp.Legal(rule, memory)
	if !slices.Contains(modes, now) {
		modes = append(modes, now)
	}
	return modes, nil
}

// modesByMemory are the memory modes that the GPU can be put into, with the compute
// modes that go with each: of the one that it is in as the driver lists them, of the
// others as it describes them, or by the kernel's rule where it does not.
func (c *GPU) modesByMemory(memory xcp.MemoryMode, computes []xcp.Mode, l Live) (map[string][]string, error) {
	memories, err := c.MemoryModes(memory)
	if err != nil {
		return nil, err
	}
	s, err := c.capacity()
	if err != nil {
		return nil, err
	}
	told, nodes := c.configs(s), l.Nodes()
	rule := xcp.Chip{MemoryModes: memories}
	if rule.XCCs, err = c.xccs(l.Mode, nodes); err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		rule.GFX = nodes[0].GFX
	}
	all := map[string][]string{}
	for _, m := range memories {
		switch {
		case m == memory:
			all[string(m)] = xcp.Names(computes)
		case len(told.memory) == 0:
			all[string(m)] = xcp.Names(xcp.Legal(rule, m))
		default:
			all[string(m)] = xcp.Names(told.under(m))
		}
	}
	return all, nil
}

// MemoryModes are those that the driver can bring the GPU up in. Where it lists
// none, or takes no request, the GPU stays in the one that it is in
// (amdgpu_gmc_sysfs_init in Linux' amdgpu_gmc.c).
func (c *GPU) MemoryModes(now xcp.MemoryMode) ([]xcp.MemoryMode, error) {
	info, err := c.Stat(c.File(MemoryFile))
	if Absent(err) {
		return []xcp.MemoryMode{now}, nil
	}
	if err != nil {
		return nil, c.Explain(err)
	}
	text, err := c.ReadOptional(c.File(AvailableMemoryFile))
	if err != nil {
		return nil, c.Explain(err)
	}
	modes := xcp.ParseMemoryModes(text)
	if info.Mode&0o222 == 0 || !slices.Contains(modes, now) {
		return []xcp.MemoryMode{now}, nil
	}
	return modes, nil
}

// Texts are modes as strings.
func Texts[T ~string](words []T) []string {
	return lists.Map(words, func(w T) string { return string(w) })
}
