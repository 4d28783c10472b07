package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// Each library answers NOT_SUPPORTED to the numbers that it knows and INVALID_ARGUMENT beyond.
func TestLibraries(t *testing.T) {
	for driver, want := range map[string]struct {
		gpuProfiles, computeProfiles int
		profileV3, clocksEvents      bool
	}{
		"525.60.13":  {10, 8, false, false},
		"535.309.01": {10, 8, false, true},
		"550":        {10, 8, true, true},
		"570":        {10, 8, true, true},
		"580.159.04": {17, 8, true, true},
		"595":        {18, 8, true, true},
		"610":        {18, 9, true, true},
	} {
		t.Run(driver, func(t *testing.T) {
			inv, err := models.LoadInventory("h100x8")
			require.NoError(t, err)
			n := openLibrary(t, inv, memory.TempDir(t), driver)
			d := handleOf(t, n, 0)
			assert.NotEqual(t, nvml.ERROR_INVALID_ARGUMENT, second(d.GetGpuInstanceProfileInfo(want.gpuProfiles-1)))
			assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(d.GetGpuInstanceProfileInfo(want.gpuProfiles)))
			migOn(t, d)
			gi := makeGI(t, d, "1g.10gb", 0)
			assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(gi.GetComputeInstanceProfileInfo(want.computeProfiles-1, 0)))
			assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(gi.GetComputeInstanceProfileInfo(want.computeProfiles, 0)))
			own, ok := d.(*device)
			require.True(t, ok)
			assert.Equal(t, want.profileV3, second(own.GetGpuInstanceProfileInfoV3(0)) == nvml.SUCCESS)
			assert.Equal(t, nvml.SUCCESS, second(own.GetGpuInstanceProfileInfoV2(0)))
			assert.Equal(t, want.clocksEvents, n.Extensions().LookupSymbol("nvmlDeviceGetCurrentClocksEventReasons") == nil)
		})
	}
}
