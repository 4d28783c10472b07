package publisher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

const mig1 = gpu1 + "-mig-1g-10gb-2"

// stored is the last publication as the API server has it.
func (p *publishing) stored() []resourceapi.ResourceSlice {
	return publish.Objects(names.DriverName, nodetest.NodeName, p.sent[len(p.sent)-1])
}

// sliceOf is a ResourceSlice of a driver.
func sliceOf(name, node, driver string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: names.PoolName(node), ResourceSliceCount: 1},
	}}
}

// Only the slices of this node and driver are ours to delete. One that cannot be deleted does not keep
// the others.
func TestWithdraw(t *testing.T) {
	api := nodetest.NewAPI(sliceOf("one", nodetest.NodeName, names.DriverName), sliceOf("gone", nodetest.NodeName, names.DriverName), sliceOf("stuck", nodetest.NodeName, names.DriverName),
		sliceOf("two", nodetest.NodeName, names.DriverName), sliceOf("other-node", "node-b", names.DriverName), sliceOf("other-driver", nodetest.NodeName, "gpu.example.com"))
	clientfake.React(&api.Fake, "delete", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deletion := action.(clienttesting.DeleteActionImpl)
		assert.EqualValues(t, deletion.Name, *deletion.DeleteOptions.Preconditions.UID, "another one can have its name")
		switch deletion.Name {
		case "stuck":
			return true, nil, errors.New("no way")
		case "gone":
			return true, nil, apierrors.NewNotFound(resourceapi.Resource("resourceslices"), "gone")
		}
		return false, nil, nil
	})
	require.EqualError(t, Withdraw(t.Context(), api, nodetest.NodeName), "delete ResourceSlice stuck of pool node-a: no way")
	var left []string
	for _, driver := range []string{names.DriverName, "gpu.example.com"} {
		for _, s := range nodetest.SlicesOf(t, api, driver) {
			left = append(left, s.Name)
		}
	}
	assert.ElementsMatch(t, []string{"stuck", "gone", "other-node", "other-driver"}, left)
	clientfake.React(&api.Fake, "list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	require.EqualError(t, Withdraw(t.Context(), api, nodetest.NodeName), "list the ResourceSlices of node node-a: away")
}

