package amd

import (
	"cmp"
	"fmt"
	"path"
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
	// configDir describes one mode at a time, the one that is written to
	// xcp_config. Writing it switches nothing.
	configDir     = "compute_partition_config"
	selectorFile  = configDir + "/xcp_config"
	configModes   = configDir + "/supported_xcp_configs"
	deviceFile    = "device"
	vramTotalFile = "mem_info_vram_total"
)

// shape is what was learnt about a card and stays true while the driver is loaded
// and the memory mode is the same.
type shape struct {
	load   string
	memory xcp.MemoryMode
	// xccs is zero as long as nobody has told.
	xccs int
	// computeUnits is that of the whole card.
	computeUnits int64
	engines      map[xcp.Mode]map[string]int64
	// seen is the memory of the partitions of each mode that was live.
	seen map[xcp.Mode][]int64
}

// shape is what is known of the card; what the driver tells of all modes is read
// when there is nothing.
func (c *card) shape() (*shape, error) {
	load, err := c.driver.LoadID()
	if err != nil {
		return nil, err
	}
	memory, err := c.memoryMode()
	if err != nil {
		return nil, err
	}
	c.driver.mu.Lock()
	s := c.driver.shapes[c.pciAddress]
	c.driver.mu.Unlock()
	if s != nil && s.load == load && s.memory == memory {
		return s, nil
	}
	s = &shape{load: load, memory: memory, engines: map[xcp.Mode]map[string]int64{}, seen: map[xcp.Mode][]int64{}}
	if err := c.readConfigs(s); err != nil {
		// The driver says the same in other files, but for the media engines.
		c.driver.cfg.Logger.Info("What amdgpu says about the modes of a card cannot be read", "card", c.pciAddress, "reason", err.Error())
	}
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	c.driver.shapes[c.pciAddress] = s
	return s, nil
}

// memoryMode is the memory mode that the card is in. Drivers without the file
// know no other than NPS1.
func (c *card) memoryMode() (xcp.MemoryMode, error) {
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
	return "", fmt.Errorf("card %s: amdgpu says that the memory mode is %q, which is none", c.pciAddress, text)
}

// readConfigs has the driver describe each mode, and puts the selector back.
func (c *card) readConfigs(s *shape) error {
	text, err := c.optional(c.file(configModes))
	if err != nil || text == "" {
		return err
	}
	before, err := c.read(c.file(selectorFile))
	if err != nil {
		return err
	}
	now := before
	for _, mode := range xcp.ParseModes(text) {
		if now != string(mode) {
			if err := c.write(c.file(selectorFile), string(mode)); err != nil {
				return err
			}
			now = string(mode)
		}
		if err := c.readConfig(s, mode); err != nil {
			return err
		}
	}
	if now != before && len(xcp.ParseModes(before)) == 1 {
		return c.write(c.file(selectorFile), before)
	}
	return nil
}

// engineNames are the media engines by their folder.
var engineNames = map[string]string{"dec": "decoders", "jpeg": "jpegEngines"}

// readConfig takes down the resources of one partition of the selected mode.
func (c *card) readConfig(s *shape, mode xcp.Mode) error {
	// The modes with a fixed number of partitions tell the XCCs of the card.
	xccs, _, err := c.resource("xcc")
	if err != nil {
		return err
	}
	if n := partitionsOf(mode); n > 0 && xccs > 0 {
		s.xccs = xccs * n
	}
	engines := map[string]int64{}
	for dir, name := range engineNames {
		n, shared, err := c.resource(dir)
		if err != nil {
			return err
		}
		// Of an engine that several partitions share, nobody can be promised one.
		if n > 0 && shared <= 1 {
			engines[name] = int64(n)
		}
	}
	s.engines[mode] = engines
	return nil
}

// partitionsOf is the number of partitions of a mode that does not depend on the
// chip.
func partitionsOf(mode xcp.Mode) int {
	return map[xcp.Mode]int{xcp.SPX: 1, xcp.DPX: 2, xcp.TPX: 3, xcp.QPX: 4}[mode]
}

// resource is how many engines of a kind a partition has, and how many
// partitions have the same ones.
func (c *card) resource(kind string) (n, shared int, err error) {
	for name, value := range map[string]*int{"num_inst": &n, "num_shared": &shared} {
		file := c.file(path.Join(configDir, kind, name))
		text, err := c.optional(file)
		if err != nil {
			return 0, 0, err
		}
		if text == "" {
			continue
		}
		if *value, err = strconv.Atoi(text); err != nil || *value < 0 {
			return 0, 0, fmt.Errorf("card %s: %s says %q, which is no number of engines", c.pciAddress, file, text)
		}
	}
	return n, shared, nil
}

// xccs is the number of XCCs of the card, by the first who tells: the driver's
// description of the modes, KFD, the chip's own name. In CPX it is the number of
// partitions, and a KFD node may be missing.
func (c *card) xccs(mode xcp.Mode, nodes []node) (int, error) {
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
		c.learn(func() { s.xccs = nodes[0].xccs * n })
		return nodes[0].xccs * n, nil
	}
	device, err := c.device()
	if err != nil {
		return 0, err
	}
	if chip, ok := chips[device]; ok {
		return chip.xccs, nil
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

// learn changes what is known of the card.
func (c *card) learn(f func()) {
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	f()
}

// device is the PCI device id, zero when the machine does not tell.
func (c *card) device() (uint64, error) {
	text, err := c.optional(c.file(deviceFile))
	if err != nil {
		return 0, err
	}
	id, _ := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	return id, nil
}

// modes are the compute modes that the card can be in now, and whether it can be
// switched to them. A virtual function is cut by its hypervisor.
func (c *card) modes(now xcp.Mode, memory xcp.MemoryMode, nodes []node) ([]xcp.Mode, error) {
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

func (c *card) switchable() (bool, error) {
	device, err := c.device()
	if err != nil || chips[device].vf {
		return false, err
	}
	info, err := c.stat(c.file(computeFile))
	return err == nil && info.Mode&0o222 != 0, err
}

// legalModes is the kernel's rule, for drivers that do not list the modes.
func (c *card) legalModes(now xcp.Mode, memory xcp.MemoryMode, nodes []node) ([]xcp.Mode, error) {
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
