package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// memoryModes returns the memory modes that GPUs have to change to, by vendor. All GPUs of
// a vendor change together, because the driver is reloaded.
func (changes *Changes) memoryModes(gpus []NodeGPU) map[gpu.Vendor]string {
	modes := map[gpu.Vendor]string{}
	for _, v := range Vendors(gpus) {
		modes[v] = changes.memoryMode(slices.DeleteFunc(slices.Clone(gpus), func(g NodeGPU) bool { return g.Vendor != v }))
	}
	return modes
}

// memoryMode returns the memory mode that the GPUs of one vendor have to change to; empty:
// it does not change.
func (changes *Changes) memoryMode(gpus []NodeGPU) string {
	want := changes.desiredMemory(gpus)
	if want == "" {
		return ""
	}
	change := false
	for i := range gpus {
		c := differ{NodeGPU: &gpus[i], changes: changes}
		switch m := c.Modes; {
		case m.Memory == "" && c.To.Memory != "":
			c.refuse("knows no memory modes, so it cannot be put into %s", want)
		case m.Memory == "", m.Memory == want:
		case !slices.Contains(m.Memories, want):
			c.refuse("cannot be put into memory mode %s, it has %s", want, modeList(m.Memories))
		case c.Unchanged:
			c.refuse("is to stay unchanged, but memory mode %s is for all GPUs of a node", want)
		default:
			change = true
		}
	}
	if !change {
		return ""
	}
	return want
}

// desiredMemory returns the memory mode that a layout sets, otherwise the previous one.
func (changes *Changes) desiredMemory(gpus []NodeGPU) string {
	var asks *NodeGPU
	before := ""
	for i := range gpus {
		g := &gpus[i]
		if before == "" {
			before = g.Before.Memory
		}
		switch {
		case g.To.Memory == "":
		case asks == nil:
			asks = g
		case asks.To.Memory != g.To.Memory:
			p := differ{NodeGPU: g, changes: changes}
			p.refuse("is to be in memory mode %s and GPU %s in %s, but all GPUs of a node share theirs", g.To.Memory, asks.Name(), asks.To.Memory)
		}
	}
	if asks == nil {
		return before
	}
	return asks.To.Memory
}

// diffModes computes the changes of a GPU whose partitions follow its modes. A GPU without modes can
// only be whole.
func (c *differ) diffModes() {
	m, want := c.Modes, c.To.Compute
	if c.memory != "" {
		c.mustLeave(everything)
		c.step(OpMemory, c.memory)
	}
	if want == "" {
		return
	}
	offers := m.Computes
	if c.memory != "" {
		offers = m.Legal[c.memory]
	}
	switch {
	case m.Compute == "" && OfMode(gpu.Placement{Profile: want}, "spx"):
		// A GPU that cannot be partitioned is whole.
	case m.Compute == "":
		c.refuse("cannot be partitioned, so it cannot be put into compute mode %s", want)
	case len(offers) > 0 && !slices.Contains(offers, want):
		memory := c.memory
		if memory == "" {
			memory = m.Memory
		}
		c.refuse("cannot be put into compute mode %s: in memory mode %s it has %s", want, memory, modeList(offers))
	case c.memory != "":
		// The reloaded driver may start in any mode.
		c.step(OpCompute, want)
	case m.Compute != want:
		c.mustLeave(func(p gpu.Placement) bool { return !OfMode(p, want) })
		c.step(OpCompute, want)
		c.stays = func(p gpu.Placement) bool { return OfMode(p, want) }
	}
}

// OfMode reports whether a placement exists in a compute mode. A whole GPU is in SPX.
func OfMode(p gpu.Placement, mode string) bool { return strings.EqualFold(p.Profile, mode) }

func modeList(modes []string) string {
	if len(modes) == 0 {
		return "no other"
	}
	return strings.Join(modes, ", ")
}
