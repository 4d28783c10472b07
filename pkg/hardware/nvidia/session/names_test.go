package session

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

func TestVariantOf(t *testing.T) {
	want := map[int]mig.Variant{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE:        mig.Plain,
		nvml.GPU_INSTANCE_PROFILE_7_SLICE:        mig.Plain,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   mig.WithMedia,
		nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   mig.WithMedia,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2:   mig.Plain, // more memory, not media
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    mig.WithGraphics,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    mig.WithGraphics,
		nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    mig.WithGraphics,
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  mig.WithoutMedia,
		nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: mig.AllMedia,
		nvml.GPU_INSTANCE_PROFILE_COUNT + 1:      mig.Plain,
	}
	for enum, v := range want {
		assert.Equal(t, v, variantOf(enum), "profile number %d", enum)
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
