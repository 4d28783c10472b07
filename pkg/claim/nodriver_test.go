package claim

import (
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

// withoutTheDriver makes the driver of all GPUs unusable until the result is called.
func (p *place) withoutTheDriver() (back func()) {
	p.hardware.onLive = func(gpuID string) error {
		return &gpu.DriverError{PCIAddress: gpuID, Vendor: gpu.NVIDIA, Err: errors.New("its library is missing")}
	}
	return func() { p.hardware.onLive = nil }
}

// A pod whose partition cannot be removed, because the driver cannot be used, leaves
// all the same. The partition is removed when the driver is back, and is nobody
// else's until then.
func TestReleaseWithoutTheDriver(t *testing.T) {
	p := newPlace(t, 2)
	m := p.start()
	_, err := m.Prepare(t.Context(), claims.For("a", claims.MIG(0, "3g.40gb", 4, 4), claims.Whole(1)))
	require.NoError(t, err)

	back := p.withoutTheDriver()
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")))
	assert.NoFileExists(t, p.cdiFile("a"))
	assert.Equal(t, []string{claims.MIG(0, "3g.40gb", 4, 4).Name()}, p.hardware.names())
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")), "the kubelet may ask twice")
	assert.Empty(t, m.Reconcile(t.Context(), noClaims), "what waits for the driver is no news")

	// It is known after a restart, too, and for others it is held.
	m = p.start()
	back()
	b := claims.For("b", claims.MIG(0, "1g.10gb", 5, 1))
	_, err = m.prepare(t.Context(), b, must(m.want(b)), false)
	conflict := (*plan.ConflictError)(nil)
	require.ErrorAs(t, err, &conflict)
	foreign, err := m.Foreign(t.Context(), claims.Address(0))
	require.NoError(t, err)
	assert.Empty(t, foreign, "it is not somebody else's")

	assert.Empty(t, m.Reconcile(t.Context(), api(claims.For("a", claims.MIG(0, "3g.40gb", 4, 4), claims.Whole(1)))), "also of a claim that lives on")
	p.nothingHeld(m)
	_, err = m.Prepare(t.Context(), claims.For("b", claims.MIG(0, "1g.10gb", 5, 1)))
	require.NoError(t, err)
}

func must(r ledger.Record, err error) ledger.Record {
	if err != nil {
		panic(err)
	}
	return r
}

// A whole GPU needs no driver to be released, and neither does what was made under an
// earlier load of it: the record goes at once.
func TestReleaseThatNeedsNoDriver(t *testing.T) {
	p := newPlace(t, 2)
	m := p.start()
	_, err := m.Prepare(t.Context(), claims.For("a", claims.Whole(1)))
	require.NoError(t, err)
	_, err = m.Prepare(t.Context(), claims.For("b", claims.MIG(0, "1g.10gb", 0, 1)))
	require.NoError(t, err)
	p.withoutTheDriver()
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")))
	p.hardware.loadID = "boot-2"
	p.hardware.lose()
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("b")))
	p.nothingHeld(m)
}

// A claim that was released without the driver and is prepared again has its partition
// again, which nobody removes.
func TestPreparedAgainAfterReleaseWithoutTheDriver(t *testing.T) {
	p := newPlace(t, 1)
	m := p.start()
	c := claims.For("a", claims.MIG(0, "1g.10gb", 0, 1))
	_, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	back := p.withoutTheDriver()
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")))
	_, err = m.Prepare(t.Context(), c)
	require.ErrorContains(t, err, "its library is missing", "what was released is not prepared on paper")
	back()
	assert.Empty(t, m.FinishReleases(t.Context()))

	record, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.False(t, record.Released)
	assert.Empty(t, m.Reconcile(t.Context(), api(c)))
	assert.Len(t, p.hardware.names(), 1)
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")))
	p.nothingHeld(m)
}

// While the driver cannot be used, running pods keep what they have, also when the
// kubelet asks for it again, and new ones are told why they get nothing.
func TestPrepareWithoutTheDriver(t *testing.T) {
	p := newPlace(t, 1)
	m := p.start()
	c := claims.For("a", claims.MIG(0, "1g.10gb", 0, 1))
	before, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	p.withoutTheDriver()
	again, err := m.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, before, again)
	_, err = m.Prepare(t.Context(), claims.For("b", claims.MIG(0, "1g.10gb", 1, 1)))
	require.ErrorContains(t, err, fmt.Sprintf("the NVIDIA driver of GPU %s cannot be used: its library is missing", gpu.NameOf(claims.Address(0))))
	assert.Len(t, m.Ledger.List(), 1)
}

// A release that nobody asked for is not postponed: that the pods have left is not
// known then.
func TestReconcilePostponesNothing(t *testing.T) {
	p := newPlace(t, 1)
	m := p.start()
	_, err := m.Prepare(t.Context(), claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	require.NoError(t, err)
	back := p.withoutTheDriver()
	findings := m.Reconcile(t.Context(), noClaims)
	require.Len(t, findings, 1)
	require.ErrorContains(t, findings[0].Err, "its library is missing")
	assert.FileExists(t, p.cdiFile("a"))
	back()
	require.NoError(t, m.Reconcile(t.Context(), noClaims)[0].Err)
	p.nothingHeld(m)
}
