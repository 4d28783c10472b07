package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
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
	p, m := startNode(t, 2)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1), claims.MIG(1, "1g.10gb", 0, 1)))
	back := p.loseGPU(gpu.ErrLost)
	mustRelease(t, m, "a")
	assert.NoFileExists(t, p.cdiFile("a"))
	assert.Equal(t, []string{claims.MIG(0, "1g.10gb", 0, 1).Name()}, p.hardware.names(), "the other GPU's partition is gone")
	assert.Empty(t, ledger.InUse(m.Ledger.List()))
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")), "the kubelet may ask again")

	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)), "the GPU is still lost")
	m = p.start() // the ledger outlives the plugin
	assert.Empty(t, m.Reconcile(t.Context(), noClaims), "the claim is released")
	require.Len(t, m.Ledger.List(), 1)

	back()
	b := claims.For("b", claims.MIG(0, "1g.10gb", 0, 1))
	require.ErrorAs(t, prepareOnce(t, m, b), new(*steps.ConflictError), "what is left is in the way")
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)))
	p.nothingHeld(m)
	mustPrepare(t, m, b)
	mustRelease(t, m, "b")
	p.nothingHeld(m)
}

// The claim itself can be prepared on another GPU while its leftovers wait, and lose
// that one, too.
func TestClaimMovesOnFromALostGPU(t *testing.T) {
	p, m := startNode(t, 2)
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
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
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
	p, m := startSharingNode(t, 1)
	for _, uid := range []string{"a", "b"} {
		mustPrepare(t, m, claims.ShareClaim(uid, claims.MemoryShare(0), "10Gi"))
	}
	back := p.loseGPU(gpu.ErrLost)
	for _, uid := range []string{"a", "b"} {
		mustRelease(t, m, uid)
	}
	assert.Empty(t, ledger.InUse(m.Ledger.List()))
	assert.Equal(t, "shared", p.shares.mode(claims.Address(0)))
	back()
	assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)))
	assert.Equal(t, "own", p.shares.mode(claims.Address(0)))
	assert.Empty(t, m.Ledger.List())
}

// failures are answers of a driver that say nothing about a process.
var failures = map[string]error{
	"hung": context.DeadlineExceeded, "another error": errScripted, "in use by nobody": fmt.Errorf("gpu: %w", gpu.ErrInUse),
	"lost": gpu.ErrLost, "no driver": &gpu.DriverError{PCIAddress: claims.Address(0), Vendor: gpu.NVIDIA, Err: errScripted},
}

// failingSteps make one call of a release fail.
var failingSteps = map[string]func(*place, error){
	"list": func(p *place, err error) { p.hardware.onLive = func(string) error { return err } },
	"destroy": func(p *place, err error) {
		p.hardware.onDestroy = func(context.Context, gpu.Placement) error { return err }
	},
	"leave": func(p *place, err error) { p.shares.onLeave = func(Holder) error { return err } },
	"unknown load": func(p *place, err error) {
		p.hardware.loadID, p.hardware.onLive = "", func(string) error { return err }
	},
}

// mend lets the hardware answer again.
func (p *place) mend() {
	p.hardware.loadID = "boot-1"
	p.hardware.onLive, p.hardware.onDestroy, p.shares.onLeave = nil, nil, nil
}

// Whatever the hardware answers, the pod ends. What its claim had stays in the ledger, is nobody
// else's, and goes when the hardware answers again, also after a restart.
func TestReleaseAlwaysEnds(t *testing.T) {
	for why, failure := range failures {
		for step, fail := range failingSteps {
			for what, c := range map[string]*resourceapi.ResourceClaim{
				"partition": claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)), "share of a partition": claims.ShareClaim("a", claims.MIGShare(0), "10Gi"),
				"share of a GPU": claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"),
			} {
				t.Run(why+", "+step+", "+what, func(t *testing.T) {
					t.Parallel()
					p, m := startSharingNode(t, 1)
					mustPrepare(t, m, c)
					made := p.hardware.names()
					fail(p, failure)
					mustRelease(t, m, "a")
					assert.NoFileExists(t, p.cdiFile("a"))
					assert.Empty(t, ledger.InUse(m.Ledger.List()))
					mustRelease(t, m, "a") // the kubelet may ask again

					m = p.start()
					assert.Empty(t, m.FinishReleases(t.Context(), claims.Address(0)), "it was told")
					for _, left := range m.Leftovers(claims.Ref("a")) {
						assert.Contains(t, left.Cause, failure.Error())
					}
					// A partition that is nobody's share has no daemon to leave.
					if stays := step != "leave" || what == "share of a partition"; stays && len(made) > 0 {
						require.Len(t, m.Leftovers(claims.Ref("a")), 1)
						assert.Equal(t, made, p.hardware.names(), "nothing of it is removed halfway")
						p.mend()
						assert.Empty(t, foreignOn(t, m, claims.Address(0)))
						err := prepareOnce(t, m, claims.For("b", claims.MIG(0, "1g.10gb", 0, 1)))
						require.ErrorAs(t, err, new(*steps.ConflictError))
						assert.ErrorContains(t, err, "could not be removed from the GPU: ")
						assert.ErrorContains(t, err, "drained and rebooted")
					}
					p.mend()
					assert.Empty(t, m.Reconcile(t.Context(), api(c)), "also of a claim that lives on")
					p.nothingShared(m)
				})
			}
		}
	}
}

