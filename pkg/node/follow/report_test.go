package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/nodetest/rig"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// hold has a claim hold devices, or have held them.
func (w *world) hold(name string, released bool, devices ...ledger.Device) {
	w.t.Helper()
	r := nodetest.PreparedRecord(name, nil, devices...)
	r.Claim.UID, r.Released = types.UID("uid-"+name), released
	require.NoError(w.t, w.rig.Records.Put(r))
}

// What the node reports of its GPUs, and who holds them.
func TestNodeReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	one := small(t, w)
	w.NoKernelLimits = func() string { return "no dmem controller" }
	report := w.nodeReport(t.Context())
	assert.Equal(t, []int32{2, 2, 0}, []int32{report.GPUCount, report.FreeGPUCount, report.ClaimCount})
	assert.Equal(t, []any{"v1", int32(v1beta1.ProtocolVersion), w.rig.Machine.BootID(), "no dmem controller"}, []any{report.PluginVersion, report.ProtocolVersion, report.BootID, report.KernelLimitsUnavailable})
	assert.NotEmpty(t, report.GPUs[0].SliceHash)
	report.GPUs[0].SliceHash = ""
	assert.Equal(t, v1beta1.GPUReport{Name: rig.GPU0, Vendor: "nvidia", ProductName: "NVIDIA H100 80GB HBM3", GPUModes: gpunodes.MIGOff}, report.GPUs[0])
	assert.Equal(t, []any{rig.GPU1, int32(1)}, []any{report.GPUs[1].Name, report.GPUs[1].Index})

	// Who watches or has released a GPU does not hold it; the partition of the latter is still there.
	whole := placement(t, w, rig.GPU1)
	w.hold("watches", false, nodetest.HeldDevice(placement(t, w, rig.GPU0), "", true))
	w.hold("released", true, nodetest.HeldDevice(one, "", false))
	report = w.nodeReport(t.Context())
	assert.Equal(t, []int32{2, 1}, []int32{report.FreeGPUCount, report.ClaimCount})
	assert.Equal(t, []v1beta1.PartitionReport{{Name: one.Name(), Profile: "1g.10gb"}}, report.GPUs[0].Partitions)
	assert.Empty(t, report.GPUs[0].HeldDevices)

	w.hold("holds", false, nodetest.HeldDevice(whole, "", false))
	w.hold("holds it, too", false, nodetest.HeldDevice(whole, "", false))
	foreign := gpu.Partition{GPU: rig.PCI0, Type: gpu.TypeMIG, Profile: "2g.20gb", Start: 4, Size: 2}
	w.Publisher.SetForeign(w.rig.Context, map[string][]gpu.Partition{rig.PCI0: {foreign}})
	report = w.nodeReport(t.Context())
	assert.Equal(t, []int32{1, 3}, []int32{report.FreeGPUCount, report.ClaimCount})
	assert.Equal(t, []string{whole.Name()}, report.GPUs[1].HeldDevices)
	assert.Empty(t, report.GPUs[1].Pending, "its device is offered")
	assert.Empty(t, report.GPUs[1].Partitions)
	assert.Equal(t, []v1beta1.PartitionReport{{Name: one.Name(), Profile: "1g.10gb"}, {Name: foreign.Name(), Profile: "2g.20gb"}}, report.GPUs[0].Partitions)

	w.rig.GPUs.Trouble(rig.PCI0, gpu.Problem{Message: "ECC"})
	report = w.nodeReport(t.Context())
	assert.Equal(t, []v1beta1.GPUProblem{{Cause: string(gpu.CauseCheck), Message: "ECC"}}, report.GPUs[0].Problems)
	assert.Zero(t, report.FreeGPUCount, "what has a problem is not free")
	assert.Equal(t, []v1beta1.GPUProblem{{Cause: "xid-79", Message: "lost"}}, ProblemsOf(gpu.Problem{Cause: gpu.XIDCause(79), Message: "lost"}))

	// The modes of a GPU that does not tell are those that were reported last.
	w.reported = report
	w.rig.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMigMode", GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}}})
	many := slices.Repeat([]ledger.Device{nodetest.HeldDevice(one, "", false)}, v1beta1.MaxGPUNames+1)
	for i := range many {
		many[i].Name = fmt.Sprint("device-", i)
	}
	w.hold("watches", false, many...)
	report = w.nodeReport(t.Context())
	assert.Equal(t, gpunodes.MIGOff, report.GPUs[0].GPUModes)
	assert.Len(t, report.GPUs[0].HeldDevices, v1beta1.MaxGPUNames)

	w.rig.GPUs.Remove([]string{rig.PCI0, rig.PCI1})
	report = w.nodeReport(t.Context())
	assert.Empty(t, report.GPUs)
	assert.EqualValues(t, 3, report.ClaimCount)
}

