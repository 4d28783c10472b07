package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/test/claims"
)

// A daemon that takes a while is waited for with no lock held: the record says what
// is held, and everybody else goes on, on this GPU and on others.
func TestNobodyWaitsForADaemon(t *testing.T) {
	p, started, ready := slowPlace(t, 2)
	m := p.start()
	done := prepareMeanwhile(t.Context(), m, claims.ShareClaim("a", claims.MemoryShare(0), "50Gi"))
	<-started
	r, ok := m.Ledger.Get("a")
	require.True(t, ok)
	assert.Equal(t, ledger.Preparing, r.State)
	p.shares.slow = false
	for _, c := range []string{"same GPU", "other GPU"} {
		n := map[string]int{"same GPU": 0, "other GPU": 1}[c]
		mustPrepare(t, m, claims.ShareClaim(c, claims.MemoryShare(n), "20Gi"))
	}
	require.ErrorContains(t, planOnce(t, m, claims.ShareClaim("b", claims.MemoryShare(0), "20Gi")), "claims team/claim-a (pod pod-a), team/claim-same GPU (pod pod-same GPU), whose")
	mustRelease(t, m, "same GPU")
	assert.Equal(t, "shared", p.shares.mode(claims.Address(0)), "who waits holds the GPU, too")
	close(ready)
	require.NoError(t, <-done)
	mustRelease(t, m, "a")
	mustRelease(t, m, "other GPU")
	p.nothingShared(m)
}

// Prepare returns the record before its first attempt, also if it waits and tries again.
func TestRecordBeforeTheFirstAttempt(t *testing.T) {
	p, _, ready := slowPlace(t, 1)
	m := p.start()
	close(ready)
	c := claims.ShareClaim("a", claims.MemoryShare(0), "50Gi")
	record, before, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, ledger.Prepared, record.State)
	assert.Zero(t, before)
	_, before, err = m.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, ledger.Prepared, before.State)
}

