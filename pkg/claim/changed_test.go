package claim

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// A claim that waits while its GPU is changed is judged by what the GPU is afterwards:
// a device that is gone is not made again.
func TestPrepareWaitsForAChangeThatTakesItsDevice(t *testing.T) {
	p, m := startNode(t, 1)
	var changed atomic.Bool
	before := m.GPUs
	m.GPUs = func() []gpu.GPU {
		assert.True(t, changed.Load(), "it looks at a GPU that is being changed")
		gpus := slices.Clone(before())
		gpus[0].Placements = []gpu.Placement{claims.Whole(0)}
		return gpus
	}
	c := claims.For("a", claims.MIG(0, "1g.10gb", 5, 1))
	var failed <-chan error
	err := m.Exclusive(t.Context(), []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error {
		failed = prepareMeanwhile(t.Context(), m, c)
		require.Eventually(t, func() bool {
			m.prepares.mu.Lock()
			defer m.prepares.mu.Unlock()
			return len(m.prepares.calls) > 0
		}, time.Minute, time.Millisecond)
		changed.Store(true)
		return nil
	})
	require.NoError(t, err)
	require.ErrorContains(t, <-failed, "does not exist on GPU "+gpu.NameOf(claims.Address(0))+": the GPU")
	assert.Empty(t, p.hardware.names())
	p.nothingHeld(m)
}
