package nvidia

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
)

func TestProfileName(t *testing.T) {
	// Memory of the instance and of the card in MiB, as NVML tells them.
	for _, test := range []struct {
		card      string
		slices    int
		variant   variant
		instance  uint64
		total     uint64
		wantsName string
	}{
		{"A30", 1, plain, 5952, 24576, "1g.6gb"},
		{"A30, older driver", 1, withMedia, 5836, 24576, "1g.6gb+me"},
		{"A30", 4, plain, 24000, 24576, "4g.24gb"},
		{"A100-40", 1, plain, 4864, 40960, "1g.5gb"},
		{"A100-40, twice the memory", 1, plain, 9856, 40960, "1g.10gb"},
		{"A100-40", 7, plain, 40192, 40960, "7g.40gb"},
		{"A100-80", 3, plain, 40192, 81920, "3g.40gb"},
		{"H100", 1, plain, 9984, 81559, "1g.10gb"},
		{"H100", 1, withMedia, 9984, 81559, "1g.10gb+me"},
		{"H100", 7, plain, 81152, 81559, "7g.80gb"},
		{"H200", 1, plain, 16384, 143771, "1g.18gb"},
		{"H200, older driver", 2, plain, 33024, 143771, "2g.35gb"},
		{"H200", 4, plain, 71424, 143771, "4g.71gb"},
		{"RTX PRO 6000", 1, allMedia, 24192, 97887, "1g.24gb+me.all"},
		{"RTX PRO 6000", 2, withoutMedia, 48512, 97887, "2g.48gb-me"},
		{"RTX PRO 6000", 4, withGraphics, 97408, 97887, "4g.96gb+gfx"},
		{"a card that tells no memory", 1, plain, 1024, 0, "1g.0gb"},
	} {
		t.Run(test.card+" "+test.wantsName, func(t *testing.T) {
			assert.Equal(t, test.wantsName, profileName(test.slices, test.variant, test.instance, test.total<<20))
		})
	}
}

func TestVariantOf(t *testing.T) {
	want := map[int]variant{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE:        plain,
		nvml.GPU_INSTANCE_PROFILE_7_SLICE:        plain,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   withMedia,
		nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   withMedia,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2:   plain, // more memory, not media
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    withGraphics,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    withGraphics,
		nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    withGraphics,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  withoutMedia,
		nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: allMedia,
		nvml.GPU_INSTANCE_PROFILE_COUNT + 1:      plain,
	}
	for enum, v := range want {
		assert.Equal(t, v, variantOf(enum), "profile number %d", enum)
	}
}

func TestVariantIn(t *testing.T) {
	for name, want := range map[string]variant{
		"1g.10gb": plain, "1g.10gb+me": withMedia, "1g.24gb+me.all": allMedia, "1g.24gb-me": withoutMedia, "2g.48gb+gfx": withGraphics,
	} {
		assert.Equal(t, want, variantIn(name), name)
	}
}

func TestToldName(t *testing.T) {
	var raw [96]int8
	for i, c := range []byte("MIG 1g.18gb+me") {
		raw[i] = int8(c)
	}
	assert.Equal(t, "1g.18gb+me", toldName(raw[:]))
	assert.Empty(t, toldName(make([]int8, 96)))
	assert.Equal(t, "7g.40gb", toldName([]int8{'7', 'g', '.', '4', '0', 'g', 'b'}), "without an end")
}

func TestArchitectureName(t *testing.T) {
	for number, want := range map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_AMPERE: "ampere", nvml.DEVICE_ARCH_ADA: "ada", nvml.DEVICE_ARCH_HOPPER: "hopper",
		nvml.DEVICE_ARCH_BLACKWELL: "blackwell", nvml.DEVICE_ARCH_TURING: "turing", nvml.DEVICE_ARCH_UNKNOWN: "", 99: "",
	} {
		assert.Equal(t, want, architectureName(number))
	}
}
