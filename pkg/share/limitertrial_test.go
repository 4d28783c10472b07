package share_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/share"
)

// It is tried whether the driver limits memory, with the plugin's own pod.
func TestWorks(t *testing.T) {
	g := &gpu.GPU{PCIAddress: "0000:01:00.0", Memory: 80 * gib}
	l := newLimits(t)
	ended, end := context.WithCancel(t.Context())
	end()
	require.Error(t, l.Works(ended, g))
	assert.Empty(t, l.WhyNot(), "the plugin is stopping")
	require.ErrorContains(t, l.Works(t.Context(), g), "the control group of the plugin's own pod")
	require.NoError(t, os.MkdirAll(filepath.Join(l.Groups, "kubepods/pod"+string(own)), 0o750))
	require.ErrorContains(t, l.Works(t.Context(), g), "own pod", "not at once again")
	assert.NotEmpty(t, l.WhyNot())
	l.loadID = "another"
	require.NoError(t, l.Works(t.Context(), g))
	assert.Empty(t, l.WhyNot())
	assert.Empty(t, l.inForce(), "nothing is left")
	tried := l.driver.tried
	l.driver.err = gpu.ErrNotSupported
	require.NoError(t, l.Works(t.Context(), g), "it has worked with this driver, and may be in MIG mode now")
	assert.Equal(t, tried, l.driver.tried)
	l.loadID = "third"
	require.ErrorIs(t, l.Works(t.Context(), g), gpu.ErrNotSupported)
	assert.Equal(t, tried, l.driver.tried, "nothing was changed")

	untested := *g
	untested.UntestedLimits = true
	l.loadID = "fourth"
	l.driver.err = nil
	require.EqualError(t, l.Works(t.Context(), &untested), "the chart's value amd.shareLimits.enabled is false, so nothing limits the memory of shares of GPU gpu-0000-01-00-0")
	assert.Equal(t, tried, l.driver.tried)
	l.Untested, l.loadID = true, "fifth"
	require.NoError(t, l.Works(t.Context(), &untested))

	l.loadID, l.driver.used["0000:01:00.0 pod"+string(own)] = "sixth", 81*gib
	require.ErrorContains(t, l.Works(t.Context(), g), "the driver reports no limit")

	for message, tt := range map[string]struct {
		memory int64
		change func(*share.LimiterConfig)
	}{
		"does not report its memory":  {0, func(*share.LimiterConfig) {}},
		errScripted.Error():           {1, func(c *share.LimiterConfig) { c.NoHook = errScripted }},
		errNoDriver.Error():           {1, func(c *share.LimiterConfig) { c.Driver = noDriver }},
		"look for the control groups": {1, func(c *share.LimiterConfig) { c.Groups = filepath.Join(c.Groups, "none") }},
	} {
		l := newLimits(t, tt.change)
		require.ErrorContains(t, l.Works(t.Context(), &gpu.GPU{PCIAddress: "0000:01:00.0", Memory: tt.memory}), message)
	}
}

// Where limits do not work, they are tried again a minute later.
func TestLimitsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		l := share.NewLimiter(share.LimiterConfig{
			LoadID: func(string) string { return "load" },
			Driver: func(string) (hardware.Driver, error) { tried++; return nil, errNoDriver },
		})
		for after, want := range []int{1, 1, 2} {
			time.Sleep(time.Duration(after) * 31 * time.Second)
			require.ErrorIs(t, l.Works(t.Context(), &gpu.GPU{}), errNoDriver)
			assert.Equal(t, want, tried)
		}
	})
}
