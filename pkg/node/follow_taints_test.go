package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

const wholeOnly = "[{mig: {mode: Disabled}}]"

// switchTaint is the value of a device's taint, empty without one.
func switchTaint(d *resourceapi.Device) string {
	for _, t := range d.Taints {
		if t.Key == names.TaintSwitching && t.Effect == resourceapi.DeviceTaintEffectNoSchedule {
			return t.Value
		}
	}
	return ""
}

// taintedOn are the names of a GPU's devices that have the taint of a profile, and of
// those that have no taint of a switch.
func taintedOn(t *testing.T, m *machine, gpuID, profile string) (tainted, free []string) {
	t.Helper()
	for _, d := range devicesOn(t, m, gpuID) {
		switch switchTaint(&d) {
		case profile:
			tainted = append(tainted, d.Name)
		case "":
			free = append(free, d.Name)
		}
	}
	return tainted, free
}

// A whole switch: the plan names the GPUs, the taints stand before the second plan is
// made, and they go with the end of the switch.
func TestTaintsOfASwitch(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.config.taintSettle = 300 * time.Millisecond
	// The report never claims taints that the API server does not have.
	s.onReport = func(r *v1beta1.NodeReport) {
		if r.PublishedTaints == nil {
			return
		}
		_, free := taintedOn(t, s.machine, card0, "whole")
		assert.Empty(t, free, "reported, but not published")
	}
	var mu sync.Mutex
	var lastTaint time.Time
	nodetest.OnSliceWrite(s.api, func(slice *resourceapi.ResourceSlice) error {
		mu.Lock()
		defer mu.Unlock()
		for i := range slice.Spec.Devices {
			if switchTaint(&slice.Spec.Devices[i]) == "whole" {
				lastTaint = time.Now()
			}
		}
		return nil
	})
	k, _ := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	whole := snapshot(t, "whole", wholeOnly)
	task := s.ask(v1beta1.Planning, nothing, whole)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, card0, task.Changes[0].GPU)
	assert.Equal(t, []string{card1}, task.ShrinkingGPUs)
	tainted, _ := taintedOn(t, s.machine, card0, "whole")
	assert.Empty(t, tainted, "nothing is ordered yet")

	// GPUs that the node does not have order nothing.
	sw := &v1beta1.Switch{ID: "1", From: nothing, To: whole, TaintGeneration: 1, GPUs: []string{card0, "gpu-ffff-00-00-0"}, ShrinkingGPUs: []string{card1, "gpu-ffff-01-00-0"}}
	task = s.put(v1beta1.Tainted, sw)
	mu.Lock()
	assert.GreaterOrEqual(t, time.Since(lastTaint), s.config.taintSettle, "the plan is made before the taints have settled")
	mu.Unlock()
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	assert.EqualValues(t, 1, task.TaintGeneration)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, []string{card1}, task.ShrinkingGPUs)
	node, err := s.get()
	require.NoError(t, err)
	assert.Equal(t, &v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 1}, node.Status.Node.PublishedTaints, "in the same write as the answer")
	_, free := taintedOn(t, s.machine, card0, "whole")
	assert.Empty(t, free)
	tainted, free = taintedOn(t, s.machine, card1, "whole")
	for _, name := range tainted {
		assert.Contains(t, name, "-mig-", "the whole GPU is still offered")
	}
	assert.NotEmpty(t, tainted)
	assert.Contains(t, free, card1)

	// What comes to the GPU before the taints have had their effect is in the plan of the
	// next order.
	b := nodetest.Allocate(t, s.api, "b", strings.Replace(small0, card0, card1, 1))
	k.mustPrepare(b)
	next := sw.DeepCopy()
	next.TaintGeneration, next.GPUs, next.ShrinkingGPUs = 2, []string{card0, card1}, nil
	task = s.putOrder(next)
	assert.Len(t, task.Changes, 2)
	s.await("not tainted by the second order", func(r *v1beta1.NodeReport) bool {
		return r.PublishedTaints != nil && r.PublishedTaints.TaintGeneration == 2
	})
	_, free = taintedOn(t, s.machine, card1, "whole")
	assert.Empty(t, free)

	s.order(v1beta1.Draining, next)
	require.Empty(t, k.unprepare(a))
	require.Empty(t, k.unprepare(b))
	task = s.put(v1beta1.Applying, next)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	tainted, free = taintedOn(t, s.machine, card0, "whole")
	assert.Contains(t, tainted, card0)
	assert.Empty(t, free, "the new offer comes with its taint")
	s.onReport = nil

	s.order(v1beta1.Idle, nil)
	require.Eventually(t, func() bool {
		tainted, free := taintedOn(t, s.machine, card0, "whole")
		return len(tainted) == 0 && len(free) > 0
	}, nodetest.Patience, nodetest.Tick, "the taints stay")
	s.await("the taints are still reported", func(r *v1beta1.NodeReport) bool { return r.PublishedTaints == nil })
}

// While the API server refuses the slices there is no answer and no report of taints.
func TestTaintsThatAreNotAccepted(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.config.taintSettle = nodetest.Tick
	var refuse atomic.Bool
	var refused atomic.Int32
	nodetest.OnSliceWrite(s.api, func(*resourceapi.ResourceSlice) error {
		if refuse.Load() {
			refused.Add(1)
			return errors.New("no way")
		}
		return nil
	})
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	awaitDevices(t, s.api, false, untainted)
	refuse.Store(true)
	s.onReport = func(r *v1beta1.NodeReport) {
		if refuse.Load() {
			assert.Nil(t, r.PublishedTaints)
			assert.Nil(t, r.Task)
		}
	}
	sw := &v1beta1.Switch{ID: "1", From: nothing, To: snapshot(t, "whole", wholeOnly), TaintGeneration: 1, GPUs: []string{card0}}
	s.order(v1beta1.Tainted, sw)
	require.Eventually(t, func() bool { return refused.Load() > 1 }, nodetest.Patience, nodetest.Tick)
	nodetest.AwaitEvent(t, s.api, "PublishFailed", "no way")
	refuse.Store(false)
	task := s.putOrder(sw)
	assert.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
}

