package claim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/claims"
)

// withoutTheDriver makes the driver of all GPUs unusable until the result is called.
func (p *place) withoutTheDriver() (back func()) {
	p.hardware.onLive = func(gpuID string) error {
		return &gpu.DriverError{PCIAddress: gpuID, Vendor: gpu.NVIDIA, Err: errors.New("its library is missing")}
	}
	return func() { p.hardware.onLive = nil }
}

// A whole GPU needs no driver to be released, and neither does what was made under an
// earlier load of it: the record goes at once.
func TestReleaseThatNeedsNoDriver(t *testing.T) {
	p, m := startNode(t, 2)
	mustPrepare(t, m, claims.For("a", claims.Whole(1)))
	mustPrepare(t, m, claims.For("b", claims.MIG(0, "1g.10gb", 0, 1)))
	p.withoutTheDriver()
	mustRelease(t, m, "a")
	p.hardware.loadID = "boot-2"
	p.hardware.lose()
	mustRelease(t, m, "b")
	p.nothingHeld(m)
}

// A claim that was released without the driver and is prepared again has its partition
// again, which nobody removes.
func TestPreparedAgainAfterReleaseWithoutTheDriver(t *testing.T) {
	p, m := startNode(t, 1)
	c := claims.For("a", claims.MIG(0, "1g.10gb", 0, 1))
	mustPrepare(t, m, c)
	back := p.withoutTheDriver()
	mustRelease(t, m, "a")
	_, _, err := m.Prepare(t.Context(), c)
	require.ErrorContains(t, err, "its library is missing", "what was released is not prepared on paper")
	back()
	assert.Empty(t, m.FinishReleases(t.Context()))

	record := mustPrepare(t, m, c)
	assert.False(t, record.Released)
	assert.Empty(t, m.Reconcile(t.Context(), api(c)))
	assert.Len(t, p.hardware.names(), 1)
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// While the driver cannot be used, running pods keep what they have, also when the
// kubelet asks for it again, and new ones are told why they get nothing.
func TestPrepareWithoutTheDriver(t *testing.T) {
	p, m := startNode(t, 1)
	c := claims.For("a", claims.MIG(0, "1g.10gb", 0, 1))
	before := mustPrepare(t, m, c)
	p.withoutTheDriver()
	again := mustPrepare(t, m, c)
	assert.Equal(t, before, again)
	_, _, err := m.Prepare(t.Context(), claims.For("b", claims.MIG(0, "1g.10gb", 1, 1)))
	require.ErrorContains(t, err, fmt.Sprintf("the NVIDIA driver of GPU %s cannot be used: its library is missing", gpu.NameOf(claims.Address(0))))
	assert.Len(t, m.Ledger.List(), 1)
}

// The driver may be closed at any time. What was begun without it is undone, the pod ends, and the next
// attempt finishes the rest.
func TestDriverIsClosedMeanwhile(t *testing.T) {
	for n, closed := 0, true; closed; n++ {
		p, m := startSharingNode(t, 1)
		asked := 0
		m.Driver = func(string) (hardware.Driver, error) {
			asked++
			if closed = asked > n; asked == n+1 {
				return nil, errScripted
			}
			return p.hardware, nil
		}
		c := claims.ShareClaim("a", claims.MIGShare(0), "10Gi")
		if _, _, err := m.Prepare(t.Context(), c); closed {
			require.ErrorIs(t, err, errScripted, "lookup %d", n)
			mustPrepare(t, m, c)
		} else {
			require.NoError(t, err)
		}
		mustRelease(t, m, "a")
		assert.Empty(t, m.FinishReleases(t.Context()))
		p.nothingShared(m)
	}
}

// A release that nobody asked for is not postponed: that the pods have left is not
// known then.
func TestReconcilePostponesNothing(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	back := p.withoutTheDriver()
	findings := m.Reconcile(t.Context(), noClaims)
	require.Len(t, findings, 1)
	require.ErrorContains(t, findings[0].Err, "its library is missing")
	assert.FileExists(t, p.cdiFile("a"))
	back()
	require.NoError(t, m.Reconcile(t.Context(), noClaims)[0].Err)
	p.nothingHeld(m)
}
