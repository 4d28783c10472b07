package xcp

import (
	"slices"
	"strings"
)

// Mode is a compute mode of a GPU, as its driver spells it. It says into how
// many partitions all accelerator complexes (XCCs) of the GPU are divided.
type Mode string

// The compute modes: one, two, three or four partitions, or one for each XCC.
const (
	SPX Mode = "SPX"
	DPX Mode = "DPX"
	TPX Mode = "TPX"
	QPX Mode = "QPX"
	CPX Mode = "CPX"
)

// modes is every mode, finest first.
var modes = []Mode{CPX, QPX, TPX, DPX, SPX}

// MemoryMode is how a GPU's memory is interleaved, as its driver spells it:
// over the whole GPU, or over each of several regions.
type MemoryMode string

// The memory modes.
const (
	NPS1 MemoryMode = "NPS1"
	NPS2 MemoryMode = "NPS2"
	NPS4 MemoryMode = "NPS4"
	NPS8 MemoryMode = "NPS8"
)

var memoryModes = []MemoryMode{NPS1, NPS2, NPS4, NPS8}

// gfx950 is the generation whose finer modes go with two memory regions (GC 9.5.0
// in the kernel).
const gfx950 = 90500

// ParseModes reads a list like that of available_compute_partition,
// "SPX, DPX, QPX, CPX\n", in its order. Words that it does not know are left
// out: a mode of the future cannot be published, and "UNKNOWN" is none.
func ParseModes(text string) []Mode { return known(text, modes) }

// ParseMemoryModes reads a list like that of available_memory_partition,
// "NPS1, NPS4\n", in the same way.
func ParseMemoryModes(text string) []MemoryMode { return known(text, memoryModes) }

// known lists the words of a text that are among all, each once.
func known[T ~string](text string, all []T) []T {
	var found []T
	separator := func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }
	for _, word := range strings.FieldsFunc(text, separator) {
		if w := T(strings.ToUpper(word)); slices.Contains(all, w) && !slices.Contains(found, w) {
			found = append(found, w)
		}
	}
	return found
}

// Profile is the mode's name as a profile: "cpx".
func (m Mode) Profile() string { return strings.ToLower(string(m)) }

// ModeOf is the mode of a profile: that of "cpx" is CPX.
func ModeOf(profile string) (Mode, bool) {
	for _, m := range modes {
		if m.Profile() == profile {
			return m, true
		}
	}
	return "", false
}

// Names are the names of compute modes as drivers spell them, the whole GPU first.
func Names(of []Mode) []string {
	var names []string
	for _, m := range slices.Backward(modes) {
		if slices.Contains(of, m) {
			names = append(names, string(m))
		}
	}
	return names
}

// Named are the modes of these names, as drivers spell them, each once.
func Named(names ...string) []Mode { return known(strings.Join(names, ","), modes) }

// Count is the number of partitions of a GPU with so many XCCs in this mode,
// zero when such a chip cannot be in it. A mode must divide the XCCs evenly, and
// one that would leave a single XCC to each partition is CPX and no other. The
// numbers are those of amdgpu (__aqua_vanjaram_is_valid_mode in
// drivers/gpu/drm/amd/amdgpu/aqua_vanjaram.c).
func (m Mode) Count(xccs int) int {
	switch {
	case m == SPX && xccs >= 1:
		return 1
	case m == DPX && xccs >= 4 && xccs%4 == 0:
		return 2
	case m == TPX && xccs >= 6 && xccs%3 == 0:
		return 3
	case m == QPX && xccs >= 8 && xccs%4 == 0:
		return 4
	case m == CPX && xccs >= 2:
		return xccs
	}
	return 0
}

// Regions is the number of regions into which the mode divides the memory, zero
// for a word that is no memory mode.
func (m MemoryMode) Regions() int {
	switch m {
	case NPS1:
		return 1
	case NPS2:
		return 2
	case NPS4:
		return 4
	case NPS8:
		return 8
	}
	return 0
}

// Chip is what decides which modes a GPU can be in.
type Chip struct {
	XCCs int
	// GFX is the gfx_target_version of its KFD nodes: 90402 is gfx942, 90500 is
	// gfx950.
	GFX int
	// VF is true when a hypervisor gave us a part of the GPU, or all of it.
	VF bool
	// MemoryModes are those that the GPU can be in. A GPU that does not report them can
	// be in the one that it is in.
	MemoryModes []MemoryMode
}

// Legal lists the compute modes that the kernel allows under a memory mode,
// finest first. The driver's own list is better where there is one: the rule has
// changed with versions.
func Legal(c Chip, memory MemoryMode) []Mode {
	if len(c.MemoryModes) > 0 && !slices.Contains(c.MemoryModes, memory) {
		return nil
	}
	var legal []Mode
	for _, m := range modes {
		n := m.Count(c.XCCs)
		if n == 0 || !slices.Contains(m.memoryModes(c), memory) {
			continue
		}
		if m == CPX && n%memory.Regions() != 0 {
			continue // an XCC would have parts of two regions
		}
		legal = append(legal, m)
	}
	return legal
}

// memoryModes are those that go with a mode (__aqua_vanjaram_get_px_mode_info in
// aqua_vanjaram.c). For some months of 2025 the kernel let every virtual function
// be in CPX with two regions.
func (m Mode) memoryModes(c Chip) []MemoryMode {
	switch m {
	case SPX:
		return []MemoryMode{NPS1}
	case DPX:
		return []MemoryMode{NPS1, NPS2}
	case QPX:
		if c.GFX == gfx950 {
			return []MemoryMode{NPS1, NPS2, NPS4}
		}
	case CPX:
		if c.GFX == gfx950 || c.VF {
			return []MemoryMode{NPS1, NPS2, NPS4}
		}
	}
	return []MemoryMode{NPS1, NPS4}
}
