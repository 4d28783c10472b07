package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestWithMIG(t *testing.T) {
	whole := gpu.Offer{
		Counters:   gpu.Counters{names.CounterMemory: 39 << 30},
		Placements: []gpu.Placement{{GPU: "0000:c1:00.0", Type: gpu.TypeGPU}},
	}
	cuts := gpu.Offer{
		Counters:   gpu.Counters{"memory-slice-0": 1},
		Placements: []gpu.Placement{{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "1g.5gb"}},
	}
	off := gpu.GPU{PCIAddress: "0000:c1:00.0", Counters: whole.Counters, Placements: whole.Placements, OtherMIG: &cuts}
	on := gpu.GPU{PCIAddress: "0000:c1:00.0", Counters: cuts.Counters, Placements: cuts.Placements, OtherMIG: &whole}
	for _, g := range []gpu.GPU{off, on} {
		assert.Equal(t, off, g.WithMIG(gpu.MIGOff))
		assert.Equal(t, on, g.WithMIG(gpu.MIGOn))
	}
	// A GPU that offers both at once, or that knows no MIG, is the same in any mode.
	for _, g := range []gpu.GPU{{Placements: append(cuts.Placements, whole.Placements...)}, {Placements: whole.Placements}} {
		assert.Equal(t, g, g.WithMIG(gpu.MIGOff))
		assert.Equal(t, g, g.WithMIG(gpu.MIGOn))
	}
}
