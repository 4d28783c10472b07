package claim

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// A trial finds out whether a device can be prepared, and leaves nothing behind.
func TestTry(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for name, tt := range map[string]struct {
		device gpu.Placement
		setUp  func(*testing.T, *place)
		tried  bool
		err    string
	}{
		"a partition":       {device: one, tried: true},
		"a whole GPU":       {device: claims.Whole(0), tried: true},
		"a share":           {device: claims.FractionShare(0), tried: true},
		"a share by memory": {device: claims.MemoryShare(0), tried: true},
		"a slow daemon":     {device: claims.MemoryShare(0), setUp: func(_ *testing.T, p *place) { p.shares.slow = true }, tried: true},
		"it cannot be made": {device: one, setUp: func(_ *testing.T, p *place) { p.hardware.onCreate = at(one, errScripted) }, tried: true, err: "scripted"},
		"it is not usable":  {device: one, setUp: func(_ *testing.T, p *place) { p.hardware.onEdits = func(gpu.Placement) error { return errScripted } }, tried: true, err: "scripted"},
		"no daemon starts":  {device: claims.MemoryShare(0), setUp: func(_ *testing.T, p *place) { p.shares.onJoin = func(Holder) error { return errScripted } }, tried: true, err: "scripted"},
		"no daemon is ready": {device: claims.MemoryShare(0), setUp: func(_ *testing.T, p *place) {
			p.shares.slow, p.shares.onWait = true, func(context.Context) error { return errScripted }
		}, tried: true, err: "scripted"},
		"after a trial that could not be undone": {device: one, setUp: func(t *testing.T, p *place) {
			p.hardware.onEdits, p.hardware.onDestroy = func(gpu.Placement) error { return errScripted }, at(one, errScripted)
			tried, err := p.start().Try(t.Context(), one)
			require.True(t, tried)
			require.ErrorContains(t, err, "could not be undone")
			tried, err = p.start().Try(t.Context(), one)
			require.False(t, tried, "before what is left is gone")
			require.ErrorIs(t, err, errScripted)
			p.hardware.onEdits, p.hardware.onDestroy = nil, nil
		}, tried: true},
		"somebody's partition": {device: one, setUp: func(_ *testing.T, p *place) { p.hardware.add(one, "MIG-x") }, err: "Tranche did not make"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1).offerShares()
			if tt.setUp != nil {
				tt.setUp(t, p)
			}
			m := p.start()
			tried, err := m.Try(t.Context(), tt.device)
			assert.Equal(t, tt.tried, tried)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			if !tt.tried {
				p.hardware.lose()
			}
			p.nothingShared(m)
		})
	}
}

// What a claim holds is in the way of a trial, and stays.
func TestTryBesideClaims(t *testing.T) {
	p, m := startNode(t, 1)
	one, next := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "1g.10gb", 6, 1)
	mustPrepare(t, m, claims.For("a", one))
	for _, taken := range []gpu.Placement{one, claims.Whole(0)} {
		tried, err := m.Try(t.Context(), taken)
		assert.False(t, tried)
		require.ErrorAs(t, err, new(*steps.ConflictError))
	}
	tried, err := m.Try(t.Context(), next)
	assert.True(t, tried)
	require.NoError(t, err)
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// The plugin dies at each step of a trial. The next one removes what is left.
func TestCrashDuringTry(t *testing.T) {
	for _, device := range []gpu.Placement{claims.MIG(0, "1g.10gb", 5, 1), claims.MemoryShare(0)} {
		died := true
		for n := 0; died; n++ {
			p, m := startSharingNode(t, 1)
			dieBefore(m, n)
			died = crash(func() { _, _ = m.Try(t.Context(), device) })
			m = p.start()
			assert.Empty(t, ledger.InUse(m.Ledger.List()), "step %d", n)
			assert.Empty(t, m.FinishReleases(t.Context()))
			p.nothingShared(m)
			require.Less(t, n, 20)
		}
	}
}

// Which step fails, and whether that says something about other devices.
func TestStepError(t *testing.T) {
	share := claims.MemoryShare(0)
	for name, tt := range map[string]struct {
		fail func(*place)
		op   steps.Op
		any  bool
	}{
		"create": {func(p *place) {
			p.hardware.onCreate = func(context.Context, gpu.Placement) error { return errScripted }
		}, steps.OpCreate, false},
		"join": {func(p *place) { p.shares.onJoin = func(Holder) error { return errScripted } }, steps.OpJoin, false},
		"wait": {func(p *place) {
			p.shares.slow, p.shares.onWait = true, func(context.Context) error { return errScripted }
		}, steps.OpJoin, false},
		"edits":  {func(p *place) { p.hardware.onEdits = func(gpu.Placement) error { return errScripted } }, steps.OpWriteCDI, false},
		"common": {func(p *place) { p.hardware.onCommon = func() error { return errScripted } }, steps.OpWriteCDI, true},
		"live":   {func(p *place) { p.hardware.onLive = func(string) error { return errScripted } }, "", false},
		"claim":  {func(p *place) { p.shares.onJoin = func(Holder) error { return &RefusedError{errScripted} } }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1).offerShares()
			tt.fail(p)
			_, _, err := p.start().Prepare(t.Context(), claims.ShareClaim("a", share, "1Gi"))
			require.ErrorIs(t, err, errScripted)
			failed := (*StepError)(nil)
			if tt.op == "" {
				require.False(t, errors.As(err, &failed))
				return
			}
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, tt.op, failed.Op)
			assert.Equal(t, tt.any, failed.Any)
			assert.Equal(t, share.Name(), failed.Device.Name())
		})
	}
}

// Somebody has switched MIG on under a whole GPU that a claim holds. It is reported, and a Prepare
// does not succeed before it has switched the GPU back.
func TestWholeGPUInMIGMode(t *testing.T) {
	for _, c := range []gpu.Placement{claims.Whole(0), claims.MemoryShare(0)} {
		p, m := startSharingNode(t, 1)
		claim := claims.For("a", c)
		if c.Share != nil {
			claim = claims.ShareClaim("a", c, "1Gi")
		}
		mustPrepare(t, m, claim)
		missing := func() (names []string) {
			foreign, devices, err := m.Compare(t.Context(), claims.Address(0))
			require.NoError(t, err)
			require.Empty(t, foreign)
			for _, d := range devices {
				names = append(names, d.Name)
			}
			return names
		}
		require.Empty(t, missing())
		p.hardware.modes.MIG = gpu.MIGOn
		assert.Equal(t, []string{c.Name()}, missing())
		p.hardware.onCreate = func(context.Context, gpu.Placement) error { return errScripted }
		_, _, err := m.Prepare(t.Context(), claim)
		require.ErrorIs(t, err, errScripted)
		p.hardware.onCreate = func(context.Context, gpu.Placement) error { p.hardware.modes.MIG = gpu.MIGOff; return nil }
		mustPrepare(t, m, claim)
		assert.Empty(t, missing())
		mustRelease(t, m, "a")
		p.nothingShared(m)
	}
}