// What a kubelet that starts deletes comes back, by the plugin that publishes.
func TestRepublish(t *testing.T) {
	p := newPublishing(t)
	p.Client = p.api
	p.SetOwners(t.Context(), nil)
	sent := len(p.sent)
	p.mine = false
	p.Republish(t.Context())
	assert.Len(t, p.sent, sent)
	p.mine = true
	p.start(func(_ context.Context, all []publish.Slice) error {
		p.sent = append(p.sent, all)
		for _, s := range p.stored() {
			s.Name = ""
			_, err := p.api.ResourceV1().ResourceSlices().Create(t.Context(), &s, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		return nil
	})
	p.Republish(t.Context())
	assert.Len(t, p.sent, sent+1)
	assert.Len(t, nodetest.SlicesOf(t, p.api, names.DriverName), p.sliceCount())
}

// What others ask about the last publication.
func TestLastPublication(t *testing.T) {
	const address = "0000:01:00.0"
	p := newPublishing(t)
	p.mine = false
	g := p.GPUs.List()[0]
	assert.True(t, p.Matches(nil))
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, []any{false, 0, false}, []any{p.IsMine(), len(p.sent), p.IsFree(&g, mig1)})
	p.TakeOver(t.Context())
	assert.Equal(t, []any{true, 1, true}, []any{p.IsMine(), len(p.sent), p.IsFree(&g, mig1)})
	first := p.stored()
	assert.True(t, p.Matches(first))
	assert.False(t, p.Matches(nil))
	assert.False(t, p.Matches(first[1:]), "a part of the pool")
	assert.Equal(t, publish.DigestsOf(nodetest.NodeName, first).Of(gpu1), p.DigestOf(address))
	assert.Empty(t, p.UnavailableBecause(address))

	p.SetReservation(t.Context(), Reservation{ID: "d", Devices: []string{mig1}})
	assert.Equal(t, map[string]string{mig1: "reserved=d"}, p.taintsByDevice())
	assert.False(t, p.Matches(first), "it has no taints")
	assert.Equal(t, []bool{false, true}, []bool{p.IsFree(&g, mig1), p.IsFree(&g, gpu1)})
	assert.Empty(t, p.UnavailableBecause(address), "some of it can be allocated")
	p.SetReservation(t.Context(), Reservation{})

	file := filepath.Join(t.TempDir(), "profile.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"version": 1, "layouts": {"`+address+`": {"partitioning": "Off"}}}`), 0o600))
	var err error
	p.Applied, err = partition.OpenState(file)
	require.NoError(t, err)
	p.Publish(t.Context())
	assert.Equal(t, map[string]string{mig1: "not-offered"}, p.taintsByDevice())
	p.Applied = &partition.State{}

	busy := map[string][]gpu.Obstacle{address: {{Placement: mig1, Kind: gpu.ObstacleBusy}}}
	p.SetObstacles(t.Context(), busy)
	p.SetFailures(t.Context(), map[string][]gpu.Obstacle{address: {{Placement: gpu1, Kind: gpu.ObstacleFailed, Alone: true}}})
	assert.Equal(t, map[string]string{mig1: "busy", gpu1: "unhealthy=not-prepared"}, p.taintsByDevice())
	assert.True(t, p.IsFree(&g, mig1), "but for what is in the way")
	assert.Equal(t, busy[address], p.ObstaclesOn(address))
	assert.Equal(t, gpu1, p.FailuresOn(address)[0].Placement)
	assert.Empty(t, p.FailuresOn("0000:02:00.0"))
	p.SetObstacles(t.Context(), nil)
	p.SetFailures(t.Context(), nil)

	foreign := gpu.Partition{GPU: address, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 2, Size: 1}
	p.SetForeign(t.Context(), map[string][]gpu.Partition{address: {foreign, foreign}})
	assert.Equal(t, []gpu.Partition{foreign, foreign}, p.ForeignOn(address))
	assert.Equal(t, "foreign-partition=1g.10gb_2", p.taintsByDevice()[mig1], "once")
	assert.False(t, p.IsFree(&g, mig1))
	p.SetForeign(t.Context(), nil)

	p.SetOwners(t.Context(), pluginOwner)
	assert.Equal(t, []string{"other-system"}, p.UnavailableBecause(address))
	assert.False(t, p.IsFree(&g, mig1))
	p.SetOwners(t.Context(), inventory.Owners{{Vendor: gpu.NVIDIA, Owner: hardware.Owner{Name: "unmanaged", Found: "no label", Remedy: "label it"}}})
	assert.False(t, p.IsFree(&g, mig1))
	assert.True(t, p.Matches(nil), "nothing is published")
	assert.False(t, p.Matches(first))

	withheld := newPublishing(t)
	withheld.SetOwners(t.Context(), pluginOwner)
	assert.Equal(t, []string{telemetry.Withheld, "other-system"}, withheld.UnavailableBecause(address))
}

// Which devices of a switch are tainted, and left out where claims tolerate the taint.
func TestSwitchTaintsOfDevices(t *testing.T) {
	p := newPublishing(t)
	by, sent := p.PublishedFor()
	assert.Equal(t, []any{v1beta1.PublishedTaints{}, false}, []any{by, sent}, "nothing is published")
	p.SetOwners(t.Context(), nil)
	order := v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 2}
	p.SetSwitchTaints(t.Context(), SwitchTaints{By: order, Value: "cpx", GPUs: []string{gpu1}, devices: []string{mig1, gpu2}})
	assert.Equal(t, map[string]string{mig1: "switching=cpx", gpu1: "switching=cpx", gpu2: "switching=cpx"}, p.taintsByDevice(), "each once")
	by, sent = p.PublishedFor()
	assert.Equal(t, []any{order, true}, []any{by, sent})
	assert.Equal(t, []string{"switching"}, p.UnavailableBecause("0000:01:00.0"))

	release := p.hold(t, nodetest.GPUAt("0000:01:00.0").Placements[0], names.PoolName(nodetest.NodeName))
	p.SetSwitchTaints(t.Context(), SwitchTaints{By: order, Value: "cpx", GPUs: []string{gpu1}, Withhold: true})
	published := func() (all []string) {
		for _, d := range p.devices() {
			all = append(all, d.Name)
		}
		return all
	}
	assert.ElementsMatch(t, []string{mig1, gpu2 + "-mig-1g-10gb-2", gpu2}, published())
	release()
	p.ClaimsChanged(t.Context())
	assert.ElementsMatch(t, []string{gpu2 + "-mig-1g-10gb-2", gpu2}, published())

	p.hold(t, nodetest.GPUAt("0000:01:00.0").Placements[0], names.PoolName(nodetest.NodeName))
	p.SetSwitchTaints(t.Context(), SwitchTaints{By: order, Value: "cpx", Offers: map[string]profile.Layout{gpu1: {Partitioning: profile.PartitioningOff}}, devices: []string{gpu2}})
	assert.Equal(t, map[string]string{mig1: "switching=cpx", gpu2: "switching=cpx"}, p.taintsByDevice())
	p.restrictTaints(t.Context())
	assert.ElementsMatch(t, []string{mig1, gpu1, gpu2 + "-mig-1g-10gb-2"}, published())
	assert.Empty(t, p.taintsByDevice())
	by, _ = p.PublishedFor()
	order.Withheld = true
	assert.Equal(t, order, by)
	p.SetSwitchTaints(t.Context(), SwitchTaints{})
	by, _ = p.PublishedFor()
	assert.Empty(t, by)
}

// What a plugin that cannot read the GPUNode takes from the slices.
func TestKeptTaints(t *testing.T) {
	gpus := []gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}
	of := func(devices map[string]string) (s resourceapi.ResourceSlice) {
		for name, taint := range devices {
			d := resourceapi.Device{Name: name, Taints: []resourceapi.DeviceTaint{{Key: names.TaintBusy}}}
			if taint != "" {
				d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: names.TaintSwitching, Value: taint})
			}
			s.Spec.Devices = append(s.Spec.Devices, d)
		}
		return s
	}
	for name, tt := range map[string]struct {
		published []resourceapi.ResourceSlice
		want      SwitchTaints
	}{
		"nothing is published": {nil, SwitchTaints{}},
		"no taints":            {[]resourceapi.ResourceSlice{of(map[string]string{gpu1: "", gpu2: "", mig1: ""})}, SwitchTaints{}},
		"all of a GPU":         {[]resourceapi.ResourceSlice{of(map[string]string{gpu1: "cpx", gpu2: ""}), of(map[string]string{mig1: "cpx"})}, SwitchTaints{Value: "cpx", GPUs: []string{gpu1}}},
		"a part of a GPU":      {[]resourceapi.ResourceSlice{of(map[string]string{gpu1: "", mig1: "cpx", gpu2: ""})}, SwitchTaints{Value: "cpx", devices: []string{mig1}}},
		"a GPU is left out":    {[]resourceapi.ResourceSlice{of(map[string]string{gpu1: "", gpu1 + "0": "x"})}, SwitchTaints{GPUs: []string{gpu2}}},
	} {
		assert.Equal(t, tt.want, keptTaints(gpus, tt.published), name)
	}

	p := newPublishing(t)
	p.Client = p.api
	p.SetOwners(t.Context(), nil)
	s := sliceOf("s", nodetest.NodeName, names.DriverName)
	s.Spec.Devices = of(map[string]string{gpu1: "cpx", gpu2: ""}).Spec.Devices
	_, err := p.api.ResourceV1().ResourceSlices().Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, p.KeepTaints(t.Context()))
	assert.Equal(t, map[string]string{gpu1: "switching=cpx", mig1: "switching=cpx"}, p.taintsByDevice())
	clientfake.React(&p.api.Fake, "list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	require.Error(t, p.KeepTaints(t.Context()))
	assert.Len(t, p.taintsByDevice(), 2)
}