// What of a profile is not applied yet, and why.
func TestPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	one := small(t, w)
	pending := func() (all []string) {
		for _, g := range w.nodeReport(t.Context()).GPUs {
			all = append(all, g.Pending)
		}
		return all
	}
	assert.Equal(t, []string{"", ""}, pending())
	w.hold("a", false, nodetest.HeldDevice(one, "", false))
	require.Equal(t, v1beta1.TaskDone, w.answered(v1beta1.Applying, &v1beta1.Switch{ID: "1", From: none, To: snapshotOf(t, "halves only", "[{mig: {mode: Dynamic, profiles: [3g.40gb]}}]")}).Phase)
	assert.Equal(t, []string{one.Name() + " is no longer offered once its claim is released", ""}, pending())

	w.rig.Sharing.AddShares(w.rig.Context, w.rig.GPUs.Now()[:1], func(*gpu.GPU) profile.Desired { return profile.Default() })
	w.rig.HeldShares = []gpu.Placement{one}
	w.rig.Sharing.AddShares(w.rig.Context, w.rig.GPUs.Now()[:1], func(*gpu.GPU) profile.Desired {
		d := profile.Default()
		d.Shared, d.Replicas = true, 4
		return d
	})
	assert.True(t, strings.HasPrefix(pending()[0], "when no claim holds a share of the GPU: "), pending()[0])
	assert.Contains(t, pending()[0], "; "+one.Name())

	// A GPU that does not answer gets the profile later.
	w.rig.Problems = map[string]gpu.Problem{rig.PCI1: {Message: "lost"}}
	require.NoError(t, w.rig.Records.Delete("uid-a"))
	w.rig.HeldShares = nil
	w.rig.Look(t.Context())
	require.Equal(t, v1beta1.TaskDone, w.answered(v1beta1.Applying, &v1beta1.Switch{ID: "2", To: snapshotOf(t, "halves", twoHalves)}).Phase)
	assert.Equal(t, "the profile is applied when the GPU answers again", pending()[1])
	w.rig.Problems = nil
	w.rig.Look(t.Context())
	assert.Equal(t, "the profile is not applied yet", pending()[1])
}

// Without a switch, a change is reported after a while; during one, at once. What was refused is reported
// again.
func TestWhenToReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	count := func(state v1beta1.State) int { w.report(t.Context(), state); return len(w.reports) }
	w.refuse = errors.New("no answer")
	w.before = &v1beta1.NodeReport{}
	assert.Zero(t, count(v1beta1.Idle))
	assert.Nil(t, w.reported)
	assert.NotNil(t, w.before, "what an earlier run has reported is still what the API server has")
	w.refuse = nil
	assert.Equal(t, 1, count(v1beta1.Idle))
	assert.Nil(t, w.before)
	assert.Equal(t, 1, count(v1beta1.Draining), "nothing is new")
	for i, state := range []v1beta1.State{"", v1beta1.Idle, v1beta1.Failed} {
		w.hold(string(rune('a'+i)), false, nodetest.HeldDevice(small(t, w), "", false))
		assert.Equal(t, 1+i, count(state), "%s", state)
		w.reportedAt = time.Now().Add(-reportInterval)
		assert.Equal(t, 2+i, count(state), "%s", state)
	}
	w.hold("d", false, nodetest.HeldDevice(small(t, w), "", false))
	assert.Equal(t, 5, count(v1beta1.Draining))
	w.accepted = &v1beta1.PublishedTaints{SwitchID: "1"}
	assert.Equal(t, 6, count(v1beta1.Idle))
	assert.Equal(t, w.accepted, w.last().PublishedTaints)
	w.accepted = nil
	assert.Equal(t, 7, count(v1beta1.Idle))
}

