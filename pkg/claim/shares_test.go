package claim

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

func TestPrepareAndUnprepareShare(t *testing.T) {
	p, m := startSharingNode(t, 2)
	seen := &phases{}
	m.Observer = seen
	r := mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "2000Mi"))

	d := r.Devices[0]
	assert.Equal(t, &gpu.Amount{Memory: 2000 << 20, Clients: 1}, d.Amount)
	assert.Equal(t, "GPU-"+claims.Address(0), d.UUID)
	assert.Equal(t, &gpu.Settings{ComputeMode: "own"}, d.Before)
	assert.False(t, d.Made)
	assert.Equal(t, []string{"a " + d.Key()}, p.shares.holders())
	spec := p.spec("a")
	assert.Contains(t, spec, `"name":"`+d.Key()+`_a"`)
	assert.Contains(t, spec, `"/dev/gpu-0000-01-00-0"`, "the containers see the GPU")
	assert.Contains(t, spec, "_MEMORY_SHARE_"+string(d.ShareID[:8])+"=memory-share 2000Mi GPU-"+claims.Address(0))
	assert.Contains(t, spec, `"SHARE=`+d.Key()+`"`)
	assert.Contains(t, spec, `"/pipe"`)

	mustRelease(t, m, "a")
	p.nothingShared(m)
	assert.Equal(t, []string{
		"prepare lock", "prepare plan", "prepare intent", "prepare create", "prepare join", "prepare cdi", "prepare done",
		"unprepare lock", "unprepare remove-cdi", "unprepare leave", "unprepare forget",
	}, seen.seen, "the ledger is written no more often than for a partition")
}

func TestSettingsCannotBeRead(t *testing.T) {
	p, m := startSharingNode(t, 1)
	p.shares.onSettings = func() error { return errScripted }
	_, _, err := m.Prepare(t.Context(), claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	require.ErrorIs(t, err, errScripted)
	require.ErrorContains(t, err, "read the settings of GPU gpu-0000-01-00-0 before gpu-0000-01-00-0-memory-share changes them")
	p.nothingShared(m)
}

// What the GPU was like before is known from the first try. By the second it may be set already.
func TestSettingsAreReadOnce(t *testing.T) {
	p, m := startSharingNode(t, 1)
	a := claims.ShareClaim("a", claims.MemoryShare(0), "10Gi")
	mustPrepare(t, m, a)
	r, ok := m.Ledger.Get("a")
	require.True(t, ok)
	r.State = ledger.Preparing // as if the plugin had been killed
	require.NoError(t, m.Ledger.Put(r))
	p.shares.onSettings = func() error { return errScripted }
	mustPrepare(t, m, a)
	r, _ = m.Ledger.Get("a")
	assert.Equal(t, &gpu.Settings{ComputeMode: "own"}, r.Devices[0].Before)
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// Two shares of one device in one claim are two devices.
func TestTwoSharesOfOneDeviceInOneClaim(t *testing.T) {
	for name, device := range map[string]gpu.Placement{"whole GPU": claims.MemoryShare(0), "partition": claims.MIGShare(0)} {
		t.Run(name, func(t *testing.T) {
			p, m := startSharingNode(t, 1)
			c := claims.Of("a", claims.ShareResult("one", device, "memory", "10Gi"), claims.ShareResult("two", device, "memory", "20Gi", "clients", "3"))
			r := mustPrepare(t, m, c)
			assert.NotEqual(t, r.Devices[0].Key(), r.Devices[1].Key())
			assert.Len(t, p.shares.holders(), 2)
			spec := p.spec("a")
			for _, d := range r.Devices {
				assert.Contains(t, spec, `"name":"`+d.Key()+`_a"`)
			}
			assert.Contains(t, spec, "=memory-share 10240Mi")
			assert.Contains(t, spec, "=memory-share 20480Mi")
			mustRelease(t, m, "a")
			p.nothingShared(m)
		})
	}
}

// What fails is taken back, for this claim only.
func TestJoinFailsAndIsUndone(t *testing.T) {
	for _, others := range []int{0, 1} {
		p, m := startSharingNode(t, 2)
		if others > 0 {
			mustPrepare(t, m, claims.ShareClaim("other", claims.MIGShare(0), "10Gi"))
		}
		p.shares.onJoin = func(h Holder) error {
			if h.Device.Request == "two" {
				return errScripted
			}
			return nil
		}
		c := claims.Of("a", claims.ShareResult("one", claims.MIGShare(0), "memory", "10Gi"), claims.ShareResult("two", claims.MemoryShare(1), "memory", "10Gi"))
		_, _, err := m.Prepare(t.Context(), c)
		require.ErrorIs(t, err, errScripted)
		require.ErrorContains(t, err, "set up gpu-0000-02-00-0-memory-share")
		if others > 0 {
			assert.Equal(t, []string{claims.MIG(0, "3g.40gb", 0, 4).Name()}, p.hardware.names(), "the other one keeps it")
			assert.Len(t, p.shares.holders(), 1)
			mustRelease(t, m, "other")
		}
		p.nothingShared(m)
	}
}

// Containers may be running with it: a repair that fails leaves a partition, and a share joined.
func TestRepairFails(t *testing.T) {
	for name, c := range map[string]*resourceapi.ResourceClaim{
		"partition": claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)), "share of a partition": claims.ShareClaim("a", claims.MIGShare(0), "10Gi"),
		"share of a GPU": claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"),
	} {
		t.Run(name, func(t *testing.T) {
			p, m := startSharingNode(t, 1)
			before := mustPrepare(t, m, c)
			require.NoError(t, os.Remove(p.cdiFile("a")))
			p.hardware.onCommon = func() error { return errScripted }
			p.shares.onLeave = func(Holder) error { t.Error("it was made to leave"); return nil }
			_, _, err := m.Prepare(t.Context(), c)
			require.ErrorIs(t, err, errScripted)
			assert.Empty(t, p.hardware.destroyed)
			r, _ := m.Ledger.Get("a")
			assert.Equal(t, ledger.Prepared, r.State)
			assert.Equal(t, before.Devices[0].UUID, r.Devices[0].UUID)
		})
	}
}

