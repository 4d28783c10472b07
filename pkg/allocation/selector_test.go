package allocation_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/pkg/allocation"
)

func TestMatches(t *testing.T) {
	const ours, lacking, wrong = `device.driver == "gpu.tranche.dev"`, `device.attributes["gpu.tranche.dev"].colour == "red"`, `device.colour`
	for name, test := range map[string]struct {
		selectors []string
		ok        bool
		// compiles is that of the error, nil where there is none.
		compiles *bool
	}{
		"none":                      {nil, true, nil},
		"it matches":                {[]string{ours, `true`}, true, nil},
		"one does not":              {[]string{ours, `false`}, false, nil},
		"the rest is not evaluated": {[]string{`false`, lacking, wrong}, false, nil},
		"it fails for the device":   {[]string{lacking, `false`}, false, new(true)},
		"it does not compile":       {[]string{ours, wrong}, false, new(bool)},
	} {
		t.Run(name, func(t *testing.T) {
			selectors := []resourceapi.DeviceSelector{{}}
			for _, expression := range test.selectors {
				selectors = append(selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
			}
			ok, err := allocation.Matches(t.Context(), allocation.NewCache(10), cel.Device{Driver: "gpu.tranche.dev"}, selectors...)
			assert.Equal(t, test.ok, ok)
			if test.compiles == nil {
				require.NoError(t, err)
				return
			}
			var selector *allocation.SelectorError
			require.ErrorAs(t, err, &selector)
			assert.Equal(t, *test.compiles, selector.Compiles)
			assert.Equal(t, test.selectors[len(test.selectors)-1] == wrong, selector.Expression == wrong)
			assert.ErrorContains(t, err, "the selector `"+selector.Expression+map[bool]string{true: "` fails: ", false: "` is wrong: "}[selector.Compiles])
		})
	}
}

// late has ended, and says so from the second time on.
type late struct {
	context.Context
	asked int
}

func (l *late) Err() error {
	if l.asked++; l.asked == 1 {
		return nil
	}
	return l.Context.Err()
}

// A context that has ended, before or meanwhile, says nothing about a selector.
func TestMatchesWithoutTime(t *testing.T) {
	const list = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
	long := resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: list + ".all(a, " + list + ".all(b, " + list + ".all(c, a + b + c >= 0)))"}}
	ended, end := context.WithCancel(t.Context())
	end()
	for ctx, s := range map[context.Context]resourceapi.DeviceSelector{ended: {CEL: &resourceapi.CELDeviceSelector{Expression: "true"}}, &late{Context: ended}: long} {
		_, err := allocation.Matches(ctx, allocation.NewCache(10), cel.Device{}, s)
		require.ErrorIs(t, err, context.Canceled)
		var selector *allocation.SelectorError
		require.NotErrorAs(t, err, &selector)
	}
}
