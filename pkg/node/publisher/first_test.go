package publisher

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/node/nodetest"
)

// resourcesOf are resources with one pool.
func resourcesOf(pool string) resourceslice.DriverResources {
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {}}}
}

// Only the last of the changes during the first call is sent, after it, and later calls are made at once.
func TestFirstCallInTheBackground(t *testing.T) {
	calls, proceed := make(chan resourceslice.DriverResources, 10), make(chan error)
	f := &first{
		send: func(_ context.Context, r resourceslice.DriverResources) error {
			calls <- r
			if _, isFirst := r.Pools["first"]; isFirst {
				return <-proceed
			}
			return nil
		},
		failed: func(_ context.Context, err error) { assert.NoError(t, err) },
	}
	for _, pool := range []string{"first", "second", "third"} {
		require.NoError(t, f.Send(t.Context(), resourcesOf(pool)))
	}
	assert.Equal(t, resourcesOf("first"), <-calls)
	assert.Empty(t, calls)
	proceed <- nil
	assert.Equal(t, resourcesOf("third"), <-calls)
	require.NoError(t, f.Send(t.Context(), resourcesOf("fourth")))
	assert.Equal(t, resourcesOf("fourth"), <-calls)
	assert.Empty(t, calls)
}

func TestFirstCallIsRepeated(t *testing.T) {
	calls, failures := 0, make(chan error, 1)
	f := &first{
		send: func(context.Context, resourceslice.DriverResources) error {
			if calls++; calls == 1 {
				return assert.AnError
			}
			return nil
		},
		failed: func(_ context.Context, err error) { failures <- err },
	}
	require.NoError(t, f.Send(t.Context(), resourcesOf("a")))
	require.ErrorIs(t, <-failures, assert.AnError)
	require.NoError(t, f.Send(t.Context(), resourcesOf("a")))
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.succeeded
	}, nodetest.Patience, nodetest.Tick)
	assert.Equal(t, 2, calls)
}
