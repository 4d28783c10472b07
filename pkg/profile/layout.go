package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Layout is how a GPU is partitioned. Files on nodes contain it: the JSON keys do not
// change.
type Layout struct {
	// Cut says when partitions of an NVIDIA GPU are created.
	Cut Cut `json:"cut,omitempty"`
	// Named: a rule mentions MIG, for CutDynamic. A GPU that changes its MIG mode only by a
	// reset is then in MIG mode. Otherwise its mode does not change.
	Named bool `json:"named,omitempty"`
	// Profiles are the full names of the profiles that claims can have; nil: all.
	Profiles []string `json:"profiles,omitempty"`
	// NoWhole: claims cannot have the whole GPU.
	NoWhole bool `json:"noWhole,omitempty"`
	// Static are the static partitions, for CutStatic.
	Static []gpu.Placement `json:"layout,omitempty"`
	// Compute is the compute mode of an AMD GPU ("CPX"), empty: claims decide. Memory is its
	// memory mode ("NPS4"), empty: it does not change.
	Compute string `json:"compute,omitempty"`
	Memory  string `json:"memory,omitempty"`
}

// Cut says when partitions are created.
type Cut string

// When partitions are created.
const (
	// CutDynamic: when claims request them.
	CutDynamic Cut = ""
	// CutStatic: when the profile is applied. They stay when claims are released.
	CutStatic Cut = "Static"
	// CutOff: never.
	CutOff Cut = "Off"
)

// Offers tells whether claims can have a placement of the GPU, or a share of it.
func (s Layout) Offers(p gpu.Placement) bool {
	p = p.Base()
	switch p.Type {
	case gpu.TypeMIG:
		switch s.Cut {
		case CutOff:
			return false
		case CutStatic:
			return slices.ContainsFunc(s.Static, func(q gpu.Placement) bool { return q.Name() == p.Name() })
		}
		return s.Profiles == nil || slices.Contains(s.Profiles, p.Profile)
	case gpu.TypeXCP:
		return s.Compute == "" || s.Compute == strings.ToUpper(p.Profile)
	case gpu.TypeGPU:
		return s.Cut != CutStatic && !s.NoWhole && (s.Compute == "" || s.Compute == wholeMode)
	}
	return true
}

// wholeMode is the compute mode in which an AMD GPU is whole.
const wholeMode = "SPX"
