package nvidia

import (
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// variant is what sets a GPU instance profile apart from the plain one of its
// size, as nvidia-smi writes it behind the memory: "+me", "-me", "+gfx".
type variant string

// The variants.
const (
	plain        variant = ""
	withMedia    variant = "+me"     // the card's one JPEG or OFA engine
	allMedia     variant = "+me.all" // every media engine of the card
	withoutMedia variant = "-me"
	withGraphics variant = "+gfx"
)

// variantOf gives the variant of a GPU instance profile by its number in
// NVML's enumeration (NVML_GPU_INSTANCE_PROFILE_…). REV1 is NVML's word for
// "+me"; REV2 is a plain profile that has more memory.
func variantOf(enum int) variant {
	switch enum {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:
		return withMedia
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return allMedia
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return withoutMedia
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return withGraphics
	}
	return plain
}

// variantIn finds the variant in a profile's name, for profiles whose number is
// newer than the enumeration that we were built with.
func variantIn(name string) variant {
	if i := strings.IndexAny(name, "+-"); i >= 0 {
		return variant(name[i:])
	}
	return plain
}

// profileName computes the name that nvidia-smi gives a profile ("1g.10gb+me"),
// for drivers that do not tell it. slices are compute slices, memoryMiB is what
// an instance can use, totalBytes is the memory of the card.
func profileName(slices int, v variant, memoryMiB, totalBytes uint64) string {
	return fmt.Sprintf("%dg.%dgb%s", slices, profileGB(memoryMiB, totalBytes), v)
}

// profileGB is the number of gigabytes in a profile's name: the instance's
// share of the card, rounded up to eighths, of the card's memory in whole GiB.
// nvidia-smi, mig-parted and the device plugin count so.
func profileGB(memoryMiB, totalBytes uint64) uint64 {
	if totalBytes == 0 {
		return 0
	}
	const eighths = 8
	share := float64(memoryMiB) * (1 << 20) / float64(totalBytes)
	share = math.Ceil(share*eighths) / eighths
	totalGiB := (totalBytes + 1<<30 - 1) >> 30
	return uint64(math.Round(share * float64(totalGiB)))
}

// toldName takes the profile's name out of NVML's answer ("MIG 1g.18gb").
func toldName(raw []int8) string {
	return strings.TrimSpace(strings.TrimPrefix(cString(raw), "MIG "))
}

// cString reads a zero-terminated string from a C array.
func cString(raw []int8) string {
	var b strings.Builder
	for _, c := range raw {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// architectureName is NVML's architecture as we publish it.
func architectureName(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_KEPLER:
		return "kepler"
	case nvml.DEVICE_ARCH_MAXWELL:
		return "maxwell"
	case nvml.DEVICE_ARCH_PASCAL:
		return "pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "volta"
	case nvml.DEVICE_ARCH_TURING:
		return "turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "blackwell"
	case nvml.DEVICE_ARCH_RUBIN:
		return "rubin"
	}
	return "" // newer than our NVML header: better nothing than a wrong name
}