// The hash changes with what a refused plan may depend on, and with nothing else.
func TestInputHash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	hash := func() string { return w.nodeReport(t.Context()).InputHash }
	first := hash()
	assert.Len(t, first, 16)
	w.hold("a", false, nodetest.HeldDevice(small(t, w), "", false))
	w.rig.GPUs.Trouble(rig.PCI0, gpu.Problem{Message: "ECC"})
	assert.Equal(t, first, hash(), "claims and health")
	parts := []gpu.Partition{
		{GPU: rig.PCI0, Type: gpu.TypeMIG, Profile: "2g.20gb", Start: 4, Size: 2}, {GPU: rig.PCI0, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 6, Size: 1},
	}
	w.Publisher.SetForeign(w.rig.Context, map[string][]gpu.Partition{rig.PCI0: parts})
	foreign := hash()
	assert.NotEqual(t, first, foreign)
	w.Publisher.SetForeign(w.rig.Context, map[string][]gpu.Partition{rig.PCI0: {parts[1], parts[0]}})
	assert.Equal(t, foreign, hash(), "their order")
	w.Publisher.SetForeign(w.rig.Context, nil)
	w.MemoryModes = true
	assert.NotEqual(t, first, hash())
	w.MemoryModes = false

	modes := map[string]gpu.Modes{rig.GPU0: {MIG: gpu.MIGOff, PendingMIG: gpu.MIGOff, MIGNeedsReset: true}, rig.GPU1: {}}
	known := w.inputHash(modes)
	assert.NotEqual(t, first, known)
	delete(modes, rig.GPU0)
	assert.Equal(t, known, w.inputHash(modes), "a GPU that does not answer counts as before")
	w.Publisher.SetForeign(w.rig.Context, map[string][]gpu.Partition{rig.PCI0: parts})
	foreign = w.inputHash(modes)
	assert.Equal(t, foreign, w.inputHash(modes), "what is on it, too")
	w.Publisher.SetForeign(w.rig.Context, nil)
	modes[rig.GPU0] = gpu.Modes{MIG: gpu.MIGOn, PendingMIG: gpu.MIGOn, MIGNeedsReset: true}
	assert.NotEqual(t, known, w.inputHash(modes))
	again := w.inputHash(modes)
	require.NoError(t, w.rig.Machine.Reboot(t.Context()))
	w.rig.Await("another load", func() bool { return w.inputHash(modes) != again })

	ampere := newWorld(t, "A100-80GB")
	off := ampere.nodeReport(t.Context()).InputHash
	driver, err := ampere.rig.Drivers.Of(rig.PCI0)
	require.NoError(t, err)
	require.NoError(t, driver.SetMIG(t.Context(), rig.PCI0, true, false))
	assert.NotEqual(t, off, ampere.nodeReport(t.Context()).InputHash, "its MIG mode lasts")
}

// shrinking is a switch that takes devices of the second GPU away.
func shrinking(to v1beta1.ProfileSnapshot) *v1beta1.Switch {
	return &v1beta1.Switch{ID: "1", TaintGeneration: 3, To: to, GPUs: []string{rig.GPU0}, ShrinkingGPUs: []string{rig.GPU1, "gpu-ffff-00-00-0"}, Withhold: true}
}

