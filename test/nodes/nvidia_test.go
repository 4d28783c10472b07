package nodes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/publish/models"
)

const nodeName = "node-a"

// What our layout is compared with is what the documentation says. It has all seven positions of
// the partition with the media extensions, of which we offer four.
func TestNVIDIALayout(t *testing.T) {
	for _, name := range []string{"h100x8", "h200x8"} {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		gpus, err := NVIDIAGPUs(t.Context(), inv, "node", t.TempDir())
		require.NoError(t, err)
		ours, err := Slices(nodeName, gpus)
		require.NoError(t, err)
		theirs := NVIDIASlices(nodeName, gpus)
		require.Len(t, theirs, 1+8)
		require.Len(t, theirs[0].Spec.SharedCounters, 8)
		for _, set := range theirs[0].Spec.SharedCounters {
			assert.Len(t, set.Counters, 15)
		}
		assert.Equal(t, deviceCount(ours)+8*2, deviceCount(theirs))
		for _, slice := range theirs[1:] {
			assert.Equal(t, nodeName, slice.Spec.Pool.Name)
			assert.True(t, len(slice.Spec.Devices) <= resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures)
			for i, d := range slice.Spec.Devices {
				if i == 0 {
					assert.NotContains(t, d.Name, "-mig-", "the whole GPU is first")
					continue
				}
				assert.Len(t, d.Attributes, 12)
				assert.Len(t, d.Capacity, 7)
				assert.Greater(t, d.Name, slice.Spec.Devices[i-1].Name)
			}
		}
	}
}

func deviceCount(all []*resourceapi.ResourceSlice) int {
	n := 0
	for _, slice := range all {
		n += len(slice.Spec.Devices)
	}
	return n
}
