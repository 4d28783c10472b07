package nvdriver

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// profileByID finds a profile by the id that NVML's answers carry.
func profileByID(m *models.NVIDIAModel, id uint32) (*models.Profile, bool) {
	return profileOf(m, func(p models.Profile) bool { return uint32(p.ID) == id })
}

// profileByEnum finds a profile by its NVML_GPU_INSTANCE_PROFILE_* number.
func profileByEnum(m *models.NVIDIAModel, enum int) (*models.Profile, bool) {
	return profileOf(m, func(p models.Profile) bool { return p.Enum == enum })
}

func profileOf(m *models.NVIDIAModel, is func(models.Profile) bool) (*models.Profile, bool) {
	i := slices.IndexFunc(m.Profiles, is)
	if i < 0 {
		return nil, false
	}
	return &m.Profiles[i], true
}

// multiprocessorsOf returns the SMs of a compute instance of so many slices
// below a GPU instance of the profile: all of them for the full size, else
// those of the GPU's plain profile of that many slices.
func multiprocessorsOf(m *models.NVIDIAModel, p *models.Profile, computeSlices int) int {
	if computeSlices == p.ComputeSlices {
		return p.Multiprocessors
	}
	if q, ok := profileOf(m, func(q models.Profile) bool { return q.ComputeSlices == computeSlices }); ok {
		return q.Multiprocessors
	}
	return p.Multiprocessors * computeSlices / p.ComputeSlices
}

// hasGraphics reports whether a profile can render.
func hasGraphics(p *models.Profile) bool { return strings.HasSuffix(p.Name, "+gfx") }