// slowPlace is a node on which daemons are ready when ready is closed. started tells
// of each that is waited for.
func slowPlace(t *testing.T, gpus int) (p *place, started chan struct{}, ready chan struct{}) {
	p = newPlace(t, gpus).offerShares()
	p.shares.slow = true
	started, ready = make(chan struct{}, 64), make(chan struct{})
	p.shares.onWait = func(ctx context.Context) error {
		started <- struct{}{}
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return p, started, ready
}

// A daemon that never comes takes the claim's record with it, and the reason is
// said.
func TestDaemonDoesNotStart(t *testing.T) {
	for name, before := range map[string]int{"first holder": 0, "second holder": 1} {
		t.Run(name, func(t *testing.T) {
			p, m := startSharingNode(t, 1)
			if before > 0 {
				mustPrepare(t, m, claims.ShareClaim("other", claims.MemoryShare(0), "10Gi"))
			}
			p.shares.slow = true
			p.shares.onWait = func(context.Context) error { return errScripted }
			seen := &phases{}
			m.Observer = seen
			_, _, err := m.Prepare(t.Context(), claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
			require.ErrorIs(t, err, errScripted)
			require.ErrorContains(t, err, "wait for daemon a: scripted failure")
			assert.Contains(t, seen.seen, "prepare ready!")
			assert.NotContains(t, seen.seen, "prepare join!", "to take a while is no failure")
			assert.Len(t, m.Ledger.List(), before)
			if before > 0 {
				mustRelease(t, m, "other")
			}
			p.nothingShared(m)
		})
	}
}

// The time for one Prepare ends, or the kubelet gives up, while a daemon starts.
func TestPrepareEndsWhileDaemonStarts(t *testing.T) {
	p, started, _ := slowPlace(t, 1)
	m := p.start()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(errScripted) }()
	_, _, err := m.Prepare(ctx, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	require.ErrorIs(t, err, errScripted)
	p.nothingShared(m)
}

// What cannot be taken back after a daemon did not start stays written down.
func TestDaemonDoesNotStartAndCannotBeUndone(t *testing.T) {
	p, m := startSharingNode(t, 1)
	p.shares.slow = true
	p.shares.onWait = func(context.Context) error { return errors.New("it died") }
	p.shares.onLeave = func(Holder) error { return errScripted }
	_, _, err := m.Prepare(t.Context(), claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	require.ErrorContains(t, err, "it died")
	require.ErrorContains(t, err, "and it could not be undone, which the next attempt retries: release gpu-0000-01-00-0-memory-share: scripted failure")
	assert.Len(t, m.Ledger.List(), 1)
	p.shares.onLeave, p.shares.onWait = nil, nil
	mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// The pod is deleted while its daemon starts: nobody waits for the daemon any more.
func TestUnprepareWhileDaemonStarts(t *testing.T) {
	p, started, _ := slowPlace(t, 1)
	m := p.start()
	done := prepareMeanwhile(t.Context(), m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	<-started
	mustRelease(t, m, "a")
	require.ErrorIs(t, <-done, errReleasedMeanwhile)
	p.nothingShared(m)
}

// The other plugin of a rolling update releases the claim while its daemon starts:
// the Prepare does not make again what was released.
func TestOtherProcessReleasesWhileDaemonStarts(t *testing.T) {
	p, started, ready := slowPlace(t, 1)
	m := p.start()
	done := prepareMeanwhile(t.Context(), m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	<-started
	mustRelease(t, p.start(), "a")
	p.shares.daemons["a"] = true // so that the waiting ends well, at the worst time
	close(ready)
	require.ErrorIs(t, <-done, errReleasedMeanwhile)
	delete(p.shares.daemons, "a")
	p.nothingShared(m)
}

// The claim is given other devices while its daemon starts: those are not touched.
func TestClaimIsReallocatedWhileDaemonStarts(t *testing.T) {
	p, started, ready := slowPlace(t, 2)
	m := p.start()
	done := prepareMeanwhile(t.Context(), m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	<-started
	mustPrepare(t, m, claims.ShareClaim("a", claims.MIGShare(1), "10Gi"))
	close(ready)
	require.Error(t, <-done)
	assert.Equal(t, []string{claims.MIG(1, "3g.40gb", 0, 4).Name()}, p.hardware.names())
	r, _ := m.Ledger.Get("a")
	assert.Equal(t, ledger.Prepared, r.State)
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// The kubelet has restarted and asks again while the first call still waits: both
// come to the same end.
func TestPrepareTwiceWhileDaemonStarts(t *testing.T) {
	p, started, ready := slowPlace(t, 1)
	m := p.start()
	first := prepareMeanwhile(t.Context(), m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	<-started
	second := prepareMeanwhile(t.Context(), m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	<-started
	close(ready)
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	assert.Len(t, p.shares.holders(), 1)
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// One call gives up after the other has finished the claim: it stays prepared.
func TestGivingUpLeavesWhatAnotherHasFinished(t *testing.T) {
	p, started, ready := slowPlace(t, 1)
	m := p.start()
	ctx, cancel := context.WithCancel(t.Context())
	first := prepareMeanwhile(ctx, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	<-started
	p.shares.mu.Lock()
	p.shares.onWait = nil // the second call's daemon is there at once
	p.shares.mu.Unlock()
	mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	cancel()
	require.Error(t, <-first)
	close(ready)
	r, _ := m.Ledger.Get("a")
	assert.Equal(t, ledger.Prepared, r.State)
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// 48 claims come to one GPU at once, and go.
func TestManySharesOnOneGPU(t *testing.T) {
	const most = 48
	p := newPlace(t, 1).offerShares()
	p.shares.slow = true
	m := p.start()
	var wg sync.WaitGroup
	for n := range most {
		wg.Go(func() {
			_, _, err := m.Prepare(t.Context(), claims.ShareClaim(fmt.Sprint(n), claims.MemoryShare(0), "1Gi"))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Len(t, p.shares.holders(), most)
	require.ErrorContains(t, planOnce(t, m, claims.ShareClaim("one more", claims.MemoryShare(0), "1Gi")), "not enough of its clients")
	for n := range most {
		wg.Go(func() { assert.NoError(t, m.Unprepare(t.Context(), claims.Ref(fmt.Sprint(n)))) })
	}
	wg.Wait()
	p.nothingShared(m)
}

// Two claims race for the last share: one has it, and the other has it when that
// one is released.
func TestTwoClaimsRaceForTheLastShare(t *testing.T) {
	p, m := startSharingNode(t, 1)
	mustPrepare(t, m, claims.ShareClaim("first", claims.MemoryShare(0), "50Gi"))
	won := make(chan string, 2)
	var wg sync.WaitGroup
	for _, uid := range []string{"a", "b"} {
		wg.Go(func() {
			_, _, err := m.Prepare(t.Context(), claims.ShareClaim(uid, claims.MemoryShare(0), "30Gi"))
			assert.NoError(t, err)
			won <- uid
		})
	}
	winner := <-won
	assert.Len(t, p.shares.holders(), 2)
	mustRelease(t, m, winner)
	wg.Wait()
	loser := <-won
	assert.NotEqual(t, winner, loser)
	mustRelease(t, m, loser)
	mustRelease(t, m, "first")
	p.nothingShared(m)
}

// Shares of a partition come and go at random: it is there as long as one is.
func TestSharesOfAPartitionAtRandom(t *testing.T) {
	p, m := startSharingNode(t, 1)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for round := range 10 {
				uid := fmt.Sprintf("%d-%d", w, round)
				r, _, err := m.Prepare(t.Context(), claims.ShareClaim(uid, claims.MIGShare(0), "10Gi"))
				assert.NoError(t, err)
				live, _ := p.hardware.Live(t.Context(), claims.Address(0))
				assert.True(t, len(live) == 1 && live[0].UUID == r.Devices[0].UUID, "%v is not %v", live, r.Devices)
				assert.NoError(t, m.Unprepare(t.Context(), claims.Ref(uid)))
			}
		})
	}
	wg.Wait()
	p.nothingShared(m)
}
