package mig

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProfileName(t *testing.T) {
	// Memory of the instance and of the GPU in MiB, as NVML reports them.
	for _, test := range []struct {
		gpu       string
		slices    int
		variant   Variant
		instance  uint64
		total     uint64
		wantsName string
	}{
		{"A30", 1, Plain, 5952, 24576, "1g.6gb"},
		{"A30, older driver", 1, WithMedia, 5836, 24576, "1g.6gb+me"},
		{"A30", 4, Plain, 24000, 24576, "4g.24gb"},
		{"A100-40", 1, Plain, 4864, 40960, "1g.5gb"},
		{"A100-40, twice the memory", 1, Plain, 9856, 40960, "1g.10gb"},
		{"A100-40", 7, Plain, 40192, 40960, "7g.40gb"},
		{"A100-80", 3, Plain, 40192, 81920, "3g.40gb"},
		{"H100", 1, Plain, 9984, 81559, "1g.10gb"},
		{"H100", 1, WithMedia, 9984, 81559, "1g.10gb+me"},
		{"H100", 7, Plain, 81152, 81559, "7g.80gb"},
		{"H200", 1, Plain, 16384, 143771, "1g.18gb"},
		{"H200, older driver", 2, Plain, 33024, 143771, "2g.35gb"},
		{"H200", 4, Plain, 71424, 143771, "4g.71gb"},
		{"RTX PRO 6000", 1, AllMedia, 24192, 97887, "1g.24gb+me.all"},
		{"RTX PRO 6000", 2, WithoutMedia, 48512, 97887, "2g.48gb-me"},
		{"RTX PRO 6000", 4, WithGraphics, 97408, 97887, "4g.96gb+gfx"},
		{"a GPU that tells no memory", 1, Plain, 1024, 0, "1g.0gb"},
	} {
		t.Run(test.gpu+" "+test.wantsName, func(t *testing.T) {
			assert.Equal(t, test.wantsName, ProfileName(test.slices, test.variant, test.instance, test.total<<20))
		})
	}
}

func TestVariantIn(t *testing.T) {
	for name, want := range map[string]Variant{
		"1g.10gb": Plain, "1g.10gb+me": WithMedia, "1g.24gb+me.all": AllMedia, "1g.24gb-me": WithoutMedia, "2g.48gb+gfx": WithGraphics,
	} {
		assert.Equal(t, want, VariantIn(name), name)
	}
}
