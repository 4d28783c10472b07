package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Shape is how a GPU is to be cut, whoever holds it.
type Shape struct {
	// Cut says when the partitions of an NVIDIA GPU are made.
	Cut Cut `json:"cut,omitempty"`
	// Named is set where a rule speaks of MIG, for CutDynamic. A GPU that changes its
	// MIG mode by a reset only is then in MIG mode; otherwise it is as it was found.
	Named bool `json:"named,omitempty"`
	// Profiles are those that claims can have, by full name, nil: all.
	Profiles []string `json:"profiles,omitempty"`
	// NoWhole keeps the uncut GPU from claims.
	NoWhole bool `json:"noWhole,omitempty"`
	// Layout are the partitions that are made and stay, for CutStatic.
	Layout []gpu.Placement `json:"layout,omitempty"`
	// Compute is the mode that an AMD GPU is kept in ("CPX"), empty: it follows the
	// claims. Memory is its memory mode ("NPS4"), empty: as it is.
	Compute string `json:"compute,omitempty"`
	Memory  string `json:"memory,omitempty"`
}

// Cut says when partitions are made.
type Cut string

// When partitions are made.
const (
	// CutDynamic: when claims ask for them.
	CutDynamic Cut = ""
	// CutStatic: at once, and they stay.
	CutStatic Cut = "Static"
	// CutOff: never.
	CutOff Cut = "Off"
)

// Offers tells whether claims can have a placement of the GPU, or a share of it.
// A share follows what it is a share of.
func (s Shape) Offers(p gpu.Placement) bool {
	p = p.Base()
	switch p.Type {
	case gpu.TypeMIG:
		switch s.Cut {
		case CutOff:
			return false
		case CutStatic:
			return slices.ContainsFunc(s.Layout, func(q gpu.Placement) bool { return q.Name() == p.Name() })
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
