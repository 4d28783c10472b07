package node

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// dropTaints takes from a slice what an API server with DRADeviceTaints off drops.
func dropTaints(slice *resourceapi.ResourceSlice) error {
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].Taints = nil
	}
	return nil
}

// Where the API server drops taints, the devices that no claim holds are not published
// while a switch orders taints.
func TestSwitchWithoutDeviceTaints(t *testing.T) {
	api := nodetest.NewAPI()
	nodetest.OnSliceWrite(api, dropTaints)
	s := steer(newMachine(t, api))
	s.config.taintSettle = nodetest.Tick
	k, _ := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	assert.Contains(t, nodetest.AwaitEvent(t, api, "TaintsNotPublished", ""), "DRADeviceTaints is off")
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	sw := &v1beta1.Switch{ID: "1", From: nothing, To: snapshot(t, "whole", wholeOnly), TaintGeneration: 1, GPUs: []string{card0}, ShrinkingGPUs: []string{card1}}
	task := s.put(v1beta1.Tainted, sw)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	node, err := s.get()
	require.NoError(t, err)
	assert.Equal(t, &v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 1, Withheld: true}, node.Status.Node.PublishedTaints)
	assert.Equal(t, []string{small0}, deviceNames(devicesOn(t, s.machine, card0)), "what a claim holds stays published")
	names := deviceNames(devicesOn(t, s.machine, card1))
	assert.Contains(t, names, card1)
	assert.NotContains(t, strings.Join(names, " "), "-mig-")

	require.Empty(t, k.unprepare(a))
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) == 0 }, nodetest.Patience, nodetest.Tick, "what was released can be allocated again")
	s.order(v1beta1.Idle, nil)
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) > 20 }, nodetest.Patience, nodetest.Tick)
}

// A claim that tolerates the taint would get a free device of a GPU that is drained. So the
// controller can order that there are none.
func TestFreeDevicesOfADrainedGPUAreWithheld(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.config.taintSettle = nodetest.Tick
	k, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	sw := &v1beta1.Switch{ID: "1", From: nothing, To: snapshot(t, "whole", wholeOnly), TaintGeneration: 1, GPUs: []string{card0}, ShrinkingGPUs: []string{card1}, Withhold: true}
	task := s.put(v1beta1.Tainted, sw)
	require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
	held := devicesOn(t, s.machine, card0)
	require.Equal(t, []string{small0}, deviceNames(held), "what a claim holds stays published")
	assert.NotEmpty(t, switchTaint(&held[0]))
	assert.Contains(t, strings.Join(deviceNames(devicesOn(t, s.machine, card1)), " "), "-mig-", "the taint is enough for a GPU that is not drained")

	require.Empty(t, k.unprepare(a))
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) == 0 }, nodetest.Patience, nodetest.Tick, "what was released can be allocated again")
	stop()
	s.start()
	assert.Empty(t, devicesOn(t, s.machine, card0))
	s.order(v1beta1.Idle, nil)
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) > 20 }, nodetest.Patience, nodetest.Tick)
}

// A gate that is turned off later is noticed when slices lose their taints.
func TestTaintsAreDroppedLater(t *testing.T) {
	api := nodetest.NewAPI()
	var off atomic.Bool
	nodetest.OnSliceWrite(api, func(slice *resourceapi.ResourceSlice) error {
		if off.Load() {
			return dropTaints(slice)
		}
		return nil
	})
	m := newMachine(t, api)
	k, _ := m.start()
	awaitDevices(t, api, false, untainted)
	a := nodetest.Allocate(t, api, "a", small0)
	k.mustPrepare(a)
	off.Store(true)
	setAllocatable(t, api, "8") // another owner, whose taint is dropped
	nodetest.AwaitEvent(t, api, "TaintsNotPublished", "")
	require.Eventually(t, func() bool {
		devices := nodetest.Published(t, api)
		return len(devices) == 1 && devices[0].Name == small0
	}, nodetest.Patience, nodetest.Tick)
	require.Empty(t, k.unprepare(a))
	require.Eventually(t, func() bool { return len(nodetest.Published(t, api)) == 0 }, nodetest.Patience, nodetest.Tick, "what was released can be allocated again")
}
