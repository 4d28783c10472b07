package node

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/nodetest"
)

// dropCounters makes the API server one with DRAPartitionableDevices off.
func dropCounters(client *fake.Clientset) {
	var off atomic.Bool
	off.Store(true)
	dropCountersWhen(client, &off)
}

// dropCountersWhen makes it one whose gate is off once off is true. It must be
// called before anybody talks to the server.
func dropCountersWhen(client *fake.Clientset, off *atomic.Bool) {
	client.PrependReactor("*", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if !off.Load() {
			return false, nil, nil
		}
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				slice.Spec.SharedCounters = nil
				for i := range slice.Spec.Devices {
					slice.Spec.Devices[i].ConsumesCounters = nil
				}
			}
		}
		return false, nil, nil
	})
}

func TestDetectFeatures(t *testing.T) {
	api := nodetest.NewAPI()
	found, err := detectFeatures(t.Context(), api, nodetest.NodeName)
	require.NoError(t, err)
	assert.Equal(t, features{partitionable: true, consumable: true, taints: true}, found)
	assert.Empty(t, nodetest.SlicesOf(t, api, gpu.DriverName), "it was only tried")

	dropCounters(api)
	found, err = detectFeatures(t.Context(), api, nodetest.NodeName)
	require.NoError(t, err)
	assert.Equal(t, features{consumable: true, taints: true}, found)

	api.PrependReactor("create", "resourceslices", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no way")
	})
	_, err = detectFeatures(t.Context(), api, nodetest.NodeName)
	require.EqualError(t, err, "ask the API server, with a dry run, which fields of a ResourceSlice it keeps: no way")
}

// Where the API server drops counters, whole GPUs are offered and nothing else,
// at no moment, and an event says why.
func TestClusterWithoutPartitionableDevices(t *testing.T) {
	api := nodetest.NewAPI()
	dropCounters(api)
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
// claims hold then keeps its GPU from being given out.
func TestCountersAreDroppedLater(t *testing.T) {
	api := nodetest.NewAPI()
	var off atomic.Bool
	dropCountersWhen(api, &off)
	m := newMachine(t, api)
	k, _ := m.start()
	awaitDevices(t, api, false, untainted)
	c := nodetest.Allocate(t, api, "a", small0)
	k.mustPrepare(c)

	off.Store(true)
	setAllocatable(t, api, "8") // any change that is published
	nodetest.AwaitEvent(t, api, "PartitionsNotPublished", "")
	require.Eventually(t, func() bool {
		for _, s := range nodetest.SlicesOf(t, api, gpu.DriverName) {
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
