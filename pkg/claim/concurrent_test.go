package claim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// Eight claims on eight GPUs take about as long as one: all are inside Create
// at the same time, or none would come out.
func TestClaimsOnDifferentGPUsProceedTogether(t *testing.T) {
	const gpus = 8
	p, m := startNode(t, gpus)
	var inside, outside sync.WaitGroup
	inside.Add(gpus)
	meet := func(ctx context.Context, _ gpu.Placement) error {
		inside.Done()
		met := make(chan struct{})
		go func() { inside.Wait(); close(met) }()
		select {
		case <-met:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the other claims did not come: %w", context.Cause(ctx))
		}
	}
	both := func(do func(n int) error) {
		for n := range gpus {
			outside.Go(func() { assert.NoError(t, do(n)) })
		}
		outside.Wait()
	}
	p.hardware.onCreate = meet
	both(func(n int) error {
		_, _, err := m.Prepare(t.Context(), claims.For(fmt.Sprint(n), claims.MIG(n, "1g.10gb", 5, 1)))
		return err
	})
	inside.Add(gpus)
	p.hardware.onDestroy = meet
	both(func(n int) error { return m.Unprepare(t.Context(), claims.Ref(fmt.Sprint(n))) })
	p.nothingHeld(m)
}

func TestClaimsOnOneGPUTakeTurns(t *testing.T) {
	p, m := startNode(t, 1)
	var inside, prepared atomic.Int32
	alone := func(context.Context, gpu.Placement) error {
		defer inside.Add(-1)
		if n := inside.Add(1); n != 1 {
			return fmt.Errorf("%d claims work on the GPU", n)
		}
		prepared.Add(1)
		return nil
	}
	p.hardware.onCreate, p.hardware.onDestroy = alone, alone
	var wg sync.WaitGroup
	for n := range 7 {
		wg.Go(func() {
			_, _, err := m.Prepare(t.Context(), claims.For(fmt.Sprint(n), claims.MIG(0, "1g.10gb", n, 1)))
			assert.NoError(t, err)
			assert.NoError(t, m.Unprepare(t.Context(), claims.Ref(fmt.Sprint(n))))
		})
	}
	wg.Wait()
	assert.EqualValues(t, 14, prepared.Load())
	p.nothingHeld(m)
}

// The scheduler gives a place to the next pod as soon as the API says that the
// last one ended, which may be before the kubelet has told us.
func TestPrepareWaitsForLateRelease(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("old", claims.MIG(0, "3g.40gb", 0, 4)))

	seen := &signal{on: "prepare plan", c: make(chan struct{})}
	m.Observer = seen
	done := prepareMeanwhile(t.Context(), m, claims.For("new", claims.MIG(0, "1g.10gb", 2, 1)))
	<-seen.c // it has found the place taken
	mustRelease(t, m, "old")
	require.NoError(t, <-done)
	assert.Equal(t, []string{claims.MIG(0, "1g.10gb", 2, 1).Name()}, p.hardware.names())
}

// A release that does not come is left to the kubelet's retry, with a message
// that names who holds the place.
func TestPrepareGivesUpOnHolder(t *testing.T) {
	_, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("old", claims.MIG(0, "3g.40gb", 0, 4)))
	ctx, cancel := context.WithCancel(t.Context())
	seen := &signal{on: "prepare plan", c: make(chan struct{})}
	m.Observer = seen
	go func() { <-seen.c; cancel() }()
	_, _, err := m.Prepare(ctx, claims.For("new", claims.MIG(0, "1g.10gb", 2, 1)))
	require.ErrorContains(t, err, "claim team/claim-old (pod pod-old) still holds gpu-0000-01-00-0-mig-3g-40gb-0")
	assert.Len(t, m.Ledger.List(), 1)
}

// Claims come and go at random, several to a GPU: no place is ever held twice,
// and in the end nothing is left.
func TestManyClaimsAtRandom(t *testing.T) {
	const gpus, workers, rounds = 3, 12, 15
	p, m := startNode(t, gpus)
	var places [gpus][7]sync.Mutex // the scheduler: one claim a place
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for round := range rounds {
				n, start := (w+round)%gpus, (w*5+round*3)%7
				places[n][start].Lock()
				uid := fmt.Sprintf("%d-%d", w, round)
				_, _, err := m.Prepare(t.Context(), claims.For(uid, claims.MIG(n, "1g.10gb", start, 1)))
				assert.NoError(t, err)
				assert.NoError(t, m.Unprepare(t.Context(), claims.Ref(uid)))
				places[n][start].Unlock()
			}
		})
	}
	wg.Wait()
	p.nothingHeld(m)
	assert.Equal(t, workers*rounds, p.hardware.made)
}

// signal closes its channel when a phase is first seen.
type signal struct {
	on   string
	once sync.Once
	c    chan struct{}
}

func (s *signal) Phase(operation, phase string, _ time.Duration, _ error) {
	if operation+" "+phase == s.on {
		s.once.Do(func() { close(s.c) })
	}
}
