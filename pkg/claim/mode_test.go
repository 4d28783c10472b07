package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/test/claims"
)

// The drivers of two vendors are reloaded independently: what a claim holds
// on the GPUs of the other one is still its own.
func TestPrepareAfterOneDriverWasLoadedAnew(t *testing.T) {
	stays, goes := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(1, "1g.10gb", 2, 1)
	p := newPlace(t, 2)
	c := claims.For("a", stays, goes)
	before := mustPrepare(t, p.start(), c)
	p.hardware.lose()
	p.hardware.add(stays, before.Devices[0].UUID)
	p.hardware.loads = map[string]string{claims.Address(1): "boot-1, second load"}

	m := p.start()
	assert.Empty(t, foreignOn(t, m, claims.Address(0)))
	now := mustPrepare(t, m, c)
	assert.Equal(t, before.Devices[0].UUID, now.Devices[0].UUID)
	assert.NotEqual(t, before.Devices[1].UUID, now.Devices[1].UUID)
	assert.Equal(t, "boot-1, second load", now.Devices[1].LoadID)

	// A third load, after which nobody prepares the claim again.
	p.hardware.loads = map[string]string{claims.Address(1): "boot-1, third load"}
	mustRelease(t, p.start(), "a")
	assert.Equal(t, []string{before.Devices[0].UUID}, p.hardware.destroyed)
}
