package models

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// UniqueID is the number of the AMD GPU with an index: another on every
// machine, by the seed, and always the same on one.
func (inv *Inventory) UniqueID(seed string, index int) uint64 {
	sum := sha1.Sum(fmt.Appendf(nil, "tranche simulated hardware %s/%s/%d", seed, inv.AMD[index].Model.Key, index))
	return binary.BigEndian.Uint64(sum[:])
}

// amdGPUs are the GPUs as pkg/hardware/amd tells them.
func (inv *Inventory) amdGPUs(seed string) []gpu.GPU {
	gpus, links := make([]gpu.GPU, len(inv.AMD)), map[string]gpu.Links{}
	for i := range inv.AMD {
		c := &inv.AMD[i]
		gpus[i] = gpu.GPU{
			PCIAddress:     c.PCI,
			Vendor:         gpu.AMD,
			UntestedLimits: true,
			Index:          i,
			Minor:          inv.RenderMinor(i),
			UUID:           fmt.Sprintf("GPU-%016x", inv.UniqueID(seed, i)),
			ProductName:    c.Model.ProductName,
			PCIID:          gpu.PCIIDOf(uint16(c.Model.PCIDevice(c.VF)), amdVendor), //nolint:gosec // has 16 bits
			// AMD's boards bear the number of the chip.
			PCISubsystemID: gpu.PCIIDOf(uint16(c.Model.PCIDevice(c.VF)), amdVendor), //nolint:gosec // has 16 bits
			Architecture:   c.Model.Architecture(),
			DriverVersion:  inv.AMDDriver.Version,
			MemoryMode:     string(c.MemoryMode),
			Modes:          c.modesByMemory(),
			Memory:         c.Model.Memory(),
			ComputeUnits:   int64(c.Model.ComputeUnits),
			PCIeRoot:       PCIeRoot(c.PCI),
			NUMANode:       numaNode(c.NUMANode),
		}
		gpus[i].Placements, gpus[i].Counters = xcp.Devices(c.facts())
		gpus[i].Partitionable = c.facts().Partitionable()
		if hive := inv.Hive(seed, i); hive != 0 {
			links[c.PCI] = gpu.Links{Fabric: fmt.Sprintf("xgmi-%016x", hive)}
		}
	}
	gpu.SetLinkGroups(gpus, links)
	return gpus
}

// Hive is the number of the XGMI hive of the AMD GPU with an index; zero: it is in none.
func (inv *Inventory) Hive(seed string, index int) uint64 {
	model := inv.AMD[index].Model
	if !model.XGMI {
		return 0
	}
	sum := sha1.Sum(fmt.Appendf(nil, "tranche simulated hive %s/%s", seed, model.Key))
	return binary.BigEndian.Uint64(sum[:])
}

// facts is what decides what the GPU offers.
func (c *AMDGPU) facts() xcp.Facts {
	var elsewhere []xcp.Mode
	for _, names := range c.modesByMemory() {
		elsewhere = append(elsewhere, xcp.Named(names...)...)
	}
	return xcp.Facts{
		PCIAddress:   c.PCI,
		XCCs:         c.Model.XCCs,
		ComputeUnits: int64(c.Model.ComputeUnits),
		Memory:       c.Model.Memory(),
		MemoryMode:   c.MemoryMode,
		Modes:        c.modes(),
		Elsewhere:    elsewhere,
		Engines:      c.engines(),
	}
}

// engines are the media engines of a partition of each mode. Of those that
// partitions share, none is promised. A virtual function does not report it.
func (c *AMDGPU) engines() map[xcp.Mode]map[string]int64 {
	if c.VF {
		return nil
	}
	all := map[xcp.Mode]map[string]int64{}
	for _, mode := range c.Model.Modes() {
		all[mode] = map[string]int64{}
		for kind, name := range map[string]string{"dec": mig.Decoders, "jpeg": mig.JPEGEngines} {
			if r := c.Model.Resources(mode)[kind]; r.SharedBy == 1 {
				all[mode][name] = int64(r.Instances)
			}
		}
	}
	return all
}

func (c *AMDGPU) modes() []xcp.Mode {
	switch {
	case !c.Model.HasPartitions():
		return nil
	case c.VF:
		return []xcp.Mode{c.ComputeMode}
	}
	return xcp.Legal(c.Model.Chip(false), c.MemoryMode)
}

// amdVendor is AMD's number on the PCI bus.
const amdVendor = 0x1002

// modesByMemory are the memory modes that the GPU can be put into, with the
// compute modes that go with each.
func (c *AMDGPU) modesByMemory() map[string][]string {
	if !c.Model.HasPartitions() {
		return nil
	}
	if c.VF {
		return map[string][]string{string(c.MemoryMode): xcp.Names(c.modes())}
	}
	all := map[string][]string{}
	for _, memory := range c.Model.MemoryModes {
		all[string(memory)] = xcp.Names(xcp.Legal(c.Model.Chip(false), memory))
	}
	return all
}

// numaNode is nil where the machine has none.
func numaNode(node int) *int64 {
	if node < 0 {
		return nil
	}
	return new(int64(node))
}
