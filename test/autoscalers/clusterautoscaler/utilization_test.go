package clusterautoscaler

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/test/autoscalers/nodes"
)

const (
	smallest = nodes.Smallest
	half     = nodes.Half
	cpx      = nodes.CPX
	whole    = nodes.Whole
	share    = nodes.Share
)

// threshold is the default of --scale-down-utilization-threshold: a node that is used more
// is not removed.
const threshold = 0.5

// What holders of devices make of a node's utilization. The scheduler chooses the devices.
func TestUtilization(t *testing.T) {
	for _, test := range []struct {
		name, model string
		claims      map[string]int
		want        float64
	}{
		{"empty", "h100x8", nil, 0},
		{"one partition", "h100x8", map[string]int{smallest: 1}, 1.0 / 8},
		{"a full GPU of partitions", "h100x8", map[string]int{smallest: 7}, 1.0 / 8},
		{"half of a GPU", "h100x8", map[string]int{half: 1}, 1.0 / 8},
		{"a whole GPU", "h100x8", map[string]int{whole: 1}, 1.0 / 8},
		{"half of the GPUs", "h100x8", map[string]int{whole: 4}, 0.5},
		{"half of the GPUs and a partition", "h100x8", map[string]int{whole: 4, smallest: 1}, 5.0 / 8},
		{"all GPUs", "h100x8", map[string]int{whole: 8}, 1},
		{"all partitions", "h100x8", map[string]int{smallest: 56}, 1},
		{"a share", "h100x8", map[string]int{share: 1}, 1.0 / 8},
		{"shares of one GPU", "h100x8", map[string]int{share: 2}, 1.0 / 8},
		{"one AMD partition", "mi300x8", map[string]int{cpx: 1}, 1.0 / 8},
		{"all AMD partitions", "mi300x8", map[string]int{cpx: 64}, 1},
		{"GPUs without MIG", "l4x4", map[string]int{whole: 2}, 0.5},
		{"two vendors", "h100x2-mi300x2", map[string]int{cpx: 1, smallest: 1}, 0.5},
	} {
		t.Run(test.name, func(t *testing.T) {
			slices, claims := node(t, test.model, test.claims)
			assert.InDelta(t, test.want, Utilization(slices, claims), 1e-9)
		})
	}
}

// One partition on each GPU makes the node full: a memory slice is used or free.
func TestOnePartitionOnEachGPU(t *testing.T) {
	slices, _ := node(t, "h100x8", nil)
	var claims []resourceapi.AllocationResult
	for _, slice := range slices {
		if len(slice.Spec.Devices) == 0 {
			continue // it has the counters
		}
		result := resourceapi.DeviceRequestAllocationResult{Driver: nodes.Driver, Pool: slice.Spec.Pool.Name, Device: slice.Spec.Devices[0].Name}
		claims = append(claims, resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}})
	}
	require.Len(t, claims, 8)
	assert.InDelta(t, 1, Utilization(slices, claims), 1e-9)
}

// A node whose load others can take is below the threshold, a full one above it.
func TestThreshold(t *testing.T) {
	for _, test := range []struct {
		claims map[string]int
		stays  bool
	}{
		{map[string]int{smallest: 28}, false},
		{map[string]int{whole: 4}, false},
		{map[string]int{whole: 5}, true},
		{map[string]int{smallest: 56}, true},
	} {
		slices, claims := node(t, "h100x8", test.claims)
		assert.Equal(t, test.stays, Utilization(slices, claims) > threshold, "%v", test.claims)
	}
}

// node is a node of a model on which claims hold devices, one each, by class.
func node(t *testing.T, model string, classes map[string]int) ([]resourceapi.ResourceSlice, []resourceapi.AllocationResult) {
	t.Helper()
	slices, err := nodes.Slices(t.Context(), model, "node-a")
	require.NoError(t, err)
	all, err := nodes.Classes()
	require.NoError(t, err)
	scheduler := nodes.NewScheduler("node-a", slices, all)
	var results []resourceapi.AllocationResult
	for _, class := range []string{whole, half, smallest, cpx, share} {
		for range classes[class] {
			result, err := scheduler.Allocate(t.Context(), nodes.Claim("team", "claim", class))
			require.NoError(t, err)
			require.NotNil(t, result, "no free %s", class)
			results = append(results, *result)
		}
	}
	return slices, results
}

// What the provider for Cluster API makes of the annotations dra-driver and gpu-count, for a
// group without nodes: devices that are whole GPUs for our classes, of no vendor.
func TestClusterAPIFromZero(t *testing.T) {
	d := resourceapi.Device{Name: "gpu-0", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: ptr.To("gpu")}}}
	slice := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: nodes.Driver, NodeName: ptr.To("node-a"), Pool: resourceapi.ResourcePool{Name: "node-a", ResourceSliceCount: 1}, Devices: []resourceapi.Device{d},
	}}
	all, err := nodes.Classes()
	require.NoError(t, err)
	for class, granted := range map[string]bool{whole: true, "gpu-nvidia.tranche.dev": false, smallest: false, share: false} {
		scheduler := nodes.NewScheduler("node-a", []resourceapi.ResourceSlice{slice}, all)
		result, err := scheduler.Allocate(t.Context(), nodes.Claim("team", "claim", class))
		require.NoError(t, err)
		assert.Equal(t, granted, result != nil, class)
	}
}
