package claim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// startStatic starts the driver with some placements that are static.
func (p *place) startStatic(placements ...gpu.Placement) *Manager {
	p.t.Helper()
	m := p.start()
	m.Static = func(q gpu.Placement) bool {
		for _, s := range placements {
			if s.Name() == q.Name() {
				return true
			}
		}
		return false
	}
	return m
}

func TestStaticPartitionIsHandedOutAndLeft(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlaceWith(t, "MIG-x", one)
	m := p.startStatic(one)
	record := mustPrepare(t, m, claims.For("a", one))
	assert.False(t, record.Devices[0].Made)
	assert.Equal(t, "MIG-x", record.Devices[0].UUID)
	again := mustPrepare(t, m, claims.For("a", one))
	assert.Equal(t, record.Devices, again.Devices)

	require.ErrorContains(t, prepareOnce(t, m, claims.For("b", one)), "claim team/claim-a (pod pod-a) still holds", "it is one claim's at a time")
	mustRelease(t, m, "a")
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	mustPrepare(t, m, claims.For("b", one))
}

// After a reboot, or a load of the driver, nobody has made it yet.
func TestMissingStaticPartitionIsMade(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 1)
	m := p.startStatic(one)
	mustPrepare(t, m, claims.For("a", one))
	mustRelease(t, m, "a")
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	assert.Empty(t, m.Ledger.List())

	// A Prepare that fails later leaves it, too.
	p = newPlace(t, 1)
	m = p.startStatic(one)
	p.hardware.onCommon = func() error { return errScripted }
	_, _, err := m.Prepare(t.Context(), claims.For("a", one))
	require.ErrorIs(t, err, errScripted)
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	assert.Empty(t, m.Ledger.List())
}

func TestStaticPartitionIsNotForeign(t *testing.T) {
	one, other := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "1g.10gb", 6, 1)
	p := newPlaceWith(t, "MIG-x", one, other)
	m := p.startStatic(one)
	foreign := foreignOn(t, m, claims.Address(0))
	require.Len(t, foreign, 1)
	assert.True(t, foreign[0].Is(other))
	require.NoError(t, m.RemoveForeign(t.Context(), claims.PartitionAt(one, "MIG-x")))
	assert.Equal(t, []string{one.Name(), other.Name()}, p.hardware.names())
}

// What was allocated before the profile cut the GPU for good must not have it.
func TestStaticPartitionInTheWay(t *testing.T) {
	three, one := claims.MIG(0, "3g.40gb", 4, 4), claims.MIG(0, "1g.10gb", 5, 1)
	for _, wanted := range []gpu.Placement{three, claims.Whole(0)} {
		p := newPlaceWith(t, "MIG-x", one)
		_, _, err := p.startStatic(one).Prepare(t.Context(), claims.For("a", wanted))
		require.ErrorContains(t, err, "the profile of the node keeps partition "+one.Name()+" on GPU gpu-0000-01-00-0 in its place; delete the pod")
		var conflict *steps.ConflictError
		assert.NotErrorAs(t, err, &conflict, "waiting is no use")
	}
}

// A profile may come and go while a claim holds the partition: what counts is
// whether it is static at its release.
func TestPartitionThatBecomesStaticOrStopsBeingSo(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for name, tt := range map[string]struct {
		before, after []gpu.Placement
		left          []string
	}{
		"becomes static": {nil, []gpu.Placement{one}, []string{one.Name()}},
		"was static":     {[]gpu.Placement{one}, nil, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1)
			mustPrepare(t, p.startStatic(tt.before...), claims.For("a", one))
			m := p.startStatic(tt.after...)
			assert.Empty(t, foreignOn(t, m, claims.Address(0)))
			record, _, err := m.Prepare(t.Context(), claims.For("a", one))
			require.NoError(t, err, "a second container of the pod")
			assert.Equal(t, "MIG-1", record.Devices[0].UUID)
			mustRelease(t, m, "a")
			assert.Equal(t, tt.left, p.hardware.names())
		})
	}
}

// The driver dies before each step that a claim of a static partition takes.
func TestCrashWithStaticPartition(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for n := range 5 {
		p := newPlace(t, 1)
		m := p.startStatic(one)
		dieBefore(m, n)
		require.True(t, crash(func() { _, _, _ = m.Prepare(t.Context(), claims.For("a", one)) }))
		m = p.startStatic(one)
		m.Reconcile(t.Context(), noClaims)
		assert.Empty(t, m.Ledger.List(), "step %d", n)
		assert.Empty(t, foreignOn(t, m, claims.Address(0)), "step %d", n)
		assert.Empty(t, p.hardware.destroyed, "step %d", n)
	}
}

func TestHeldLeavesOutWhatAnotherLoadHandedOut(t *testing.T) {
	_, m := startNode(t, 2)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	old := claims.Record("b", ledger.Prepared, claims.MIG(0, "1g.10gb", 6, 1))
	old.Devices[0].LoadID = "boot-0"
	require.NoError(t, m.Ledger.Put(old))
	held := m.Held([]string{claims.Address(0)})
	require.Len(t, held, 1)
	assert.Equal(t, claims.Ref("a"), held[0].Claim)
	assert.Empty(t, m.Held([]string{claims.Address(1)}))
}

func TestExclusive(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	_, m := startNode(t, 2)
	mustPrepare(t, m, claims.For("a", one))
	m.locks.patience = 1 // a nanosecond
	err := m.Exclusive(t.Context(), []string{claims.Address(1), claims.Address(0)}, "is being changed to profile all-balanced", func(held []ledger.Record) error {
		require.Len(t, held, 1)
		assert.Equal(t, claims.Ref("a"), held[0].Claim)
		const why = "GPU gpu-0000-01-00-0 is being changed to profile all-balanced; this is retried"
		_, _, err := m.Prepare(t.Context(), claims.For("b", claims.MIG(0, "1g.10gb", 6, 1)))
		require.EqualError(t, err, why)
		require.EqualError(t, m.Unprepare(t.Context(), claims.Ref("a")), why)

		// One whose own time is over first says so, too.
		m.locks.patience = time.Hour
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errScripted)
		_, err = m.Foreign(ctx, claims.Address(0))
		require.ErrorIs(t, err, errScripted)
		require.ErrorContains(t, err, "is being changed to profile all-balanced")
		return errScripted
	})
	require.ErrorIs(t, err, errScripted)

	// Afterwards all is as before.
	mustRelease(t, m, "a")
	mustPrepare(t, m, claims.For("b", claims.MIG(0, "1g.10gb", 6, 1)))
	assert.Empty(t, m.locks.exclusive)
}

// One that needs a GPU for itself waits for another that does, and for claims,
// until its own time is over.
func TestExclusiveWaits(t *testing.T) {
	_, m := startNode(t, 1)
	m.locks.patience = 1
	entered, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		first <- m.Exclusive(t.Context(), []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	ctx, cancel := context.WithCancelCause(t.Context())
	second := make(chan error, 1)
	go func() {
		second <- m.Exclusive(ctx, []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error { return nil })
	}()
	cancel(errScripted)
	require.ErrorIs(t, <-second, errScripted)
	close(leave)
	require.NoError(t, <-first)
	require.NoError(t, m.Exclusive(t.Context(), []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error { return nil }))
}
