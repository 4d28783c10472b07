package controlplane

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseQueues(t *testing.T) {
	got, err := parseQueues(`# TYPE scheduler_pending_pods gauge
scheduler_pending_pods{queue="active"} 0
scheduler_pending_pods{queue="backoff"} 1
scheduler_pending_pods{queue="unschedulable"} 12
`)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"active": 0, "backoff": 1, "unschedulable": 12}, got)
	for _, bad := range []string{"", "scheduler_pending_pods{", "other 1\n"} {
		_, err := parseQueues(bad)
		require.Error(t, err, bad)
	}
}

func TestForAll(t *testing.T) {
	names := make([]string, 100)
	for i := range names {
		names[i] = string(rune('a' + i%26))
	}
	var done atomic.Int32
	require.NoError(t, ForAll(t.Context(), names, func(context.Context, string) error {
		done.Add(1)
		return nil
	}))
	assert.EqualValues(t, len(names), done.Load())
	err := ForAll(t.Context(), names, func(_ context.Context, name string) error {
		if name == "c" {
			return errors.New("broken")
		}
		return nil
	})
	require.EqualError(t, err, "c: broken")
}