// After a reboot the daemons' folders may still be there: each claim's is ended,
// and nothing of the GPU's settings is brought back.
func TestReleaseOfSharesAfterReboot(t *testing.T) {
	p, m := startSharingNode(t, 2)
	mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	mustPrepare(t, m, claims.ShareClaim("b", claims.MemoryShare(0), "10Gi"))
	mustPrepare(t, m, claims.ShareClaim("c", claims.MIGShare(1), "10Gi"))
	p.hardware.lose()
	p.hardware.loadID = "boot-2"
	p.shares.modes = map[string]string{}

	m = p.start()
	mustPrepare(t, m, claims.ShareClaim("b", claims.MemoryShare(0), "10Gi"))
	lapsed := 0
	p.shares.onLeave = func(h Holder) error {
		if h.Lapsed {
			lapsed++
		}
		return nil
	}
	mustRelease(t, m, "a")
	assert.Equal(t, 1, lapsed)
	assert.Equal(t, "shared", p.shares.mode(claims.Address(0)), "b was prepared again")
	running, _ := p.shares.Running()
	assert.Equal(t, []string{"b"}, running)
	mustRelease(t, m, "c")
	assert.Equal(t, 2, lapsed)
	assert.Empty(t, p.hardware.destroyed)
	mustRelease(t, m, "b")
	assert.Equal(t, 2, lapsed)
	p.nothingShared(m)
}

// A record of before the reboot does not keep a partition that was made since.
func TestSharedPartitionAfterReboot(t *testing.T) {
	p, m := startSharingNode(t, 1)
	mustPrepare(t, m, claims.ShareClaim("a", claims.MIGShare(0), "10Gi"))
	mustPrepare(t, m, claims.ShareClaim("b", claims.MIGShare(0), "10Gi"))
	p.hardware.lose()
	p.hardware.loadID = "boot-2"
	m = p.start()
	mustPrepare(t, m, claims.ShareClaim("a", claims.MIGShare(0), "10Gi"))
	mustRelease(t, m, "a")
	assert.Equal(t, []string{"MIG-2"}, p.hardware.destroyed)
	mustRelease(t, m, "b")
	p.nothingShared(m)
}

// A plugin without sharing refuses shares by name, and still releases those that an
// earlier one has prepared.
func TestSharesWithoutSharer(t *testing.T) {
	p, m := startSharingNode(t, 1)
	mustPrepare(t, m, claims.ShareClaim("a", claims.MIGShare(0), "10Gi"))
	m.Shares = nil
	_, _, err := m.Prepare(t.Context(), claims.ShareClaim("b", claims.MemoryShare(0), "10Gi"))
	require.ErrorContains(t, err, "gpu-0000-01-00-0-memory-share is a share, and this plugin was started without sharing")
	require.Empty(t, m.Reconcile(t.Context(), api(claims.ShareClaim("a", claims.MIGShare(0), "10Gi"))))
	require.NoError(t, m.Rejoin(t.Context(), "a"))
	mustRelease(t, m, "a")
	p.nothingHeld(m)
}

