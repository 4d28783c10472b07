package claim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/claims"
)

func TestLockSaysWhatItWaitsFor(t *testing.T) {
	var l gpuLocks
	unlock, err := l.lock(t.Context(), []string{claims.Address(1), claims.Address(0), claims.Address(1)})
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the 30s for one Prepare are used up"))
	_, err = l.lock(ctx, []string{claims.Address(2), claims.Address(1)})
	require.EqualError(t, err, "wait for another claim that is being prepared or released on GPU gpu-0000-02-00-0: the 30s for one Prepare are used up")

	// What it had taken before it gave up is free again, and so is the rest
	// after unlock.
	for _, free := range [][]string{{claims.Address(2)}, {claims.Address(3)}} {
		again, err := l.lock(t.Context(), free)
		require.NoError(t, err)
		again()
	}
	unlock()
	unlock, err = l.lock(t.Context(), []string{claims.Address(0), claims.Address(1), claims.Address(2)})
	require.NoError(t, err)
	unlock()
}

// In whatever order GPUs are named, nobody waits in a circle, and nobody is on
// a GPU beside somebody else.
func TestLocksOfRandomGPUs(t *testing.T) {
	const gpus, workers, rounds = 6, 24, 200
	var l gpuLocks
	var busy [gpus]atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				var wanted []string
				chosen := rand.Perm(gpus)[:1+rand.IntN(gpus)]
				for _, n := range chosen {
					wanted = append(wanted, claims.Address(n))
				}
				unlock, err := l.lock(t.Context(), wanted)
				if !assert.NoError(t, err) {
					return
				}
				for _, n := range chosen {
					assert.EqualValues(t, 1, busy[n].Add(1), "workers on GPU %d", n)
				}
				for _, n := range chosen {
					busy[n].Add(-1)
				}
				unlock()
			}
		})
	}
	wg.Wait()
}

// Two plugins that work on one node during a rolling update wait for each other
// on a GPU, and not on different GPUs.
func TestLocksKeepOtherProcessesOut(t *testing.T) {
	dir := t.TempDir()
	older, newer := gpuLocks{dir: dir}, gpuLocks{dir: dir}
	unlock, err := older.lock(t.Context(), []string{claims.Address(0)})
	require.NoError(t, err)

	elsewhere, err := newer.lock(t.Context(), []string{claims.Address(1)})
	require.NoError(t, err)
	elsewhere()

	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("out of time"))
	defer cancel()
	_, err = newer.lock(ctx, []string{claims.Address(0)})
	require.ErrorContains(t, err, "gpu-0000-01-00-0: another process holds "+dir)
	require.ErrorContains(t, err, "out of time")

	got := make(chan error, 1)
	go func() {
		unlock, err := newer.lock(t.Context(), []string{claims.Address(0)})
		if err == nil {
			unlock()
		}
		got <- err
	}()
	unlock()
	require.NoError(t, <-got)
}
