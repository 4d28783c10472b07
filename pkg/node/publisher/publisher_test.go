package publisher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// publishing is a publisher whose publications are kept.
type publishing struct {
	*Publisher
	api  *fake.Clientset
	sent [][]publish.Slice
	fail error
}

func newPublishing(t *testing.T) *publishing {
	t.Helper()
	api := nodetest.NewAPI()
	ctx, cancel := context.WithCancel(nodetest.Quiet(context.Background()))
	t.Cleanup(cancel)
	node, err := api.CoreV1().Nodes().Get(ctx, nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	events, err := telemetry.OpenEvents(ctx, api, node)
	require.NoError(t, err)
	t.Cleanup(events.Close)
	records, _, err := ledger.Open(t.TempDir())
	require.NoError(t, err)
	p := &publishing{api: api, Publisher: New(Config{
		Node: nodetest.NodeName, GPUs: &inventory.GPUs{}, Drivers: &inventory.Drivers{}, Ledger: records, Applied: &partition.State{},
		Events: events, Metrics: telemetry.NewMetrics("node-a", records.List),
	})}
	p.mine = true
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	p.start(func(_ context.Context, all []publish.Slice) error {
		p.sent = append(p.sent, all)
		return p.fail
	})
	return p
}

// hold makes a claim hold a device that was allocated from a pool.
func (p *publishing) hold(t *testing.T, device gpu.Placement, pool string) (release func()) {
	t.Helper()
	r := nodetest.PreparedRecord("a", nil, nodetest.HeldDevice(device, "", false))
	r.Devices[0].Pool = pool
	require.NoError(t, p.Ledger.Put(r))
	return func() { require.NoError(t, p.Ledger.Delete(r.Claim.UID)) }
}

// state says of each GPU of the last publication whether it has devices and which taints
// are on the last.
func (p *publishing) state() map[string]string {
	state := map[string]string{}
	for _, slice := range p.sent[len(p.sent)-1] {
		for _, set := range slice.SharedCounters {
			state[set.Name] = "empty"
		}
	}
	for _, d := range p.devices() {
		name := gpu.OfDevice(d.Name)
		state[name] = "published"
		for _, taint := range d.Taints {
			state[name] += " " + taint.Key + "=" + taint.Value + ":" + string(taint.Effect)
		}
	}
	return state
}

var pluginOwner = inventory.Owners{{Vendor: gpu.NVIDIA, Owner: hardware.Owner{Name: "device-plugin", Found: "a device plugin serves nvidia.com/gpu: 8 here", Remedy: "keep it off this node"}}}

const gpu1, gpu2 = "gpu-0000-01-00-0", "gpu-0000-02-00-0"

func TestPublisherWaitsForOwners(t *testing.T) {
	p := newPublishing(t)
	p.Publish(t.Context())
	assert.Empty(t, p.sent, "nothing is published before it is known who else serves the GPUs")
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, map[string]string{gpu1: "published", gpu2: "published"}, p.state())
	assert.Equal(t, 3, p.sliceCount())
	assert.Equal(t, []int{2, 2}, p.counted(t))
	p.SetOwners(t.Context(), nil)
	assert.Len(t, p.sent, 1, "no change, no publication")
}

// counted is how many kinds of devices the metrics count as published, and on how many GPUs they count free memory.
func (p *publishing) counted(t *testing.T) (n []int) {
	t.Helper()
	for _, metric := range []string{names.MetricPublishedDevices, names.MetricFreeMemory} {
		n = append(n, len(nodetest.Scrape(t, p.Metrics.Handler(), metric+"{")))
	}
	return n
}

// While a driver cannot be used, claims may hold what an earlier run has published.
func TestNothingIsWithdrawnWithoutADriver(t *testing.T) {
	p := newPublishing(t)
	p.GPUs.Remove([]string{"0000:01:00.0", "0000:02:00.0"})
	p.Drivers = inventory.NewDrivers(inventory.DriversConfig{Events: p.Events})
	p.Drivers.SetUnlisted(t.Context(), map[gpu.Vendor]error{gpu.NVIDIA: errors.New("no answer")})
	p.SetOwners(t.Context(), nil)
	assert.Empty(t, p.sent)
	p.Drivers.SetUnlisted(t.Context(), nil)
	p.Publish(t.Context())
	assert.Len(t, p.sent, 1)
}

