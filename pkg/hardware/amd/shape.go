package amd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// The files of amdgpu about partitions (Linux' amdgpu_gfx.c, amdgpu_gmc.c and
// amdgpu_xcp.c).
const (
	computeFile          = "current_compute_partition"
	availableComputeFile = "available_compute_partition"
	memoryFile           = "current_memory_partition"
	availableMemoryFile  = "available_memory_partition"
	deviceFile           = "device"
	vramTotalFile        = "mem_info_vram_total"
)

// shape is what was learnt about a GPU and stays true while the driver is loaded
// and the memory mode is the same.
type shape struct {
	load   string
	memory xcp.MemoryMode
	// xccs is zero as long as nobody has told.
	xccs int
	// total is the memory of the GPU, where KFD alone tells.
	total int64
	// seen is the memory of the partitions of each mode that was live.
	seen map[xcp.Mode][]int64
}

// shape is what is known of the GPU.
func (c *gpuHandle) shape() (*shape, error) {
	load, err := c.loadID()
	if err != nil {
		return nil, err
	}
	memory, err := c.memoryMode()
	if err != nil {
		return nil, err
	}
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	s := c.driver.shapes[c.pciAddress]
	if s == nil || s.load != load || s.memory != memory {
		s = &shape{load: load, memory: memory, seen: map[xcp.Mode][]int64{}}
		c.driver.shapes[c.pciAddress] = s
	}
	return s, nil
}

// memoryMode is the memory mode that the GPU is in. Drivers without the file
// know no other than NPS1.
func (c *gpuHandle) memoryMode() (xcp.MemoryMode, error) {
	text, err := c.optional(c.file(memoryFile))
	if err != nil {
		return "", c.told(err)
	}
	if text == "" {
		return xcp.NPS1, nil
	}
	if modes := xcp.ParseMemoryModes(text); len(modes) == 1 {
		return modes[0], nil
	}
	return "", fmt.Errorf("GPU %s: amdgpu says that the memory mode is %q, which is none", c.pciAddress, text)
}

// partitionsOf is the number of partitions of a mode that does not depend on the
// chip.
func partitionsOf(mode xcp.Mode) int {
	return map[xcp.Mode]int{xcp.SPX: 1, xcp.DPX: 2, xcp.TPX: 3, xcp.QPX: 4}[mode]
}

// xccs is the number of XCCs of the GPU, by the first who tells: KFD, where the
// mode has a fixed number of partitions; the chip; the driver's description of the
// modes. In CPX the number of partitions is what is asked for, and counting KFD's
// nodes would miss those that are missing.
func (c *gpuHandle) xccs(mode xcp.Mode, nodes []node) (int, error) {
	s, err := c.shape()
	if err != nil {
		return 0, err
	}
	c.driver.mu.Lock()
	known := s.xccs
	c.driver.mu.Unlock()
	if known > 0 {
		return known, nil
	}
	if n := partitionsOf(cmp.Or(mode, xcp.SPX)); n > 0 && len(nodes) > 0 {
		known = nodes[0].xccs * n
	} else if known, err = c.xccsOfChip(s); err != nil {
		return 0, err
	}
	if known > 0 {
		c.learn(func() { s.xccs = known })
		return known, nil
	}
	if len(nodes) == 0 {
		return 0, c.withoutKFD()
	}
	sum := 0
	for _, n := range nodes {
		sum += n.xccs
	}
	return sum, nil
}

func (c *gpuHandle) xccsOfChip(s *shape) (int, error) {
	device, err := c.device()
	if err != nil {
		return 0, err
	}
	if chip, ok := chips[device]; ok {
		return chip.xccs, nil
	}
	told, err := c.configs(s)
	return told.xccs, err
}

// learn changes what is known of the GPU.
func (c *gpuHandle) learn(f func()) {
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	f()
}

// device is the PCI device id, zero when the machine does not tell.
func (c *gpuHandle) device() (uint64, error) {
	text, err := c.optional(c.file(deviceFile))
	if err != nil {
		return 0, err
	}
	id, _ := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	return id, nil
}

// modes are the compute modes that the GPU can be in now, and whether it can be
// switched to them. A virtual function is cut by its hypervisor.
func (c *gpuHandle) modes(now xcp.Mode, memory xcp.MemoryMode, nodes []node) ([]xcp.Mode, error) {
	switchable, err := c.switchable()
	if err != nil {
		return nil, err
	}
	if !switchable {
		return []xcp.Mode{now}, nil
	}
	text, err := c.optional(c.file(availableComputeFile))
	if err != nil {
		return nil, c.told(err)
	}
	if text != "" {
		return xcp.ParseModes(text), nil
	}
	return c.legalModes(now, memory, nodes)
}

func (c *gpuHandle) switchable() (bool, error) {
	device, err := c.device()
	if err != nil || chips[device].vf {
		return false, err
	}
	info, err := c.stat(c.file(computeFile))
	return err == nil && info.Mode&0o222 != 0, err
}

// legalModes is the kernel's rule, for drivers that do not list the modes.
func (c *gpuHandle) legalModes(now xcp.Mode, memory xcp.MemoryMode, nodes []node) ([]xcp.Mode, error) {
	xccs, err := c.xccs(now, nodes)
	if err != nil {
		return nil, err
	}
	text, err := c.optional(c.file(availableMemoryFile))
	if err != nil {
		return nil, c.told(err)
	}
	rule := xcp.Chip{XCCs: xccs, MemoryModes: xcp.ParseMemoryModes(text)}
	if len(nodes) > 0 {
		rule.GFX = nodes[0].gfx
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
func (c *gpuHandle) modesByMemory(memory xcp.MemoryMode, computes []xcp.Mode, l live) (map[string][]string, error) {
	memories, err := c.memoryModes(memory)
	if err != nil {
		return nil, err
	}
	s, err := c.shape()
	if err != nil {
		return nil, err
	}
	told, err := c.configs(s)
	if err != nil {
		return nil, err
	}
	nodes := l.nodes()
	rule := xcp.Chip{MemoryModes: memories}
	if rule.XCCs, err = c.xccs(l.mode, nodes); err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		rule.GFX = nodes[0].gfx
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

// memoryModes are those that the driver can bring the GPU up in. Where it lists
// none, or takes no request, the GPU stays in the one that it is in
// (amdgpu_gmc_sysfs_init in Linux' amdgpu_gmc.c).
func (c *gpuHandle) memoryModes(now xcp.MemoryMode) ([]xcp.MemoryMode, error) {
	info, err := c.stat(c.file(memoryFile))
	if absent(err) {
		return []xcp.MemoryMode{now}, nil
	}
	if err != nil {
		return nil, c.told(err)
	}
	text, err := c.optional(c.file(availableMemoryFile))
	if err != nil {
		return nil, c.told(err)
	}
	modes := xcp.ParseMemoryModes(text)
	if info.Mode&0o222 == 0 || !slices.Contains(modes, now) {
		return []xcp.MemoryMode{now}, nil
	}
	return modes, nil
}
