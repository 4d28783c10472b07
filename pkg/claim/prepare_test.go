package claim

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

func TestPrepareAndUnprepare(t *testing.T) {
	p, m := startNode(t, 2)
	seen := &phases{}
	m.Observer = seen
	one, g := claims.MIG(0, "1g.10gb", 5, 1), claims.Whole(1)

	r := mustPrepare(t, m, claims.For("a", one, g))
	assert.Equal(t, ledger.Prepared, r.State)
	assert.Equal(t, "MIG-1", r.Devices[0].UUID)
	assert.Equal(t, "GPU-"+claims.Address(1), r.Devices[1].UUID)
	assert.Equal(t, []string{"pod-a"}, r.PodNames())
	kept, _ := m.Ledger.Get("a")
	assert.Equal(t, r, kept)
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	spec := p.spec("a")
	assert.Contains(t, spec, "TRANCHE_DEVICE_GPU_0000_01_00_0_MIG_1G_10GB_5=1g.10gb MIG-1")
	assert.Contains(t, spec, "TRANCHE_DEVICE_GPU_0000_02_00_0=gpu GPU-"+claims.Address(1))

	mustRelease(t, m, "a")
	p.nothingHeld(m)
	assert.Equal(t, []string{
		"prepare lock", "prepare plan", "prepare intent", "prepare create", "prepare create", "prepare cdi", "prepare done",
		"unprepare lock", "unprepare remove-cdi", "unprepare destroy", "unprepare forget",
	}, seen.seen)

	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("a")), "a second time")
	require.NoError(t, m.Unprepare(t.Context(), claims.Ref("never")), "never prepared")
}

// A second Prepare answers the same and touches nothing, in this run of the
// driver and in the next.
func TestPrepareAgain(t *testing.T) {
	p, m := startNode(t, 1)
	c := claims.For("a", claims.MIG(0, "1g.10gb", 5, 1))
	first := mustPrepare(t, m, c)
	before, err := os.Stat(p.cdiFile("a"))
	require.NoError(t, err)

	for _, m := range []*Manager{m, p.start()} {
		seen := &phases{}
		m.Observer = seen
		again := mustPrepare(t, m, c)
		assert.Equal(t, first, again)
		assert.Equal(t, []string{"prepare lock", "prepare plan"}, seen.seen)
	}
	after, err := os.Stat(p.cdiFile("a"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "the CDI file was written again")
}

// After a reboot, what is found at a claim's place is somebody else's: it is
// neither prepared nor destroyed, even by its UUID.
func TestPrepareAfterRebootLeavesForeignPartition(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 1)
	c := claims.For("a", one)
	mustPrepare(t, p.start(), c)
	p.hardware.lose()
	p.hardware.add(one, "MIG-1")
	p.hardware.loadID = "boot-2"

	m := p.start()
	_, _, err := m.Prepare(t.Context(), c)
	require.ErrorContains(t, err, "that Tranche did not make")
	mustRelease(t, m, "a")
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	assert.Empty(t, p.hardware.destroyed)
	assert.Empty(t, m.Ledger.List())
}

// A monitor takes nothing, and starts although a GPU does not answer: then one looks.
func TestMonitor(t *testing.T) {
	p, m := startNode(t, 2)
	one := claims.MIG(0, "1g.10gb", 5, 1)
	mustPrepare(t, m, claims.For("a", one))
	lost := func(gpuID string) error {
		if gpuID == claims.Address(1) {
			return gpu.ErrLost
		}
		return nil
	}
	p.hardware.onLive = lost
	p.hardware.onEdits = func(q gpu.Placement) error { return lost(q.GPU) }
	mustPrepare(t, m, claims.Monitors("look", 0, 1))
	assert.Contains(t, p.spec("look"), "/dev/gpu-0000-01-00-0-monitor")
	assert.NotContains(t, p.spec("look"), "/dev/gpu-0000-02-00-0-monitor")
	mustRelease(t, m, "look")
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// Two requests of a claim with one device: no runtime reads a CDI file with two devices of one name.
func TestOneDeviceTwiceInAClaim(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.Of("a", slices.Concat(claims.Monitors("", 0).Status.Allocation.Devices.Results, claims.Monitors("", 0).Status.Allocation.Devices.Results)...))
	assert.Equal(t, 1, strings.Count(p.spec("a"), `"name":"gpu-0000-01-00-0-monitor_a"`))
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// The claim was deallocated and allocated again while the kubelet was away: its
// UID is the same, its devices are not.
func TestPrepareReallocatedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, now := claims.MIG(0, "3g.40gb", 0, 4), claims.MIG(1, "1g.10gb", 5, 1)
		p, m := startNode(t, 2)
		mustPrepare(t, m, claims.For("a", before))

		r := mustPrepare(t, m, claims.For("a", now))
		assert.Equal(t, []string{now.Name()}, p.hardware.names())
		assert.Equal(t, now.Name(), r.Devices[0].Name)

		// While a process uses the old one, the new one is not made.
		p.hardware.onDestroy = at(now, usedBy7)
		_, _, err := m.Prepare(t.Context(), claims.For("a", before))
		require.ErrorContains(t, err, "release what claim team/claim-a held before")
		assert.Equal(t, []string{now.Name()}, p.hardware.names())

		// A GPU that does not answer keeps it from nothing else.
		p.hardware.onDestroy = at(now, errScripted)
		mustPrepare(t, m, claims.For("a", before))
		p.hardware.onDestroy = nil
		assert.Empty(t, m.FinishReleases(t.Context()))
		assert.Equal(t, []string{before.Name()}, p.hardware.names())
	})
}

func TestPrepareRefusesBeforeTouching(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p, m := startNode(t, 1)
	p.hardware.onLive = func(string) error { return errScripted }
	_, _, err := m.Prepare(t.Context(), claims.For("a", one))
	require.ErrorContains(t, err, "list the partitions of GPU gpu-0000-01-00-0: scripted failure")
	p.nothingHeld(m)

	// A pod that is not one, as users of the claim go, is not named.
	p.hardware.onLive = nil
	c := claims.For("a", one)
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "jobs", Name: "j"})
	r := mustPrepare(t, m, c)
	assert.Equal(t, []string{"pod-a"}, r.PodNames())
}
