package controlplane

import (
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
