package claim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// A claim that was prepared loses one of its partitions. However the next Prepares end,
// the other one stays: a container may be using it.
func TestRepairLeavesWhatWasHandedOut(t *testing.T) {
	stays, lost := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	c := claims.For("a", stays, lost)
	for name, interrupt := range map[string]func(*testing.T, *place){
		"the plugin dies after the intent": func(t *testing.T, p *place) {
			m := p.start()
			dieBefore(m, 1)
			require.True(t, crash(func() { _, _, _ = m.Prepare(t.Context(), c) }))
		},
		"the plugin dies after it made the lost one": func(t *testing.T, p *place) {
			m := p.start()
			dieBefore(m, 3)
			require.True(t, crash(func() { _, _, _ = m.Prepare(t.Context(), c) }))
			p.hardware.parts = p.hardware.parts[:1]
		},
		"it fails": func(t *testing.T, p *place) {
			p.hardware.onCreate = at(lost, errScripted)
			_, _, err := p.start().Prepare(t.Context(), c)
			require.ErrorIs(t, err, errScripted)
		},
		"it fails twice": func(t *testing.T, p *place) {
			p.hardware.onCreate = at(lost, errScripted)
			for range 2 {
				_, _, err := p.start().Prepare(t.Context(), c)
				require.ErrorIs(t, err, errScripted)
			}
		},
		"it cannot be undone": func(t *testing.T, p *place) {
			p.hardware.onEdits, p.hardware.onDestroy = func(gpu.Placement) error { return errScripted }, at(lost, errScripted)
			_, _, err := p.start().Prepare(t.Context(), c)
			require.ErrorContains(t, err, "could not be undone")
			p.hardware.onEdits, p.hardware.onDestroy = nil, nil
			p.hardware.parts = p.hardware.parts[:1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1)
			before := mustPrepare(t, p.start(), c)
			p.hardware.lose()
			p.hardware.add(stays, before.Devices[0].UUID)

			interrupt(t, p)
			m := p.start()
			p.hardware.onCreate = at(lost, errScripted)
			_, _, err := m.Prepare(t.Context(), c)
			require.ErrorIs(t, err, errScripted)
			assert.NotContains(t, p.hardware.destroyed, before.Devices[0].UUID)
			assert.Equal(t, []string{stays.Name()}, p.hardware.names())
			assert.FileExists(t, p.cdiFile("a"), "a container that starts again finds it")

			p.hardware.onCreate = nil
			m = p.start()
			after := mustPrepare(t, m, c)
			assert.Equal(t, before.Devices[0].UUID, after.Devices[0].UUID)
			assert.NotEqual(t, before.Devices[1].UUID, after.Devices[1].UUID)
			mustRelease(t, m, "a")
			p.nothingHeld(m)
		})
	}
}

// A claim whose repair waits for a daemon that does not come keeps what was handed out.
func TestRepairThatWaitsInVainReleasesNothing(t *testing.T) {
	stays := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 2).offerShares()
	c := claims.Of("a", claims.ResultOf("one", stays), claims.ShareResult("two", claims.MemoryShare(1), "memory", "10Gi"))
	before := mustPrepare(t, p.start(), c)
	p.hardware.lose()
	p.hardware.add(stays, before.Devices[0].UUID)
	// The share's GPU had its driver loaded again, the partition's had not.
	p.hardware.loads = map[string]string{claims.Address(1): "boot-1, second load"}
	p.shares.daemons = map[string]bool{}
	p.shares.slow = true
	p.shares.onWait = func(context.Context) error { return errScripted }

	m := p.start()
	_, _, err := m.Prepare(t.Context(), c)
	require.ErrorIs(t, err, errScripted)
	assert.Empty(t, p.hardware.destroyed)
	r, ok := m.Ledger.Get("a")
	require.True(t, ok)
	assert.True(t, r.Devices[0].HandedOut)
	assert.False(t, r.Devices[1].HandedOut, "not under this load")

	p.shares.slow, p.shares.onWait = false, nil
	after := mustPrepare(t, p.start(), c)
	assert.Equal(t, before.Devices[0].UUID, after.Devices[0].UUID)
	assert.Equal(t, ledger.Prepared, after.State)
}
