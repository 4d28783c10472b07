package publisher

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestHandleError(t *testing.T) {
	desired := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{Name: "gpu"}}}}
	dropped := &resourceslice.DroppedFieldsError{PoolName: "p", DesiredSlice: desired, ActualSlice: &resourceapi.ResourceSlice{}}
	for name, tt := range map[string]struct {
		err   error
		fatal bool
		event string
	}{
		"recoverable":    {fmt.Errorf("no route: %w", kubeletplugin.ErrRecoverable), false, "sync: no route"},
		"invalid":        {apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceSlice"}, "s", nil), false, "is invalid"},
		"dropped fields": {dropped, false, "the cluster lacks feature gates that Tranche needs"},
		"anything else":  {errors.New("the socket is gone"), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublishing(t)
			err := p.HandleError(t.Context(), tt.err, "sync")
			if tt.fatal {
				require.EqualError(t, err, "sync: the socket is gone")
				return
			}
			require.NoError(t, err, "the plugin goes on")
			nodetest.AwaitEvent(t, p.api, "PublishFailed", tt.event)
		})
	}
}

// A gate that is turned off later is noticed when slices lose fields.
func TestFieldsAreDroppedLater(t *testing.T) {
	p := newPublishing(t)
	p.SetOwners(t.Context(), nil)
	slice := func(d resourceapi.Device) *resourceapi.ResourceSlice {
		d.Name = "d"
		return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{d}}}
	}
	drops := func(d resourceapi.Device) {
		require.NoError(t, p.HandleError(t.Context(), &resourceslice.DroppedFieldsError{PoolName: "p", DesiredSlice: slice(d), ActualSlice: slice(resourceapi.Device{})}, "sync"), "the plugin goes on")
	}
	drops(resourceapi.Device{AllowMultipleAllocations: ptr.To(true)})
	nodetest.AwaitEvent(t, p.api, "SharesNotPublished", "DRAConsumableCapacity")
	assert.Equal(t, []bool{false, true, false}, []bool{p.wholeOnly, p.noShares, p.noTaints})
	drops(resourceapi.Device{Taints: []resourceapi.DeviceTaint{{Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule}}})
	nodetest.AwaitEvent(t, p.api, "TaintsNotPublished", "DRADeviceTaints")
	assert.Equal(t, []bool{false, true, true}, []bool{p.wholeOnly, p.noShares, p.noTaints})
	counted := slice(resourceapi.Device{})
	counted.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "gpu"}}
	require.NoError(t, p.HandleError(t.Context(), &resourceslice.DroppedFieldsError{PoolName: "p", DesiredSlice: counted, ActualSlice: slice(resourceapi.Device{})}, "sync"))
	assert.True(t, p.wholeOnly)
	assert.NotContains(t, nodetest.AwaitEvent(t, p.api, "PartitionsNotPublished", ""), "Nothing is published of")
}

// What is in the way of a device is in the way of its shares.
func TestSharesHaveTheTaintsOfTheirBase(t *testing.T) {
	p := newPublishing(t)
	const address = "0000:01:00.0"
	p.GPUs.Update([]gpu.GPU{sharedGPUAt(address), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	p.SetOwners(t.Context(), nil)
	partition := nodetest.GPUAt(address).Placements[0].Name()
	p.SetObstacles(t.Context(), map[string][]gpu.Obstacle{address: {{Placement: partition, Kind: gpu.ObstacleBusy, Reason: "a process"}}})
	taints := p.taintsByDevice()
	assert.Equal(t, "busy", taints[partition])
	assert.Equal(t, taints[partition], taints[partition+"-memory-share"])
	assert.Empty(t, taints["gpu-0000-01-00-0-memory-share"])

	p.SetObstacles(t.Context(), nil)
	p.SetForeign(t.Context(), map[string][]gpu.Partition{address: {{GPU: address, Profile: "1g.10gb", Start: 2, Size: 1, Type: gpu.TypeMIG}}})
	for _, name := range []string{partition, partition + "-memory-share", "gpu-0000-01-00-0-memory-share"} {
		assert.Equal(t, "foreign-partition=1g.10gb_2", p.taintsByDevice()[name], name)
	}
}

// Shares that are held and cannot be published keep everything else off the GPU.
func TestHeldSharesWithholdTheirGPU(t *testing.T) {
	p := newPublishing(t)
	g := sharedGPUAt("0000:01:00.0")
	release := p.hold(t, g.Placements[len(g.Placements)-1], names.PoolName(nodetest.NodeName))
	p.SetOwners(t.Context(), nil)
	assert.Equal(t, "published", p.state()[gpu1])
	p.restrictShares(t.Context())
	assert.Equal(t, "empty", p.state()[gpu1])
	assert.Equal(t, "published", p.state()[gpu2])
	release()
	p.ClaimsChanged(t.Context())
	assert.Equal(t, "published", p.state()[gpu1])
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
