package claim

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

func TestLockSaysWhatItWaitsFor(t *testing.T) {
	l := gpuLocks{dir: t.TempDir()}
	unlock, err := l.lock(t.Context(), []string{claims.Address(2), claims.Address(1), claims.Address(2)})
	require.NoError(t, err)

	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("not finished within 30s, the limit for one Prepare"))
	defer cancel()
	_, err = l.lock(ctx, []string{claims.Address(1), claims.Address(0)})
	require.EqualError(t, err, "wait for another claim that is being prepared or released on GPU gpu-0000-02-00-0: not finished within 30s, the limit for one Prepare")

	// What it had taken before it gave up is free again, and so is the rest
	// after unlock.
	for _, free := range [][]string{{claims.Address(0)}, {claims.Address(3)}} {
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
	l := gpuLocks{dir: t.TempDir()}
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

// Whatever needs a GPU for itself does nothing without its lock, or without a ledger that can be read,
// and the next one gets the lock.
func TestWithoutTheLock(t *testing.T) {
	one, other := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	held := claims.For("a", one)
	late := held.DeepCopy()
	late.Status.ReservedFor = append(late.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "late", UID: "late"})
	for name, do := range map[string]func(context.Context, *Manager) error{
		"Prepare": func(ctx context.Context, m *Manager) error {
			_, _, err := m.Prepare(ctx, claims.For("b", claims.MIG(0, "1g.10gb", 6, 1)))
			return err
		},
		"Unprepare":  func(ctx context.Context, m *Manager) error { return m.Unprepare(ctx, claims.Ref("a")) },
		"UpdatePods": func(ctx context.Context, m *Manager) error { return m.UpdatePods(ctx, claims.Ref("a"), "", api(late)) },
		"Rejoin":     func(ctx context.Context, m *Manager) error { return m.Rejoin(ctx, "a") },
		"stopStray": func(ctx context.Context, m *Manager) error {
			_, err := m.stopStray(ctx, "stray")
			return err
		},
		"Compare": func(ctx context.Context, m *Manager) error {
			_, _, err := m.Compare(ctx, claims.Address(0))
			return err
		},
		"RemoveForeign": func(ctx context.Context, m *Manager) error {
			return m.RemoveForeign(ctx, gpu.Partition{GPU: other.GPU, Type: other.Type, Profile: other.Profile, Start: other.Start, Size: other.Size, UUID: "MIG-x", Complete: true})
		},
		"Try": func(ctx context.Context, m *Manager) error {
			_, err := m.Try(ctx, claims.MIG(0, "1g.10gb", 6, 1))
			return err
		},
		"Exclusive": func(ctx context.Context, m *Manager) error {
			return m.Exclusive(ctx, []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error {
				assert.Fail(t, "it does not have the GPU")
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1).offerShares()
			p.hardware.add(other, "MIG-x")
			m := p.start()
			p.shares.daemons["stray"] = true
			mustPrepare(t, m, held)
			m.Ledger.ReadAgain()
			require.NoError(t, m.Refresh(t.Context()))
			before := m.Ledger.List()

			another := gpuLocks{dir: m.locks.dir}
			unlock, err := another.lock(t.Context(), []string{claims.Address(0)})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Millisecond, errors.New("out of time"))
			defer cancel()
			require.ErrorContains(t, do(ctx, m), "out of time")
			unlock()

			require.NoError(t, os.Rename(p.ledgerDir(), p.ledgerDir()+".away"))
			m.Ledger.ReadAgain()
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 {
				require.ErrorContains(t, do(ctx, m), "read the folder of the ledger")
			}
			require.NoError(t, os.Rename(p.ledgerDir()+".away", p.ledgerDir()))

			unlock, err = m.lock(ctx, "test", []string{claims.Address(0)})
			require.NoError(t, err)
			unlock()
			assert.ElementsMatch(t, []string{one.Name(), other.Name()}, p.hardware.names())
			assert.True(t, p.shares.daemons["stray"])
			assert.Equal(t, before, m.Ledger.List())
		})
	}
}