// The claim got another share of the same device: that is another allocation.
func TestReallocatedShare(t *testing.T) {
	p, m := startSharingNode(t, 1)
	mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	now := claims.Of("a", claims.ShareResult("ra", claims.MemoryShare(0), "memory", "70Gi"))
	now.Status.Allocation.Devices.Results[0].ShareID = new(*now.Status.Allocation.Devices.Results[0].ShareID + "-2")
	findings := m.Reconcile(t.Context(), api(now))
	require.Len(t, findings, 1)
	assert.Equal(t, "LeftoverReleased", findings[0].Reason)
	mustPrepare(t, m, now)
	r, _ := m.Ledger.Get("a")
	assert.EqualValues(t, 70*claims.GiB, r.Devices[0].Amount.Memory)
	assert.Empty(t, m.Reconcile(t.Context(), api(now)))
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// Reconcile stops daemons of which no record knows, and no other.
func TestReconcileStopsStrayDaemons(t *testing.T) {
	p, m := startSharingNode(t, 1)
	c := claims.ShareClaim("a", claims.MemoryShare(0), "10Gi")
	mustPrepare(t, m, c)
	p.shares.daemons["gone"] = true
	p.shares.daemons[gpu.NameOf(claims.Address(0))] = true
	findings := m.Reconcile(t.Context(), api(c))
	require.Len(t, findings, 2)
	assert.Contains(t, findings, Finding{Reason: "StrayDaemonStopped", Message: "daemon gone serves no claim in the ledger and is stopped"})
	running, _ := p.shares.Running()
	assert.Equal(t, []string{"a"}, running)
	assert.Empty(t, m.Reconcile(t.Context(), api(c)))
}

// A daemon that died is brought back for the claim that is prepared, and for
// nobody else.
func TestRejoin(t *testing.T) {
	p, m := startSharingNode(t, 1)
	mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	delete(p.shares.daemons, "a")
	p.shares.slow = true
	require.NoError(t, m.Rejoin(t.Context(), "a"))
	running, _ := p.shares.Running()
	assert.Equal(t, []string{"a"}, running)

	p.shares.onJoin = func(Holder) error { return errScripted }
	require.ErrorIs(t, m.Rejoin(t.Context(), "a"), errScripted)
	require.NoError(t, m.Rejoin(t.Context(), "never"))
	p.hardware.loadID = "boot-2"
	require.NoError(t, m.Rejoin(t.Context(), "a"), "it is prepared again first")
}

// A GPU in MIG mode has no settings: they are read when what is shared exists, and
// written down before they change.
func TestSettingsAreReadOnceTheShareExists(t *testing.T) {
	p, m := startSharingNode(t, 1)
	created := false
	p.hardware.onCreate = func(context.Context, gpu.Placement) error { created = true; return nil }
	p.shares.onSettings = func() error {
		if !created {
			return gpu.ErrNotSupported
		}
		return nil
	}
	p.shares.onJoin = func(h Holder) error {
		r, ok := m.Ledger.Get(h.Claim.UID)
		require.True(t, ok)
		assert.Equal(t, &gpu.Settings{ComputeMode: "own"}, r.Devices[0].Before, "in the ledger")
		return nil
	}
	mustPrepare(t, m, claims.ShareClaim("a", claims.MemoryShare(0), "10Gi"))
	mustRelease(t, m, "a")
	p.nothingShared(m)
}

// Who joins second has the first beside it; who leaves first has none but those
// that leave after it.
func TestHolderOthers(t *testing.T) {
	r := claims.Holding("a", ledger.Preparing, claims.MemoryShare(0), claims.Memory(1))
	r.Devices = append(r.Devices, r.Devices[0], claims.Holding("a", ledger.Preparing, claims.MemoryShare(1), claims.Memory(1)).Devices[0])
	r.Devices[1].ShareID = "second"
	other := claims.Holding("b", ledger.Preparing, claims.MemoryShare(0), claims.Memory(2))
	look := claims.Record("c", ledger.Prepared, gpu.Monitor(claims.Address(0)))
	for device, want := range [][]ledger.Device{other.Devices, {other.Devices[0], r.Devices[0]}, nil} {
		h := holder(r, device, []ledger.Record{other, look})
		assert.Equal(t, want, h.Others, device)
		assert.Equal(t, r.Devices[device], h.Device)
		assert.Len(t, h.Devices, 3)
	}
}
