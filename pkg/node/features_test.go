package node

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// dropShares takes from a slice what an API server with DRAConsumableCapacity off drops.
func dropShares(slice *resourceapi.ResourceSlice) error {
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].AllowMultipleAllocations = nil
	}
	return nil
}

// Where the API server drops fields, the devices that need them are not offered at any moment, and
// an event says why.
func TestClusterWithoutAFeature(t *testing.T) {
	for gate, tt := range map[string]struct {
		drop    func(*resourceapi.ResourceSlice) error
		event   string
		offered func(*resourceapi.Device) bool
		works   string
	}{
		"DRAPartitionableDevices": {nodetest.DropCounters, "PartitionsNotPublished", func(d *resourceapi.Device) bool { return len(d.ConsumesCounters) == 0 }, card0},
		"DRAConsumableCapacity":   {dropShares, "SharesNotPublished", func(d *resourceapi.Device) bool { return !strings.HasSuffix(d.Name, "-share") }, small0},
	} {
		t.Run(gate, func(t *testing.T) {
			api := nodetest.NewAPI()
			nodetest.OnSliceWrite(api, func(slice *resourceapi.ResourceSlice) error {
				for i := range slice.Spec.Devices {
					d := &slice.Spec.Devices[i]
					assert.True(t, d.Name == "probe" || tt.offered(d), d.Name) // a probe is only tried
				}
				return tt.drop(slice)
			})
			m := newMachine(t, api)
			k, _ := m.start()
			awaitSlices(t, api)
			assert.Contains(t, nodetest.AwaitEvent(t, api, tt.event, ""), gate+" is off")
			k.works(nodetest.Allocate(t, api, "a", tt.works))
		})
	}
}

// A gate that is turned off later is noticed when slices lose fields. What
// claims hold then keeps its GPU from being allocated.
func TestCountersAreDroppedLater(t *testing.T) {
	api := nodetest.NewAPI()
	var off atomic.Bool
	nodetest.OnSliceWrite(api, func(slice *resourceapi.ResourceSlice) error {
		if off.Load() {
			return nodetest.DropCounters(slice)
		}
		return nil
	})
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
				if len(d.ConsumesCounters) > 0 || d.Name == card0 {
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