// The scheduler is told which devices a leftover is in the way of, until it is removed.
func TestLeftInTheWay(t *testing.T) {
	partition, half, whole := claims.MIG(0, "1g.10gb", 0, 1), claims.MIG(0, "3g.40gb", 0, 4), claims.Whole(0)
	free := claims.MIG(0, "1g.10gb", 4, 1)
	halfShare, wholeShare := claims.MIGShare(0), claims.MemoryShare(0)
	otherShare := claims.FractionShare(0) // another device of the whole GPU
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		// taken are the devices, alone those without their shares.
		taken, alone []gpu.Placement
	}{
		"partition":            {claim: claims.For("a", partition), taken: []gpu.Placement{partition, half, whole}},
		"share of a partition": {claim: claims.ShareClaim("a", halfShare, "10Gi"), taken: []gpu.Placement{partition, whole}, alone: []gpu.Placement{half}},
		"share of a GPU":       {claim: claims.ShareClaim("a", wholeShare, "10Gi"), taken: []gpu.Placement{partition, half, free}, alone: []gpu.Placement{whole, otherShare}},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := startSharingNode(t, 2)
			g := p.hardware.gpus[0]
			g.Placements = []gpu.Placement{partition, half, whole, free, halfShare, wholeShare, otherShare}
			mustPrepare(t, m, test.claim)
			assert.Empty(t, m.LeftInTheWay(&g), "it is not released")
			failingSteps["destroy"](p, errScripted)
			failingSteps["leave"](p, errScripted)
			mustRelease(t, m, "a")
			var want, got []string
			for _, q := range test.taken {
				want = append(want, q.Name()+" false")
			}
			for _, q := range test.alone {
				want = append(want, q.Name()+" true")
			}
			for _, o := range m.LeftInTheWay(&g) {
				got = append(got, fmt.Sprintf("%s %t", o.Placement, o.Alone))
				assert.Equal(t, gpu.ObstacleFailed, o.Kind)
				assert.Contains(t, o.Reason, "claim team/claim-a was released, but ")
				assert.NotContains(t, o.Reason, errScripted.Error(), "it stays the same when the cause changes")
			}
			assert.ElementsMatch(t, want, got)
			p.mend()
			assert.Empty(t, m.FinishReleases(t.Context()))
			assert.Empty(t, m.LeftInTheWay(&g))
		})
	}
}

// Only the first and a new reason are reported.
func TestReasonsOfLeftoversAreReportedOnce(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	p.hardware.onDestroy = func(context.Context, gpu.Placement) error { return errScripted }
	mustRelease(t, m, "a")
	assert.Empty(t, m.FinishReleases(t.Context()))
	p.hardware.onDestroy = func(context.Context, gpu.Placement) error { return errors.New("another reason") }
	findings := m.FinishReleases(t.Context())
	require.Len(t, findings, 1)
	assert.Equal(t, "Claim team/claim-a was released, but gpu-0000-01-00-0-mig-1g-10gb-0 could not be removed from the hardware: destroy gpu-0000-01-00-0-mig-1g-10gb-0: another reason. This is retried, and no other claim gets the place until then; if it lasts, drain the node and reboot it", findings[0].Message)
	assert.Empty(t, m.FinishReleases(t.Context()))
}

// What a claim leaves on a GPU a second time does not replace what it left before.
func TestLeftoversOfTwoAllocations(t *testing.T) {
	p, m := startNode(t, 1)
	p.hardware.onDestroy = func(context.Context, gpu.Placement) error { return errScripted }
	for start := range 2 {
		mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", start, 1)))
		mustRelease(t, m, "a")
	}
	require.Len(t, m.Leftovers(claims.Ref("a")), 1)
	require.Len(t, p.hardware.names(), 2)
	p.hardware.onDestroy = nil
	assert.Empty(t, m.FinishReleases(t.Context()))
	p.nothingHeld(m)
}

// What is left behind is written before the claim is forgotten.
func TestLeftoversThatCannotBeWritten(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 0, 1)))
	p.loseGPU(gpu.ErrLost)
	left := filepath.Join(p.ledgerDir(), string(ledger.LeftoverUID("a", gpu.NameOf(claims.Address(0))))+".json")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "x"), 0o700))
	require.ErrorContains(t, m.Unprepare(t.Context(), claims.Ref("a")), "write the record")
	assert.True(t, m.Ledger.Has("a"))
}

// Dying at any step of such a release loses nothing.
func TestCrashDuringReleaseThatFails(t *testing.T) {
	for step, fail := range failingSteps {
		for n := 0; ; n++ {
			p, m := startSharingNode(t, 2)
			mustPrepare(t, m, claims.Of("a", claims.ResultOf("r", claims.MIG(1, "1g.10gb", 0, 1)), claims.ShareResult("s", claims.MIGShare(0), "memory", "10Gi")))
			fail(p, errScripted)
			dieBefore(m, n)
			died := crash(func() { _ = m.Unprepare(t.Context(), claims.Ref("a")) })
			m = p.start()
			require.Empty(t, m.Recover(nil))
			mustRelease(t, m, "a")
			require.Empty(t, ledger.InUse(m.Ledger.List()), "%s, before step %d", step, n)
			p.mend()
			m = p.start()
			require.Empty(t, m.FinishReleases(t.Context()))
			p.nothingShared(m)
			if !died {
				assert.Greater(t, n, 2, "steps of the release")
				break
			}
		}
	}
}
