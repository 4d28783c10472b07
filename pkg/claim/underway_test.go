package claim

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/test/claims"
)

// A release comes while the claim is being prepared, at each of its steps: the
// Prepare has undone what it did before the release says that nothing is left.
func TestReleaseEndsPrepare(t *testing.T) {
	count := 0
	m := newPlace(t, 1).start()
	m.BeforeStep = func(context.Context, ledger.Record, *steps.Step) { count++ }
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	require.Greater(t, count, 3)
	for n := range count {
		p, m := startNode(t, 1)
		at, released, reached := 0, make(chan error, 1), make(chan struct{})
		m.BeforeStep = func(ctx context.Context, _ ledger.Record, _ *steps.Step) {
			if at++; at != n+1 {
				return
			}
			close(reached)
			<-ctx.Done() // by the release
		}
		go func() {
			<-reached
			released <- m.Unprepare(t.Context(), claims.Ref("a"))
		}()
		_, _, err := m.Prepare(t.Context(), claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
		if err != nil {
			require.ErrorIs(t, err, errReleasedMeanwhile, "step %d", n)
		}
		require.NoError(t, <-released)
		p.nothingHeld(m)
		assert.Empty(t, m.prepares.calls)
	}
}

// A call that the kubelet has given up before it began does nothing: the release
// may have been here.
func TestPrepareThatNobodyWaitsFor(t *testing.T) {
	p, m := startNode(t, 1)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, _, err := m.Prepare(ctx, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	require.ErrorIs(t, err, gone)
	p.nothingHeld(m)
}

// A Prepare that cannot be ended fails the release, which the kubelet tries again.
func TestReleaseWaitsForPrepareThatHangs(t *testing.T) {
	m := newPlace(t, 1).start()
	_, over, err := m.prepares.begin(t.Context(), "a")
	require.NoError(t, err)
	_, second, err := m.prepares.begin(t.Context(), "a")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errScripted)
	err = m.Unprepare(ctx, claims.Ref("a"))
	require.ErrorIs(t, err, errScripted)
	require.ErrorContains(t, err, "the Prepare in progress")
	over()
	require.Error(t, m.prepares.end(ctx, "a"))
	second()
	require.NoError(t, m.prepares.end(ctx, "a"))
	assert.Empty(t, m.prepares.calls)
}

// The kubelet may have prepared the claim again when a Prepare finds that the claim was released: the
// CDI file is that of the newer call.
func TestPrepareOfAReleasedClaimLeavesTheCDIFile(t *testing.T) {
	p, m := startNode(t, 1)
	c := claims.For("a", claims.MIG(0, "1g.10gb", 0, 1))
	mustPrepare(t, m, c)
	require.NoError(t, m.Ledger.Delete("a"))
	_, _, err := m.prepareClaim(t.Context(), c, true)
	require.ErrorIs(t, err, errReleasedMeanwhile)
	assert.FileExists(t, p.cdiFile("a"))
}
