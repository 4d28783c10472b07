package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestSliceIndexIsByNumber(t *testing.T) {
	index := sliceIndex(gpu.Counters{"memory-slice-10": 1, "memory-slice-2": 1, "memory-slice-": 1, "memory": 5})
	assert.Equal(t, map[string]int{"memory-slice-2": 0, "memory-slice-10": 1}, index)
}

func TestUnevenMemoryFallsBackToOnePosition(t *testing.T) {
	devices := []*Device{{Consumes: gpu.Counters{"memory": 30}}, {Consumes: gpu.Counters{"memory": 50}}}
	assert.Equal(t, 1, place(gpu.Counters{"memory": 100}, devices))
	for _, d := range devices {
		assert.Equal(t, []int{0}, d.positions)
	}
}

func TestPlaces(t *testing.T) {
	exclusive := []*Device{{Consumes: gpu.Counters{"memory": 80}}, {Consumes: gpu.Counters{"memory": 40, "memory-slice-0": 0, "memory-slice-1": 1}}}
	assert.Equal(t, 2, place(gpu.Counters{"memory": 80, "memory-slice-0": 1, "memory-slice-1": 1}, exclusive))
	assert.Equal(t, []int{0, 1}, exclusive[0].positions, "it names no slices")
	assert.Equal(t, []int{1}, exclusive[1].positions)
	inOrder := []*Device{{Consumes: gpu.Counters{"memory": 50}}, {}, {Consumes: gpu.Counters{"memory": 50}}, {Consumes: gpu.Counters{"memory": 100}}}
	for _, d := range inOrder {
		d.Device = &resourceapi.Device{}
	}
	assert.Equal(t, 2, place(gpu.Counters{"memory": 100}, inOrder))
	for i, want := range [][]int{{0}, nil, {1}, {0, 1}} {
		assert.Equal(t, want, inOrder[i].positions, "without an index")
	}
}

func TestNodeState(t *testing.T) {
	n := &corev1.Node{}
	takesPods := true
	nodeState := func(n *corev1.Node) string {
		var out Node
		out.setState(n)
		takesPods = out.TakesPods()
		return out.State()
	}
	assert.Empty(t, nodeState(n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	assert.Empty(t, nodeState(n))
	assert.True(t, takesPods)
	n.Spec.Unschedulable = true
	assert.Equal(t, "cordoned", nodeState(n))
	assert.False(t, takesPods)
	n.Spec.Unschedulable = false
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	assert.Equal(t, "NotReady", nodeState(n))
	assert.False(t, takesPods)
	n.Spec.Unschedulable = true
	assert.Equal(t, "NotReady, cordoned", nodeState(n))
}

func TestServingByTheDriver(t *testing.T) {
	for expression, want := range map[string]Serving{
		`device.driver == "gpu.tranche.dev"`: Ours,
		`device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"`:   Ours,
		`device.attributes["gpu.tranche.dev"].profile == "1g.10gb" && ("gpu.tranche.dev" == device.driver)`:              Ours,
		`device.driver in ["gpu.tranche.dev"] && device.capacity["gpu.tranche.dev"].memory.isGreaterThan(quantity("1"))`: Ours,
		`device.driver.startsWith("gpu.")`: OursPerhaps,
		`device.driver == "nic.example.com" && device.attributes["nic.example.com"].speed > 100`:               Others,
		`device.driver != "gpu.tranche.dev"`:                                                                   Others,
		`device.driver != "other.example.com"`:                                                                 OursPerhaps,
		`device.driver == "gpu.tranche.dev" || device.attributes["gpu.nvidia.com"].?type.orValue("") == "mig"`: OursPerhaps,
		`device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"`:                               OursPerhaps,
		`device.attributes["nic.example.com"].speed > 100`:                                                     OursPerhaps,
		`cel.bind(d, device, d.driver == "nic.example.com")`:                                                   OursPerhaps,
		`device.driver ==`: OursPerhaps,
		`true`:             OursPerhaps,
	} {
		c := New(Objects{})
		selectors := []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
		assert.Equal(t, want, c.serving(t.Context(), selectors), expression)
	}
}