// Which devices a switch taints.
func TestDesiredTaints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	desired := func(state v1beta1.State, sw *v1beta1.Switch) publisher.SwitchTaints {
		return w.desiredTaints(t.Context(), &v1beta1.GPUNodeStatus{State: state, Switch: sw})
	}
	want := publisher.SwitchTaints{By: v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 3}, Value: "whole", GPUs: []string{rig.GPU0}, Withhold: true}
	whole := shrinking(snapshotOf(t, "whole", wholeOnly))
	got := desired(v1beta1.Tainted, whole)
	require.Len(t, got.Offers, 1, "the node does not have the other")
	assert.True(t, got.Offers[rig.GPU1].Offers(placement(t, w, rig.GPU1)))
	assert.False(t, got.Offers[rig.GPU1].Offers(placement(t, w, rig.GPU1+"-mig-1g-10gb-0")))
	offers := got.Offers
	got.Offers = nil
	assert.Equal(t, want, got)

	driver, err := w.rig.Drivers.Of(rig.PCI1)
	require.NoError(t, err)
	require.NoError(t, driver.SetMIG(t.Context(), rig.PCI1, true, false))
	_, err = driver.Create(t.Context(), placement(t, w, rig.GPU1+"-mig-1g-10gb-3"))
	require.NoError(t, err)
	w.hold("a", false, nodetest.HeldDevice(placement(t, w, rig.GPU1+"-mig-1g-10gb-3"), "", false))
	one := desired(v1beta1.Tainted, shrinking(snapshotOf(t, "one", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 1}]}}]")))
	assert.True(t, one.Offers[rig.GPU1].Offers(placement(t, w, rig.GPU1+"-mig-1g-10gb-3")), "the partition that is there stays")
	desired(v1beta1.Tainted, whole)

	// They are computed once, while the GPUs answer.
	w.rig.Problems = map[string]gpu.Problem{rig.PCI0: {Message: "lost"}, rig.PCI1: {Message: "lost"}}
	w.rig.Look(t.Context())
	assert.Equal(t, offers, desired(v1beta1.Applying, whole).Offers)
	assert.Empty(t, desired(v1beta1.Idle, whole))
	assert.Empty(t, desired(v1beta1.Tainted, nil))

	none := shrinking(snapshotOf(t, "whole", wholeOnly))
	none.ShrinkingGPUs = nil
	assert.Equal(t, want, desired(v1beta1.Tainted, none))

	bad := shrinking(snapshotOf(t, "too many", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 99}]}}]"))
	got = desired(v1beta1.Tainted, bad)
	assert.Equal(t, []string{rig.GPU0, rig.GPU1, "gpu-ffff-00-00-0"}, got.GPUs, "it cannot tell, so all")
	assert.Empty(t, got.Offers)
	assert.Equal(t, []string{rig.GPU0}, bad.GPUs)
}

// What an earlier run has tainted stays tainted from the first publication on.
func TestFirstTaints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	sw := &v1beta1.Switch{ID: "1", TaintGeneration: 1, To: snapshotOf(t, "whole", wholeOnly), GPUs: []string{rig.GPU0}}
	status := v1beta1.GPUNodeStatus{State: v1beta1.Draining, Switch: sw, Defragmentation: &v1beta1.Defragmentation{
		ID: "d", ReservedDevices: []string{rig.GPU1}, DeadlineTime: metav1.NewMicroTime(time.Now().Add(time.Hour)),
	}}
	var answer error
	clientfake.React(&w.nodes.Fake, "list", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &v1beta1.GPUNodeList{Items: []v1beta1.GPUNode{
			{ObjectMeta: metav1.ObjectMeta{Name: "other", ResourceVersion: "9"}},
			{ObjectMeta: metav1.ObjectMeta{Name: nodetest.NodeName, ResourceVersion: "5"}, Status: status},
		}}, answer
	})
	taints := func() []string { return append(w.rig.Taints()[rig.GPU0], w.rig.Taints()[rig.GPU1]...) }
	both := []string{"switching=whole", "reserved=d"}
	w.FirstTaints(t.Context())
	assert.Equal(t, "5", w.readVersion)
	by, _ := w.Publisher.PublishedFor()
	assert.Equal(t, "1", by.SwitchID)
	w.rig.Await("not tainted", func() bool { return assert.ObjectsAreEqual(both, taints()) })

	// A later run that cannot read them keeps those of the slices.
	answer = errors.New("no answer")
	w.Publisher.SetReservation(w.rig.Context, publisher.Reservation{})
	w.rig.Await("still reserved", func() bool { return len(taints()) == 1 })
	w.FirstTaints(t.Context())
	by, _ = w.Publisher.PublishedFor()
	assert.Empty(t, by, "no switch is known")
	assert.Equal(t, both[:1], taints())

	answer = apierrors.NewNotFound(schema.GroupResource{Resource: "gpunodes"}, "")
	w.FirstTaints(t.Context())
	w.rig.AwaitNoTaints()
	ctx, cancel := context.WithCancel(w.rig.Context)
	cancel()
	answer, w.TaintsPatience = errors.New("no answer"), 0
	w.FirstTaints(ctx)
}

