package follow

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestLastingModes(t *testing.T) {
	hopper := gpu.Modes{MIG: gpu.MIGOn, PendingMIG: gpu.MIGOff}
	assert.Equal(t, gpu.Modes{}, lastingModes(hopper), "claims change it")
	ampere := gpu.Modes{MIG: gpu.MIGOn, PendingMIG: gpu.MIGOn, MIGNeedsReset: true}
	assert.Equal(t, ampere, lastingModes(ampere))
	vgpu := gpu.Modes{MIG: gpu.MIGOn, MIGFixed: true}
	assert.Equal(t, vgpu, lastingModes(vgpu))
	amd := gpu.Modes{Compute: "CPX", Computes: []string{"SPX", "CPX"}, Memory: "NPS1", Memories: []string{"NPS1", "NPS4"}}
	lasting := amd
	lasting.Compute = ""
	assert.Equal(t, lasting, lastingModes(amd), "claims change the compute mode")
}
