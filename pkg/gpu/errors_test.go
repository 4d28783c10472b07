package gpu_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestInventoryErrorNamesEveryGPU(t *testing.T) {
	lost, odd := errors.New("lost"), errors.New("odd")
	err := error(&gpu.InventoryError{GPUs: []*gpu.Error{
		{ID: "NVML index 2", PCIAddress: "0000:c1:00.0", Err: lost},
		{ID: "NVML index 5", Err: odd},
	}})
	assert.EqualError(t, err, "GPU 0000:c1:00.0 (NVML index 2): lost; GPU with NVML index 5: odd")
	assert.ErrorIs(t, err, lost)
	assert.ErrorIs(t, err, odd)
	var g *gpu.Error
	assert.ErrorAs(t, err, &g)
	assert.Equal(t, "0000:c1:00.0", g.PCIAddress)
}