// Taints are reported, and plans made, once the API server and the schedulers have them.
func TestTaintsAreConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	assert.False(t, w.confirmTaints(t.Context()), "no switch requests any")
	var lists error
	var refused atomic.Bool
	nodetest.OnSliceWrite(w.rig.API, func(*resourceapi.ResourceSlice) error {
		if refused.Load() {
			return errors.New("no")
		}
		return nil
	})
	clientfake.React(&w.rig.API.Fake, "list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) { return lists != nil, nil, lists })
	lists = errors.New("no answer")
	first, second := v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 1}, v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 2}
	w.Publisher.SetSwitchTaints(w.rig.Context, publisher.SwitchTaints{By: first, Value: "p", GPUs: []string{rig.GPU0}})
	assert.False(t, w.confirmTaints(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		assert.False(t, w.awaitTaints(ended))
	}
	assert.Nil(t, w.accepted)
	lists = nil
	w.TaintSettle = 50 * time.Millisecond
	require.True(t, w.awaitTaints(t.Context()))
	assert.Equal(t, &first, w.accepted)
	assert.GreaterOrEqual(t, time.Since(w.acceptedAt), w.TaintSettle)
	w.TaintSettle = time.Hour
	at := w.acceptedAt
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	assert.False(t, w.awaitTaints(soon), "schedulers may not have noticed")
	assert.Equal(t, at, w.acceptedAt, "they were accepted before")

	// What was accepted stays reported until the next ones are.
	refused.Store(true)
	w.Publisher.SetSwitchTaints(w.rig.Context, publisher.SwitchTaints{By: second, Value: "q", GPUs: []string{rig.GPU0}})
	assert.False(t, w.confirmTaints(t.Context()))
	assert.Equal(t, &first, w.accepted)
	w.Publisher.SetSwitchTaints(w.rig.Context, publisher.SwitchTaints{})
	assert.False(t, w.confirmTaints(t.Context()))
	assert.Nil(t, w.accepted)
}

// Devices are reserved until the deadline, whether a controller runs or not.
func TestReserve(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "H100-80GB")
	until := func(id string, d time.Duration) *v1beta1.Defragmentation {
		return &v1beta1.Defragmentation{ID: id, ReservedDevices: []string{rig.GPU0}, DeadlineTime: metav1.NewMicroTime(time.Now().Add(d))}
	}
	w.reserve(w.rig.Context, until("d", time.Hour))
	w.rig.Await("not reserved", func() bool { return slices.Equal(w.rig.Taints()[rig.GPU0], []string{"reserved=d"}) })
	soon := until("e", 300*time.Millisecond)
	for range 2 {
		w.reserve(w.rig.Context, soon)
	}
	select {
	case <-w.wake:
	case <-time.After(nodetest.Patience):
		require.Fail(t, "nobody looks at the deadline")
	}
	w.reserve(w.rig.Context, soon)
	w.rig.AwaitNoTaints()
	assert.Empty(t, w.reservation)
	assert.Empty(t, w.wake, "once per reservation")
}

func TestHeldOf(t *testing.T) {
	on := func(address, name string, admin bool) ledger.Device {
		return ledger.Device{Placement: gpu.Placement{GPU: address}, Name: name, Admin: admin}
	}
	records := []ledger.Record{
		{Devices: []ledger.Device{on("a", "second", false), on("a", "first", false), on("b", "other", false)}},
		{Devices: []ledger.Device{on("a", "second", false), on("a", "monitor", true)}},
	}
	assert.Equal(t, []string{"first", "second"}, heldOf(&inventory.GPU{GPU: gpu.GPU{PCIAddress: "a"}}, records), "in order, once")
}
