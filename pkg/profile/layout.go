package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Layout is how a GPU is partitioned. Files on nodes contain it: the JSON keys do not
// change.
type Layout struct {
	// Partitioning says when partitions of an NVIDIA GPU are created.
	Partitioning Partitioning `json:"partitioning,omitempty"`
	// Named: a rule mentions MIG, for PartitioningDynamic. A GPU that changes its MIG mode only by a
	// reset is then in MIG mode. Otherwise its mode does not change.
	Named bool `json:"migNamed,omitempty"`
	// Profiles are the full names of the profiles that claims can have; nil: all.
	Profiles []string `json:"profiles,omitempty"`
	// NoWhole: claims cannot have the whole GPU.
	NoWhole bool `json:"noWholeGPU,omitempty"`
	// Static are the static partitions, for PartitioningStatic.
	Static []gpu.Placement `json:"static,omitempty"`
	// Compute is the compute mode of an AMD GPU ("CPX"), empty: claims decide. Memory is its
	// memory mode ("NPS4"), empty: it does not change.
	Compute string `json:"computePartition,omitempty"`
	Memory  string `json:"memoryPartition,omitempty"`
}

// Partitioning says when partitions are created. Files on nodes contain it: the values do not
// change.
type Partitioning string

// When partitions are created.
const (
	// PartitioningDynamic: when claims request them.
	PartitioningDynamic Partitioning = ""
	// PartitioningStatic: when the profile is applied. They stay when claims are released. There
	// may be none; the GPU is in MIG mode nevertheless.
	PartitioningStatic Partitioning = "Static"
	// PartitioningOff: never.
	PartitioningOff Partitioning = "Off"
)

// Offers reports whether claims can have a placement of the GPU, or a share of it.
func (s Layout) Offers(p gpu.Placement) bool {
	p = p.Base()
	switch p.Type {
	case gpu.TypeMIG:
		switch s.Partitioning {
		case PartitioningOff:
			return false
		case PartitioningStatic:
			return slices.ContainsFunc(s.Static, func(q gpu.Placement) bool { return q.Name() == p.Name() })
		}
		return !p.StaticOnly && (s.Profiles == nil || slices.Contains(s.Profiles, p.Profile))
	case gpu.TypeXCP:
		return s.Compute == "" || s.Compute == strings.ToUpper(p.Profile)
	case gpu.TypeGPU:
		return s.Partitioning != PartitioningStatic && !s.NoWhole && (s.Compute == "" || s.Compute == wholeMode)
	}
	return true
}

// wholeMode is the compute mode in which an AMD GPU is whole.
const wholeMode = "SPX"
