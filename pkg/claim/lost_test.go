package claim

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// loseGPU makes every question about the first GPU fail, until the returned function
// is called.
func (p *place) loseGPU(err error) (back func()) {
	fail := func(gpuID string) error {
		if gpuID == claims.Address(0) {
			return fmt.Errorf("GPU %s: %w", gpuID, err)
		}
		return nil
	}
	p.hardware.onLive = fail
	p.hardware.onDestroy = func(_ context.Context, q gpu.Placement) error { return fail(q.GPU) }
	if p.shares != nil {
		p.shares.onLeave = func(h Holder) error { return fail(h.Device.Placement.GPU) }
	}
	return func() {
		p.hardware.onLive, p.hardware.onDestroy = nil, nil
		if p.shares != nil {
			p.shares.onLeave = nil
		}
	}
}

// A claim on a lost GPU is released, and its partition is destroyed when the GPU is
// back. Until then nobody gets its place.
func TestReleaseOnALostGPU(t *testing.T) {
	p := newPlace(t, 2)
	m := p.start()
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1), claims.MIG(1, "1g.10gb", 0, 1)))
	back := p.loseGPU(gpu.ErrLost)
	mustRelease(t, m, "a")
	assert.NoFileExists(t, p.cdiFile("a"))
	assert.Equal(t, []string{claims.MIG(0, "1g.10gb", 0, 1).Name()}, p.hardware.names(), "the other GPU's partition is gone")
	assert.Empty(t, InUse(m.Ledger.List()))
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")), "the kubelet may ask again")

	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)), "the GPU is still lost")
	m = p.start() // the ledger outlives the plugin
	assert.Empty(t, m.Reconcile(t.Context(), noClaims), "the claim is released")
	require.Len(t, m.Ledger.List(), 1)

	back()
	c := claims.For("b", claims.MIG(0, "1g.10gb", 0, 1))
	wanted, err := m.want(c)
	require.NoError(t, err)
	_, err = m.prepare(t.Context(), c, wanted, false)
	conflict := (*plan.ConflictError)(nil)
	require.ErrorAs(t, err, &conflict, "what is left is in the way")
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)))
	p.nothingHeld(m)
	mustPrepare(t, m, claims.For("b", claims.MIG(0, "1g.10gb", 0, 1)))
	mustRelease(t, m, "b")
	p.nothingHeld(m)
}

// The claim itself can be prepared on another GPU while its leftovers wait, and lose
// that one, too.
func TestClaimMovesOnFromALostGPU(t *testing.T) {
	p := newPlace(t, 2)
	m := p.start()
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	back := p.loseGPU(gpu.ErrLost)
	mustPrepare(t, m, claims.For("a", claims.MIG(1, "3g.40gb", 4, 4)))
	mustRelease(t, m, "a")
	back()
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(1)))
	assert.Len(t, m.Ledger.List(), 1, "it is on the other GPU")
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)))
	p.nothingHeld(m)
}

// After a reload of the driver nothing is left on the GPU, so nothing is touched.
func TestLeftoversLapseWithTheDriver(t *testing.T) {
	p := newPlace(t, 1)
	m := p.start()
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	p.loseGPU(gpu.ErrLost)()
	back := p.loseGPU(gpu.ErrLost)
	mustRelease(t, m, "a")
	back()
	p.hardware.lose()
	p.hardware.loadID = "boot-2"
	p.hardware.add(claims.MIG(0, "1g.10gb", 0, 1), "MIG-of-somebody")
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)))
	assert.Empty(t, m.Ledger.List())
	assert.Empty(t, p.hardware.destroyed)
}

// How a GPU was set comes back with it.
func TestShareOnALostGPU(t *testing.T) {
	p := newPlace(t, 1).offerShares()
	m := p.start()
	for _, uid := range []string{"a", "b"} {
		mustPrepare(t, m, claims.ShareClaim(uid, claims.MemoryShare(0), "10Gi"))
	}
	back := p.loseGPU(gpu.ErrLost)
	for _, uid := range []string{"a", "b"} {
		mustRelease(t, m, uid)
	}
	assert.Empty(t, InUse(m.Ledger.List()))
	assert.Equal(t, "shared", p.shares.mode(claims.Address(0)))
	back()
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)))
	assert.Equal(t, "own", p.shares.mode(claims.Address(0)))
	assert.Empty(t, m.Ledger.List())
}

// A GPU that does not answer is not lost: what it holds may be in use.
func TestReleaseOnAHungGPU(t *testing.T) {
	for what, failure := range map[string]error{"hung": context.DeadlineExceeded, "in use": gpu.ErrInUse, "other": errScripted} {
		t.Run(what, func(t *testing.T) {
			p := newPlace(t, 1)
			m := p.start()
			mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
			p.hardware.onLive = func(string) error { return failure }
			err := m.Unprepare(t.Context(), claims.Ref("a"))
			require.ErrorIs(t, err, failure)
			assert.True(t, m.Ledger.Has("a"))
			p.hardware.onLive = nil
			mustRelease(t, m, "a")
			p.nothingHeld(m)
		})
	}
}

// Dying at any step of the release loses nothing.
func TestCrashDuringReleaseOnALostGPU(t *testing.T) {
	died := errors.New("died")
	for n := 0; ; n++ {
		p := newPlace(t, 2)
		m := p.start()
		mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1), claims.MIG(1, "1g.10gb", 0, 1)))
		back := p.loseGPU(gpu.ErrLost)
		steps := 0
		m.BeforeStep = func(context.Context, ledger.Record, *plan.Step) {
			if steps == n {
				panic(died)
			}
			steps++
		}
		finished := func() (finished bool) {
			defer func() { finished = recover() == nil }()
			_ = m.Unprepare(t.Context(), claims.Ref("a"))
			return true
		}()
		m = p.start()
		mustRelease(t, m, "a")
		back()
		m.FinishReleases(t.Context(), claims.Address(0))
		p.nothingHeld(m)
		if finished {
			assert.Greater(t, n, 2, "steps of the release")
			return
		}
	}
}