// Each field that the API server drops leaves out what needs it. That is tried before anything is published.
func TestFeaturesAreDetected(t *testing.T) {
	of := func(see func(*resourceapi.ResourceSlice) error) *publishing {
		p := newPublishing(t)
		p.Client = p.api
		nodetest.OnSliceWrite(p.api, see)
		return p
	}
	devices := func(change func(*resourceapi.Device)) func(*resourceapi.ResourceSlice) error {
		return func(s *resourceapi.ResourceSlice) error {
			assert.Equal(t, []any{names.DriverName, nodetest.NodeName, names.PoolName(nodetest.NodeName), int64(1)},
				[]any{s.Spec.Driver, *s.Spec.NodeName, s.Spec.Pool.Name, s.Spec.Pool.ResourceSliceCount}, "a real API server accepts it")
			for i := range s.Spec.Devices {
				change(&s.Spec.Devices[i])
			}
			return nil
		}
	}
	for name, drop := range map[string]func(*resourceapi.ResourceSlice) error{
		"":         devices(func(*resourceapi.Device) {}),
		"counters": nodetest.DropCounters,
		"shares":   devices(func(d *resourceapi.Device) { d.AllowMultipleAllocations = nil }),
		"taints":   devices(func(d *resourceapi.Device) { d.Taints = nil }),
	} {
		p := of(drop)
		require.NoError(t, p.DetectFeatures(t.Context()))
		assert.Equal(t, []bool{name == "counters", name == "shares", name == "taints"}, []bool{p.wholeOnly, p.noShares, p.noTaints}, name)
		assert.Empty(t, nodetest.SlicesOf(t, p.api, names.DriverName), "it was only tried")
	}
	for _, refused := range []bool{false, true} {
		p := of(func(s *resourceapi.ResourceSlice) error {
			if len(s.Spec.Devices) > 0 == refused {
				return errors.New("no way")
			}
			return nil
		})
		require.EqualError(t, p.DetectFeatures(t.Context()), "ask the API server, with a dry run, which fields of a ResourceSlice it keeps: no way")
	}
}

// The first publication fails: that is reported, and the next one begins anew. After a stop it is not.
func TestHandoverThatFails(t *testing.T) {
	p := newPublishing(t)
	h := NewHandover(p.Publisher)
	calls := make(chan error)
	h.Begin(p.Publisher, func(context.Context, resourceslice.DriverResources) error { return <-calls })
	p.SetOwners(t.Context(), nil)
	calls <- errors.New("no way")
	nodetest.AwaitEvent(t, p.api, names.EventPublishFailed, "hand the slices to the publisher: no way")
	p.Publish(t.Context())
	calls <- nil
}