// Another owner that was there first: the slices are there, and empty.
func TestPublisherWithholds(t *testing.T) {
	p := newPublishing(t)
	p.SetOwners(t.Context(), pluginOwner)
	assert.Equal(t, map[string]string{gpu1: "empty", gpu2: "empty"}, p.state())
	assert.Equal(t, 3, p.sliceCount(), "the number of slices is constant")
	note := nodetest.AwaitEvent(t, p.api, "OtherSystem", "")
	assert.Contains(t, note, "because a device plugin serves nvidia.com/gpu: 8 here. To let Tranche have them, keep it off this node; to publish them in spite of that, set ignoreOtherSystems=true in the chart")

	p.SetOwners(t.Context(), nil)
	assert.Equal(t, map[string]string{gpu1: "published", gpu2: "published"}, p.state())
	nodetest.AwaitEvent(t, p.api, "OtherSystemGone", "")
}

// Another owner that comes later: devices may be allocated, so they are tainted
// and stay. So it is after a restart, too.
func TestPublisherTaints(t *testing.T) {
	const tainted = "published gpu.tranche.dev/other-system=device-plugin:NoSchedule"
	p := newPublishing(t)
	p.SetOwners(t.Context(), nil)
	p.SetOwners(t.Context(), pluginOwner)
	assert.Contains(t, p.state()[gpu1], tainted)
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0"), nodetest.GPUAt("0000:03:00.0")}, nil, nil)
	p.Publish(t.Context())
	assert.Equal(t, "empty", p.state()["gpu-0000-03-00-0"], "a GPU that is new was never published")
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[gpu1])

	again := newPublishing(t)
	again.GPUs.MarkPublished("0000:01:00.0") // adopted from the API server
	again.SetOwners(t.Context(), pluginOwner)
	assert.Contains(t, again.state()[gpu1], tainted)
	assert.Equal(t, "empty", again.state()[gpu2])
}

// No publication forgets a taint that an earlier one had.
func TestPublisherKeepsTaintOfLostGPU(t *testing.T) {
	const unhealthy = "gpu.tranche.dev/unhealthy=xid-79:NoSchedule"
	p := newPublishing(t)
	p.SetOwners(t.Context(), nil)
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:02:00.0")}, map[string]gpu.Problem{"0000:01:00.0": {Cause: gpu.XIDCause(79), Message: "lost"}}, nil)
	for range 2 {
		p.Publish(t.Context())
		assert.Contains(t, p.state()[gpu1], unhealthy)
		assert.Equal(t, "published", p.state()[gpu2])
	}
	p.SetOwners(t.Context(), pluginOwner)
	assert.Contains(t, p.state()[gpu1], "other-system=device-plugin:NoSchedule "+unhealthy)
	for range inventory.HealthyChecks {
		p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	}
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[gpu1])
}

func TestPublisherFails(t *testing.T) {
	p := newPublishing(t)
	p.fail = errors.New("no way")
	p.SetOwners(t.Context(), nil)
	assert.Contains(t, nodetest.AwaitEvent(t, p.api, "PublishFailed", ""), "Cannot publish the GPUs of the node: hand the slices to the publisher: no way")
	assert.Equal(t, []string{`tranche_publish_errors_total{node="node-a"} 1`}, nodetest.Scrape(t, p.Metrics.Handler(), "tranche_publish_errors_total"))
}

// monitors lists the devices for monitors in the last publication.
func (p *publishing) monitors() (all []string) {
	for _, slice := range p.sent[len(p.sent)-1] {
		for _, d := range slice.Devices {
			if gpu.IsMonitor(d.Name) {
				all = append(all, d.Name)
			}
		}
	}
	return all
}

