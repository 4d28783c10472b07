package node

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/nodetest"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// dropShares makes the API server one with DRAConsumableCapacity off.
func dropShares(client *fake.Clientset) {
	client.PrependReactor("*", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				for i := range slice.Spec.Devices {
					slice.Spec.Devices[i].AllowMultipleAllocations = nil
				}
			}
		}
		return false, nil, nil
	})
}

// Where the API server drops what lets several claims hold one device, there are
// no shares at any moment, and an event says why.
func TestClusterWithoutConsumableCapacity(t *testing.T) {
	api := nodetest.NewAPI()
	dropShares(api)
	m := newMachine(t, api)
	k, _ := m.start()
	awaitSlices(t, api)
	assert.Contains(t, nodetest.AwaitEvent(t, api, "SharesNotPublished", ""), "DRAConsumableCapacity is off")
	for _, a := range api.Actions() {
		if write, ok := a.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				for _, d := range slice.Spec.Devices {
					assert.NotContains(t, d.Name, "-share")
				}
			}
		}
	}
	k.works(nodetest.Allocate(t, api, "a", small0))
}

// A gate that is turned off later is noticed when slices lose fields.
func TestSharesAreDroppedLater(t *testing.T) {
	p := newPublishing(t)
	p.isShared = func(string) bool { return false }
	p.setOwners(t.Context(), nil)
	slice := func(multiple *bool) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{Name: "d", AllowMultipleAllocations: multiple}}}}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	d := &driver{publisher: p.publisher, stop: stop}
	d.HandleError(ctx, &resourceslice.DroppedFieldsError{PoolName: "p", DesiredSlice: slice(ptr.To(true)), ActualSlice: slice(nil)}, "sync")
	require.NoError(t, ctx.Err(), "the plugin goes on")
	nodetest.AwaitEvent(t, p.api, "SharesNotPublished", "DRAConsumableCapacity")
	assert.True(t, p.noShares)
}

// sharedGPUAt is a GPU with shares of its placements.
func sharedGPUAt(address string) gpu.GPU {
	g := nodetest.GPUAt(address)
	for _, p := range g.Placements[:2] {
		p.Memory = 10 << 30
		g.Placements = append(g.Placements, gpu.ShareOf(p, gpu.ByMemory, profile.Default().Sharing))
	}
	return g
}

// What is in the way of a device is in the way of its shares.
func TestSharesHaveTheTaintsOfTheirBase(t *testing.T) {
	p := newPublishing(t)
	const address = "0000:01:00.0"
	p.gpus.Update([]gpu.GPU{sharedGPUAt(address), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	p.setOwners(t.Context(), nil)
	partition := nodetest.GPUAt(address).Placements[0].Name()
	p.setObstacles(t.Context(), map[string][]gpu.Obstacle{address: {{Placement: partition, Kind: gpu.ObstacleBusy, Reason: "a process"}}})
	taints := p.taintsByDevice()
	assert.Equal(t, "busy", taints[partition])
	assert.Equal(t, taints[partition], taints[partition+"-memory-share"])
	assert.Empty(t, taints["gpu-0000-01-00-0-memory-share"])

	p.setObstacles(t.Context(), nil)
	p.setForeign(t.Context(), map[string][]gpu.Partition{address: {{GPU: address, Profile: "1g.10gb", Start: 2, Size: 1, Type: gpu.TypeMIG}}})
	for _, name := range []string{partition, partition + "-memory-share", "gpu-0000-01-00-0-memory-share"} {
		assert.Equal(t, "foreign-partition", p.taintsByDevice()[name], name)
	}
}

// Shares that are held and cannot be published keep everything else off the GPU.
func TestHeldSharesWithholdTheirGPU(t *testing.T) {
	p := newPublishing(t)
	p.isCut = func(string) bool { return false }
	p.isShared = func(address string) bool { return address == "0000:01:00.0" }
	p.setOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[gpu1])
	p.restrictShares(t.Context())
	assert.Equal(t, "empty", p.state()[gpu1])
	assert.Equal(t, "published", p.state()[gpu2])
}
