package node

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// Where the API server drops counters, whole GPUs are offered and nothing else,
// at no moment, and an event says why.
func TestClusterWithoutPartitionableDevices(t *testing.T) {
	api := nodetest.NewAPI()
	nodetest.DropCounters(api)
	m := newMachine(t, api)
	k, _ := m.start()
	awaitSlices(t, api)
	assert.Contains(t, nodetest.AwaitEvent(t, api, "PartitionsNotPublished", ""), "DRAPartitionableDevices is off")
	for _, a := range api.Actions() {
		if write, ok := a.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				for _, d := range slice.Spec.Devices {
					if d.Name == "probe" {
						continue // only tried
					}
					assert.Equal(t, "gpu", *d.Attributes["type"].StringValue)
				}
			}
		}
	}
	k.works(nodetest.Allocate(t, api, "a", card0))
}

// A gate that is turned off later is noticed when slices lose fields. What
// claims hold then keeps its GPU from being allocated.
func TestCountersAreDroppedLater(t *testing.T) {
	api := nodetest.NewAPI()
	var off atomic.Bool
	nodetest.DropCountersWhen(api, &off)
	m := newMachine(t, api)
	k, _ := m.start()
	awaitDevices(t, api, false, untainted)
	c := nodetest.Allocate(t, api, "a", small0)
	k.mustPrepare(c)

	off.Store(true)
	setAllocatable(t, api, "8") // any change that is published
	nodetest.AwaitEvent(t, api, "PartitionsNotPublished", "")
	require.Eventually(t, func() bool {
		for _, s := range nodetest.SlicesOf(t, api, names.DriverName) {
			for _, d := range s.Spec.Devices {
				if *d.Attributes["type"].StringValue != "gpu" || d.Name == card0 {
					return false
				}
			}
		}
		return true
	}, nodetest.Patience, nodetest.Tick, "the GPU that is cut is not offered, no more than pieces")
	require.Empty(t, k.unprepare(c))
	list, err := api.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, list.Items)
}