// A monitor that tolerates every taint does not come back to a node while a GPU changes, and does not
// get the other GPUs without that one.
func TestMonitorsWaitForTheEndOfASwitch(t *testing.T) {
	both := []string{gpu1 + "-monitor", gpu2 + "-monitor"}
	p := newPublishing(t)
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, both, p.monitors())
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:02:00.0")}, map[string]gpu.Problem{"0000:01:00.0": {Cause: gpu.XIDCause(79), Message: "lost"}}, nil)
	p.Publish(t.Context())
	assert.Equal(t, both, p.monitors(), "one looks at GPUs that are out of service, too")
	p.SetSwitchTaints(t.Context(), SwitchTaints{Offers: map[string]profile.Layout{gpu1: {}}, Value: "small"})
	assert.Equal(t, both, p.monitors(), "the hardware does not change")
	p.SetSwitchTaints(t.Context(), SwitchTaints{GPUs: []string{gpu1}, Value: "cpx"})
	assert.Empty(t, p.monitors())
	p.SetSwitchTaints(t.Context(), SwitchTaints{})
	assert.Equal(t, both, p.monitors())
	p.Drivers.CannotUse(gpu.NVIDIA, nil, &inventory.UpgradeError{})
	p.Publish(t.Context())
	assert.Empty(t, p.monitors())
	p.Drivers.CannotUse(gpu.NVIDIA, nil, errors.New("no permission"))
	p.Publish(t.Context())
	assert.Equal(t, both, p.monitors())
	p.restrictTaints(t.Context())
	assert.Empty(t, p.monitors(), "without its taint, anybody would get the device")
}

// A GPU that the API would refuse does not keep the others from being
// published.
func TestPublisherLeavesOutImpossibleGPU(t *testing.T) {
	p := newPublishing(t)
	big := nodetest.GPUAt("0000:03:00.0")
	for start := range 100 {
		big.Placements = append(big.Placements, gpu.Placement{GPU: big.PCIAddress, Type: gpu.TypeMIG, Profile: "1g", Start: start})
	}
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), big}, nil, nil)
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[gpu1])
	assert.Contains(t, nodetest.AwaitEvent(t, p.api, "GPUNotPublished", ""), "gpu-0000-03-00-0")
}

func (p *publishing) devices() []resourceapi.Device {
	var all []resourceapi.Device
	for _, slice := range p.sent[len(p.sent)-1] {
		all = append(all, slice.Devices...)
	}
	return slices.DeleteFunc(all, func(d resourceapi.Device) bool { return gpu.IsMonitor(d.Name) })
}

// taintsByDevice is the taints of the devices that have some.
func (p *publishing) taintsByDevice() map[string]string {
	taints := map[string]string{}
	for _, d := range p.devices() {
		for _, taint := range d.Taints {
			taints[d.Name] = strings.TrimSpace(taints[d.Name] + " " + strings.TrimSuffix(strings.TrimPrefix(taint.Key, "gpu.tranche.dev/")+"="+taint.Value, "="))
		}
	}
	return taints
}

func TestPublisherTaintsObstacles(t *testing.T) {
	const address, name = "0000:05:00.0", "gpu-0000-05-00-0"
	p := newPublishing(t)
	p.GPUs.Update([]gpu.GPU{nodetest.AMDGPUAt(address, "NPS1")}, nil, nil)
	p.SetOwners(t.Context(), nil)
	sent := len(p.sent)
	obstacles := map[string][]gpu.Obstacle{address: {
		{Placement: name, Kind: gpu.ObstacleBusy, Reason: "process 17"},
		{Placement: name + "-dpx-0", Kind: gpu.ObstacleBusy, Reason: "process 17"},
		{Placement: name + "-cpx-1", Kind: gpu.ObstacleMissing, Reason: "no KFD node"},
	}}
	p.SetObstacles(t.Context(), obstacles)
	p.SetObstacles(t.Context(), obstacles)
	assert.Len(t, p.sent, sent+1, "the same again is not published")
	without := p.taintsByDevice()
	delete(without, "gpu-0000-01-00-0-mig-1g-10gb-2") // GPUs of the other tests, lost by now
	delete(without, "gpu-0000-01-00-0")
	delete(without, "gpu-0000-02-00-0-mig-1g-10gb-2")
	delete(without, "gpu-0000-02-00-0")
	assert.Equal(t, map[string]string{name: "busy", name + "-dpx-0": "busy", name + "-cpx-1": "unhealthy=missing"}, without)

	p.GPUs.Trouble(address, gpu.Problem{Cause: gpu.CauseReset, Message: "in reset"})
	p.Publish(t.Context())
	assert.Equal(t, "unhealthy=in-reset", p.taintsByDevice()[name+"-cpx-1"], "not twice")
	assert.Equal(t, "unhealthy=in-reset busy", p.taintsByDevice()[name])
}

