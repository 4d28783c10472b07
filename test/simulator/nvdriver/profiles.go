package nvdriver

import (
	"strings"

	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// profileByID finds a profile by the id that NVML's answers carry.
func profileByID(m *models.NVIDIAModel, id uint32) (*models.Profile, bool) {
	p := lists.Find(m.Profiles, func(p *models.Profile) bool { return uint32(p.ID) == id })
	return p, p != nil
}

// profileByEnum finds a profile by its NVML_GPU_INSTANCE_PROFILE_* number.
func profileByEnum(m *models.NVIDIAModel, enum int) (*models.Profile, bool) {
	p := lists.Find(m.Profiles, func(p *models.Profile) bool { return p.Enum == enum })
	return p, p != nil
}

// multiprocessorsOf returns the SMs of a compute instance of so many slices
// below a GPU instance of the profile: all of them for the full size, else
// those of the GPU's plain profile of that many slices.
func multiprocessorsOf(m *models.NVIDIAModel, p *models.Profile, computeSlices int) int {
	if computeSlices == p.ComputeSlices {
		return p.Multiprocessors
	}
	plain := lists.Find(m.Profiles, func(q *models.Profile) bool { return q.ComputeSlices == computeSlices })
	if plain != nil {
		return plain.Multiprocessors
	}
	return p.Multiprocessors * computeSlices / p.ComputeSlices
}

// hasGraphics reports whether the profile can render.
func hasGraphics(p *models.Profile) bool { return strings.HasSuffix(p.Name, "+gfx") }
