package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// The labels are those that AMD's node labeller writes for the same GPUs.
func TestNodeLabels(t *testing.T) {
	offered := func(product, id string, gib, units int64, mode string) hardware.OfferedGPU {
		g := hardware.OfferedGPU{GPU: gpu.GPU{ProductName: product, PCIID: id, Memory: gib<<30 - 1<<20, ComputeUnits: units, MemoryMode: "NPS4"}}
		g.Placements = []gpu.Placement{{Type: gpu.TypeXCP, Profile: mode}}
		g.Static = mode != ""
		return g
	}
	mi300x := offered("AMD Instinct MI300X OAM", "0x74A11002", 192, 304, "")
	cpx, spx := offered("AMD Instinct MI300X OAM", "0x74A11002", 192, 304, "cpx"), offered("AMD Instinct MI300X OAM", "0x74A11002", 192, 304, "spx")
	type labels = map[string]string
	same := func(more ...string) labels {
		all := labels{"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.device-id": "74a1", "amd.com/gpu.vram": "192G", "amd.com/gpu.cu-count": "304"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	for name, test := range map[string]struct {
		gpus []hardware.OfferedGPU
		want labels
	}{
		"no GPU":        {nil, labels{}},
		"on demand":     {[]hardware.OfferedGPU{mi300x, mi300x}, same()},
		"static":        {[]hardware.OfferedGPU{cpx, cpx}, same("amd.com/gpu.compute-memory-partition", "cpx_nps4")},
		"two modes":     {[]hardware.OfferedGPU{cpx, spx}, same()},
		"one on demand": {[]hardware.OfferedGPU{cpx, mi300x}, same()},
		"nothing known": {[]hardware.OfferedGPU{{}}, labels{}},
		"two models": {[]hardware.OfferedGPU{mi300x, mi300x, offered("Radeon (PRO) W7900/48GB", "", 48, 96, "")}, labels{
			"amd.com/gpu.product-name.AMD_Instinct_MI300X_OAM": "2", "amd.com/gpu.product-name.Radeon_PRO_W7900_48GB": "1", "amd.com/gpu.device-id": "74a1",
			"amd.com/gpu.vram.192G": "2", "amd.com/gpu.vram.48G": "1", "amd.com/gpu.cu-count.304": "2", "amd.com/gpu.cu-count.96": "1",
		}},
		"a long name": {[]hardware.OfferedGPU{offered("AMD Radeon Pro W7900 Dual Slot With An Extremely Long Name", "", 48, 0, "")}, labels{
			"amd.com/gpu.product-name": "AMD_Radeon_Pro_W7900_Dual_Slot_With_An_Extreme", "amd.com/gpu.vram": "48G",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Vendor{}.NodeLabels(test.gpus)
			assert.Equal(t, test.want, got)
			for key, value := range got {
				assert.True(t, Vendor{}.IsNodeLabel(key), key)
				assert.Empty(t, validation.IsQualifiedName(key))
				assert.Empty(t, validation.IsValidLabelValue(value))
			}
		})
	}
	for _, key := range []string{"amd.com/gpu", "amd.com/gpu.family", "beta.amd.com/gpu.vram", "amd.com/gpu.vram.", "dcm.amd.com/gpu-config-profile"} {
		assert.False(t, Vendor{}.IsNodeLabel(key), key)
	}
}
