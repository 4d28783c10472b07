package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	resourceapi "k8s.io/api/resource/v1"
)

// TestNvidiaLayout: what ours is held against is what it is said to be, of the
// same devices.
func TestNvidiaLayout(t *testing.T) {
	for _, inventory := range []string{"h100x8", "h200x8"} {
		b := &bench{dir: t.TempDir()}
		cards, err := b.cardsOf(t.Context(), inventory)
		require.NoError(t, err)
		ours, err := slicesOf(cards)
		require.NoError(t, err)
		theirs := nvidiaSlices(cards)
		require.Len(t, theirs, 1+8)
		require.Len(t, theirs[0].Spec.SharedCounters, 8)
		for _, set := range theirs[0].Spec.SharedCounters {
			assert.Len(t, set.Counters, 15)
		}
		assert.Equal(t, deviceCount(ours), deviceCount(theirs))
		for _, slice := range theirs[1:] {
			assert.Equal(t, nodeName, slice.Spec.Pool.Name)
			assert.True(t, len(slice.Spec.Devices) <= resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures)
			for i, d := range slice.Spec.Devices {
				if i == 0 {
					assert.NotContains(t, d.Name, "-mig-", "the whole card is first")
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
