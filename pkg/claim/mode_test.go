package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/claims"
)

// The drivers of two vendors are reloaded independently: what a claim holds
// on the GPUs of the other one is still its own.
func TestPrepareAfterOneDriverWasLoadedAnew(t *testing.T) {
	stays, goes := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(1, "1g.10gb", 2, 1)
	p := newPlace(t, 2)
	c := claims.For("a", stays, goes)
	before, err := p.start().Prepare(t.Context(), c)
	require.NoError(t, err)
	p.hardware.lose()
	p.hardware.add(stays, before.Devices[0].UUID)
	p.hardware.loads = map[string]string{claims.Address(1): "boot-1, second load"}

	m := p.start()
	foreign, err := m.Foreign(t.Context(), claims.Address(0))
	require.NoError(t, err)
	assert.Empty(t, foreign)
	now, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, before.Devices[0].UUID, now.Devices[0].UUID)
	assert.NotEqual(t, before.Devices[1].UUID, now.Devices[1].UUID)
	assert.Equal(t, "boot-1, second load", now.Devices[1].LoadID)

	// A third load, after which nobody prepares the claim again.
	p.hardware.loads = map[string]string{claims.Address(1): "boot-1, third load"}
	require.NoError(t, p.start().Unprepare(t.Context(), claims.Ref("a")))
	assert.Equal(t, []string{before.Devices[0].UUID}, p.hardware.destroyed)
}
