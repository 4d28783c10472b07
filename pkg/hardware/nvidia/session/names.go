package session

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// variantOf returns the variant of a GPU instance profile by its number in NVML's
// enumeration (NVML_GPU_INSTANCE_PROFILE_…). REV1 means "+me"; REV2 is a plain profile with
// more memory.
func variantOf(enum int) mig.Variant {
	switch enum {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:
		return mig.WithMedia
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return mig.AllMedia
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return mig.WithoutMedia
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return mig.WithGraphics
	}
	return mig.Plain
}

// toldName reads the profile's name in NVML's answer ("MIG 1g.18gb").
func toldName(raw []int8) string {
	return strings.TrimSpace(strings.TrimPrefix(String(raw), "MIG "))
}

// Name names a GPU instance as nvidia-smi does.
func Name(id int) string { return fmt.Sprintf("GI %d", id) }

// ID reads the id of a partition's GPU instance out of its name.
func ID(p gpu.Partition) (int, bool) {
	number, ok := strings.CutPrefix(p.ID, "GI ")
	if !ok || p.Type != gpu.TypeMIG {
		return 0, false
	}
	id, err := strconv.Atoi(number)
	return id, err == nil
}
