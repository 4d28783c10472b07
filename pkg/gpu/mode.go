package gpu

import (
	"errors"
	"slices"
)

// Modes is how a whole GPU is set, as far as a profile can say so. What the GPU
// does not know is empty.
type Modes struct {
	// MIG is whether an NVIDIA GPU is divided into instances.
	MIG MIGMode `json:"mig,omitempty"`
	// PendingMIG is MIG after the next reset of the GPU.
	PendingMIG MIGMode `json:"pendingMIG,omitempty"`
	// MIGNeedsReset reports whether MIG changes by a reset of the GPU only, as on
	// Ampere.
	MIGNeedsReset bool `json:"migNeedsReset,omitempty"`
	// MIGFixed says that MIG is not ours to change: in the guest of a vGPU it is the
	// hypervisor's.
	MIGFixed bool `json:"migFixed,omitempty"`
	// Compute is the compute mode of an AMD GPU in upper case ("CPX"), Computes are
	// those that it can be put into under its memory mode.
	Compute  string   `json:"computePartition,omitempty"`
	Computes []string `json:"computePartitions,omitempty"`
	// Memory is the memory mode of an AMD GPU ("NPS4"), Memories are those that it
	// has.
	Memory   string   `json:"memoryPartition,omitempty"`
	Memories []string `json:"memoryPartitions,omitempty"`
	// Legal are the compute modes that the GPU has under each of its memory modes,
	// the same as GPU.Modes.
	Legal map[string][]string `json:"legal,omitempty"`
}

// MIGMode is whether an NVIDIA GPU is divided into instances.
type MIGMode string

// The MIG modes.
const (
	MIGOn  MIGMode = "on"
	MIGOff MIGMode = "off"
)

// WithMIG is the GPU as it is, or would be, in a MIG mode. It shares its placements
// and counters with g.
func (g *GPU) WithMIG(mode MIGMode) GPU {
	other := *g
	if g.OtherMIG == nil || g.offersMIG() == (mode == MIGOn) {
		return other
	}
	other.Counters, other.Placements = g.OtherMIG.Counters, g.OtherMIG.Placements
	other.OtherMIG = &Offer{Counters: g.Counters, Placements: g.Placements}
	return other
}

func (g *GPU) offersMIG() bool {
	return slices.ContainsFunc(g.Placements, func(p Placement) bool { return p.Type == TypeMIG })
}

var (
	// ErrNeedsReset says that a GPU would change its mode by a reset that was
	// refused. The mode that was pending is put back.
	ErrNeedsReset = errors.New("the GPU needs a reset")
	// ErrModeLost says that a driver that was reloaded came up in the mode before.
	ErrModeLost = errors.New("the driver came up in the mode before")
)
