package session_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// A library knows other numbers of profiles than the header that we are built with.
func TestPartitionsWithEveryLibrary(t *testing.T) {
	for _, version := range []string{"535", "550", "570", "580", "595", "610"} {
		t.Run(version, func(t *testing.T) {
			m := withLibrary(t, "h100x8", version)
			p := m.Placement("1g.10gb", 6)
			made := m.Made(p)
			assert.True(t, made.Complete)
			assert.Equal(t, made, m.Partitions(p.GPU)[0])
			require.NoError(t, m.Destroy(t.Context(), p))
			assert.Empty(t, m.Partitions(p.GPU))
		})
	}
}

// Only what the handle itself answers means that a GPU instance was destroyed meanwhile. Another
// call that fails hides no partition: it could be somebody else's, and running.
func TestUnreadablePartitionIsNotGone(t *testing.T) {
	answer := nvml.SUCCESS
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return opaque{d, &answer} }))
	p := m.Placement("1g.10gb", 6)
	made := m.Made(p)
	for _, answer = range []nvml.Return{nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND, nvml.ERROR_UNKNOWN} {
		_, err := m.Live(t.Context(), p.GPU)
		require.ErrorIs(t, err, answer)
		require.ErrorIs(t, m.Destroy(t.Context(), p), answer, "a release does not forget it either")
	}
	answer = nvml.SUCCESS
	assert.Equal(t, []gpu.Partition{made}, m.Partitions(p.GPU))
}