// Without counters, a GPU of which nothing whole can be had publishes nothing.
func TestPublisherRestrictedOnNPS4(t *testing.T) {
	p := newPublishing(t)
	p.hold(t, nodetest.AMDGPUAt("0000:06:00.0", "NPS1").Placements[0], names.PoolName(nodetest.NodeName))
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.AMDGPUAt("0000:05:00.0", "NPS4"), nodetest.AMDGPUAt("0000:06:00.0", "NPS1"), nodetest.AMDGPUAt("0000:07:00.0", "NPS1")}, nil, nil)
	monitor := nodetest.PreparedRecord("m", nil, nodetest.HeldDevice(gpu.Monitor("0000:07:00.0"), "", true))
	monitor.Claim.UID = "monitor"
	require.NoError(t, p.Ledger.Put(monitor))
	p.SetOwners(t.Context(), nil)
	p.restrict(t.Context())
	assert.Contains(t, nodetest.AwaitEvent(t, p.api, "PartitionsNotPublished", ""), "Nothing is published of gpu-0000-05-00-0 (NPS4), which cannot be allocated as a whole")
	state := p.state()
	assert.Equal(t, "published", state[gpu1])
	assert.Empty(t, state["gpu-0000-05-00-0"])
	assert.Empty(t, state["gpu-0000-06-00-0"], "a claim holds a partition of it")
	assert.Equal(t, "published", state["gpu-0000-07-00-0"])
}

// The slices of GPUs keep their order: one that is lost keeps its slice, one that is found
// later is the last, and so it is after a restart of the plugin.
func TestPublisherKeepsTheOrderOfSlices(t *testing.T) {
	p := newPublishing(t)
	order := func(p *publishing) (names []string) {
		for _, s := range p.sent[len(p.sent)-1][1:] {
			names = append(names, gpu.OfDevice(s.Devices[0].Name))
		}
		return names
	}
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, []string{gpu1, gpu2}, order(p))
	const gpu0 = "gpu-0000-00-00-0"
	p.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:00:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	p.Publish(t.Context())
	assert.Equal(t, []string{gpu1, gpu2, gpu0}, order(p))

	again := newPublishing(t)
	again.GPUs.Update([]gpu.GPU{nodetest.GPUAt("0000:00:00.0"), nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	again.Adopt(t.Context(), publish.Objects(names.DriverName, nodetest.NodeName, p.sent[len(p.sent)-1]))
	again.SetOwners(t.Context(), nil)
	assert.Equal(t, []string{gpu1, gpu2, gpu0}, order(again))
}

// Devices carry the extended resources that they stand for, as the configuration says.
func TestPublisherNamesExtendedResources(t *testing.T) {
	for name, want := range map[string]struct {
		gpu, mig  bool
		resources []string
	}{
		"none":           {false, false, nil},
		"GPUs":           {true, false, []string{"nvidia.com/gpu"}},
		"GPUs and parts": {true, true, []string{"nvidia.com/gpu", "nvidia.com/mig-1g.10gb"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublishing(t)
			if want.gpu {
				p.ExtendedResources = map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu"}
			}
			p.MIGResources = want.mig
			p.SetOwners(t.Context(), nil)
			var resources []string
			for _, slice := range p.sent[0] {
				for _, d := range slice.Devices {
					if r := d.Attributes[names.AttributeExtendedResourceName].StringValue; r != nil && !slices.Contains(resources, *r) && (*r == "nvidia.com/gpu" || strings.HasSuffix(*r, "-1g.10gb")) {
						resources = append(resources, *r)
					}
				}
			}
			slices.Sort(resources)
			assert.Equal(t, want.resources, resources)
		})
	}
}
