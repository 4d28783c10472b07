package session

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// Each position of a profile is offered once: names of devices must be unique, and what has no size
// would take nothing of the GPU.
func TestSpansOf(t *testing.T) {
	assert.Equal(t, []mig.Span{{Start: 0, Size: 2}, {Start: 0, Size: 4}, {Start: 4, Size: 2}}, spansOf([]nvml.GpuInstancePlacement{
		{Start: 0, Size: 2}, {Start: 3, Size: 0}, {Start: 0, Size: 2}, {Start: 0, Size: 4}, {Start: 0, Size: 0}, {Start: 4, Size: 2}, {Start: 0, Size: 4},
	}))
	assert.Empty(t, spansOf(nil))
}

// What a library says of the numbers of profiles: which end the list, and which are gaps or errors.
func TestEnumerate(t *testing.T) {
	for name, tt := range map[string]struct {
		answers map[int]nvml.Return // of others: SUCCESS
		want    []int
		err     nvml.Return
	}{
		"an older library":             {map[int]nvml.Return{2: nvml.ERROR_INVALID_ARGUMENT, 3: nvml.ERROR_INVALID_ARGUMENT, 4: nvml.ERROR_INVALID_ARGUMENT}, []int{0, 1}, nvml.SUCCESS},
		"a newer library":              {map[int]nvml.Return{6: nvml.ERROR_INVALID_ARGUMENT}, []int{0, 1, 2, 3, 4, 5}, nvml.SUCCESS},
		"a gap":                        {map[int]nvml.Return{1: nvml.ERROR_INVALID_ARGUMENT, 4: nvml.ERROR_INVALID_ARGUMENT}, []int{0, 2, 3}, nvml.SUCCESS},
		"not of this GPU":              {map[int]nvml.Return{0: nvml.ERROR_NOT_SUPPORTED, 4: nvml.ERROR_INVALID_ARGUMENT}, []int{1, 2, 3}, nvml.SUCCESS},
		"the code is about the device": {map[int]nvml.Return{0: nvml.ERROR_INVALID_ARGUMENT}, nil, nvml.ERROR_INVALID_ARGUMENT},
		"another error":                {map[int]nvml.Return{3: nvml.ERROR_UNKNOWN}, nil, nvml.ERROR_UNKNOWN},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := enumerate(4, func(number int) (int, error) {
				if code := tt.answers[number]; code != nvml.SUCCESS {
					return 0, code
				}
				return number, nil
			})
			if tt.err != nvml.SUCCESS {
				require.ErrorIs(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	endless, err := enumerate(4, func(number int) (int, error) { return number, nil })
	require.NoError(t, err)
	assert.Len(t, endless, mostProfiles)
}
