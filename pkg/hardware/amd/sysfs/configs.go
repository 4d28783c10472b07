package sysfs

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// configs is what the driver says about the modes of a GPU.
type configs struct {
	// xccs is the number of XCCs of the whole GPU, zero when the driver does not
	// tell.
	xccs int
	// engines are the media engines of one partition of each mode.
	engines map[xcp.Mode]map[string]int64
	// memory are the memory modes that go with each mode, none of a mode for which
	// the driver does not report it.
	memory map[xcp.Mode][]xcp.MemoryMode
}

// under are the compute modes that go with a memory mode.
func (c configs) under(memory xcp.MemoryMode) []xcp.Mode {
	var modes []xcp.Mode
	for mode, goes := range c.memory {
		if slices.Contains(goes, memory) {
			modes = append(modes, mode)
		}
	}
	return modes
}

// configs is what the driver says about the modes of the GPU. Since it takes a write for each mode, it
// is read once for each load of the driver and memory mode. If it cannot be read, it is empty and read
// again the next time.
func (c *GPU) configs(s *capacity) configs {
	c.machine.mu.Lock()
	known := s.configs
	c.machine.mu.Unlock()
	if known != nil {
		return *known
	}
	out, err := c.readConfigs()
	if err != nil {
		// Other files have the same, except for the media engines.
		c.machine.logger.V(1).Info("What amdgpu says about the modes of a GPU cannot be read", "gpu", c.PCIAddress, "reason", err.Error())
		return out
	}
	c.learn(func() { s.configs = &out })
	return out
}

// readConfigs has the driver describe each mode, and puts the selector back.
func (c *GPU) readConfigs() (configs, error) {
	out := configs{engines: map[xcp.Mode]map[string]int64{}, memory: map[xcp.Mode][]xcp.MemoryMode{}}
	text, err := c.ReadOptional(c.File(ConfigModes))
	if err != nil || text == "" {
		return out, err
	}
	before, err := c.Read(c.File(SelectorFile))
	if err != nil {
		return configs{}, err
	}
	now := before
	for _, mode := range xcp.ParseModes(text) {
		if now != string(mode) {
			if err := c.Write(c.File(SelectorFile), string(mode)); err != nil {
				return configs{}, err
			}
			now = string(mode)
		}
		if err := c.readConfig(&out, mode); err != nil {
			return configs{}, err
		}
	}
	if now != before && len(xcp.ParseModes(before)) == 1 {
		err = c.Write(c.File(SelectorFile), before)
	}
	return out, err
}

// engineNames are the media engines by their folder.
var engineNames = map[string]string{"dec": "decoders", "jpeg": "jpegEngines"}

// readConfig reads the resources of one partition of the selected mode.
func (c *GPU) readConfig(out *configs, mode xcp.Mode) error {
	// The modes with a fixed number of partitions tell the XCCs of the GPU.
	xccs, _, err := c.resource("xcc")
	if err != nil {
		return err
	}
	if n := partitionsOf(mode); n > 0 && xccs > 0 {
		out.xccs = xccs * n
	}
	engines := map[string]int64{}
	for dir, name := range engineNames {
		n, shared, err := c.resource(dir)
		if err != nil {
			return err
		}
		// An engine that several partitions share is not published.
		if n > 0 && shared <= 1 {
			engines[name] = int64(n)
		}
	}
	out.engines[mode] = engines
	text, err := c.ReadOptional(c.File(ConfigMemory))
	if modes := xcp.ParseMemoryModes(text); len(modes) > 0 {
		out.memory[mode] = modes
	}
	return err
}

// resource is how many engines of a kind a partition has, and how many
// partitions have the same ones.
func (c *GPU) resource(kind string) (n, shared int, err error) {
	for name, value := range map[string]*int{"num_inst": &n, "num_shared": &shared} {
		file := c.File(path.Join(ConfigDir, kind, name))
		text, err := c.ReadOptional(file)
		if err != nil {
			return 0, 0, err
		}
		if text == "" {
			continue
		}
		if *value, err = strconv.Atoi(text); err != nil || *value < 0 {
			return 0, 0, fmt.Errorf("GPU %s: %s says %q, which is not a number of engines", c.PCIAddress, file, text)
		}
	}
	return n, shared, nil
}
