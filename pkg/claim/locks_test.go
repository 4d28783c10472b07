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
)

func TestLockSaysWhatItWaitsFor(t *testing.T) {
	var l cardLocks
	unlock, err := l.lock(t.Context(), []string{address(1), address(0), address(1)})
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the 30s for one Prepare are used up"))
	_, err = l.lock(ctx, []string{address(2), address(1)})
	require.EqualError(t, err, "wait for another claim that is being prepared or released on card gpu-0000-02-00-0: the 30s for one Prepare are used up")

	// What it had taken before it gave up is free again, and so is the rest
	// after unlock.
	for _, free := range [][]string{{address(2)}, {address(3)}} {
		again, err := l.lock(t.Context(), free)
		require.NoError(t, err)
		again()
	}
	unlock()
	unlock, err = l.lock(t.Context(), []string{address(0), address(1), address(2)})
	require.NoError(t, err)
	unlock()
}

// In whatever order cards are named, nobody waits in a circle, and nobody is on
// a card beside somebody else.
func TestLocksOfRandomCards(t *testing.T) {
	const cards, workers, rounds = 6, 24, 200
	var l cardLocks
	var busy [cards]atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				var wanted []string
				chosen := rand.Perm(cards)[:1+rand.IntN(cards)]
				for _, n := range chosen {
					wanted = append(wanted, address(n))
				}
				unlock, err := l.lock(t.Context(), wanted)
				if !assert.NoError(t, err) {
					return
				}
				for _, n := range chosen {
					assert.EqualValues(t, 1, busy[n].Add(1), "workers on card %d", n)
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
// on a card, and not on different cards.
func TestLocksKeepOtherProcessesOut(t *testing.T) {
	dir := t.TempDir()
	older, newer := cardLocks{dir: dir}, cardLocks{dir: dir}
	unlock, err := older.lock(t.Context(), []string{address(0)})
	require.NoError(t, err)

	elsewhere, err := newer.lock(t.Context(), []string{address(1)})
	require.NoError(t, err)
	elsewhere()

	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("out of time"))
	defer cancel()
	_, err = newer.lock(ctx, []string{address(0)})
	require.ErrorContains(t, err, "gpu-0000-01-00-0: another process holds "+dir)
	require.ErrorContains(t, err, "out of time")

	got := make(chan error, 1)
	go func() {
		unlock, err := newer.lock(t.Context(), []string{address(0)})
		if err == nil {
			unlock()
		}
		got <- err
	}()
	unlock()
	require.NoError(t, <-got)
}