// A profile that is edited in the middle of a drain keeps the taints, and so does a
// restart of the plugin; without a switch a plugin that comes back removes them.
func TestTaintsOverEditAndRestart(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.config.taintSettle = nodetest.Tick
	_, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	sw := &v1beta1.Switch{ID: "1", From: nothing, To: snapshot(t, "whole", wholeOnly), TaintGeneration: 1, GPUs: []string{card0}, ShrinkingGPUs: []string{card1}}
	s.putOrder(sw)
	all := len(devicesOn(t, s.machine, card0))
	var untaintedWrites atomic.Int32
	nodetest.OnSliceWrite(s.api, func(slice *resourceapi.ResourceSlice) error {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			shrinks := strings.HasPrefix(d.Name, card1+"-mig-")
			if (strings.HasPrefix(d.Name, card0) || shrinks) && switchTaint(d) == "" {
				untaintedWrites.Add(1)
			}
		}
		return nil
	})

	s.order(v1beta1.Draining, sw)
	edited := sw.DeepCopy()
	edited.ID, edited.To = "2", snapshot(t, "other", wholeOnly)
	task := s.put(v1beta1.Planning, edited)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	require.Eventually(t, func() bool {
		tainted, _ := taintedOn(t, s.machine, card0, "other")
		return len(tainted) == all
	}, nodetest.Patience, nodetest.Tick, "the value is that of the new profile")
	s.await("the taints of the new switch are not reported", func(r *v1beta1.NodeReport) bool { return r.PublishedTaints != nil && r.PublishedTaints.SwitchID == "2" })

	// One that does not fit taints all devices of the GPUs that would shrink.
	unfit := edited.DeepCopy()
	unfit.ID, unfit.To = "3", snapshot(t, "unfit", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 8}]}}]")
	assert.Equal(t, v1beta1.TaskRefused, s.put(v1beta1.Planning, unfit).Phase)
	require.Eventually(t, func() bool {
		_, free := taintedOn(t, s.machine, card1, "unfit")
		return len(free) == 0
	}, nodetest.Patience, nodetest.Tick)
	s.put(v1beta1.Planning, edited)

	stop()
	tainted, _ := taintedOn(t, s.machine, card0, "other")
	assert.Len(t, tainted, all, "the taints stay while the plugin is away")
	s.api.ClearActions()
	_, stop = s.start()
	s.order(v1beta1.Draining, edited.DeepCopy())
	s.await("not reported after a restart", func(r *v1beta1.NodeReport) bool { return r.PublishedTaints != nil && r.PublishedTaints.SwitchID == "2" })
	assert.Zero(t, nodetest.SliceWrites(s.api), "nothing has changed")

	// The GPUNode cannot be read: what is published stays.
	stop()
	s.config.taintsPatience = nodetest.Tick
	var unreadable atomic.Bool
	unreadable.Store(true)
	clientfake.React(&s.nodes.Fake, "*", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return unreadable.Load(), nil, errors.New("no way")
	})
	s.nodes.PrependWatchReactor("gpunodes", func(action clienttesting.Action) (bool, watch.Interface, error) {
		return unreadable.Load(), nil, errors.New("no way")
	})
	_, stop = s.start()
	setAllocatable(t, s.api, "8") // a change that is published
	awaitDevices(t, s.api, false, func(d resourceapi.Device) bool { return !untainted(d) })
	assert.Zero(t, untaintedWrites.Load(), "there was a moment without the taints")
	stop()
	unreadable.Store(false)
	setAllocatable(t, s.api, "0")

	s.order(v1beta1.Failed, edited)
	s.start()
	awaitDevices(t, s.api, false, untainted)
	s.await("the taints are still reported", func(r *v1beta1.NodeReport) bool { return r.PublishedTaints == nil })
}

// What a GPU does not offer any more cannot be prepared, also while nobody has looked at
// the GPU since it was changed, unless a claim holds it.
func TestPreparable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "profile.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"version": 1, "layouts": {"0000:01:00.0": {"partitioning": "Off"}}}`), 0o600))
	applied, err := partition.OpenState(file)
	require.NoError(t, err)
	records, _, err := ledger.Open(filepath.Join(dir, "claims"))
	require.NoError(t, err)
	b := &base{gpus: &inventory.GPUs{}, applied: applied, records: records}
	b.gpus.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	names := func() (all []string) {
		for _, g := range b.preparable() {
			for _, placement := range g.Placements {
				all = append(all, placement.Name())
			}
		}
		return all
	}
	small := nodetest.GPUAt("0000:01:00.0").Placements[0]
	require.Equal(t, gpu.TypeMIG, small.Type)
	other := strings.Replace(small.Name(), "-01-", "-02-", 1)
	assert.NotContains(t, names(), small.Name())
	assert.Contains(t, names(), "gpu-0000-01-00-0")
	assert.Contains(t, names(), other)
	require.NoError(t, records.Put(ledger.Record{
		Claim: ledger.ClaimRef{UID: "a", Namespace: "team", Name: "a"}, State: ledger.Prepared,
		Devices: []ledger.Device{{Name: small.Name(), Placement: small}},
	}))
	assert.Contains(t, names(), small.Name())
	assert.Len(t, b.gpus.Now()[0].Placements, len(nodetest.GPUAt("0000:01:00.0").Placements), "what is known of the GPU is not changed")
}
