package noderesources_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/short"
)

var catalog = noderesources.NewCatalog()

func classes(t testing.TB) (all []*resourceapi.DeviceClass, byName noderesources.Class) {
	all, err := allocator.Classes("../../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	return all, func(name string) *resourceapi.DeviceClass {
		for _, class := range all {
			if class.Name == name {
				return class
			}
		}
		return nil
	}
}

// node is a node of GPUs with an allocator.
type node struct {
	*allocator.Scheduler
	gives noderesources.Amount
}

func newNode(t testing.TB, gpus string) *node {
	inventory, err := models.ParseInventory([]byte("gpus: [" + gpus + "]"))
	require.NoError(t, err)
	published, err := preview.Slices(preview.Node{Name: "node-a", Inventory: inventory})
	require.NoError(t, err)
	var slices []*resourceapi.ResourceSlice
	for i := range published {
		slices = append(slices, &published[i])
	}
	all, _ := classes(t)
	return &node{allocator.New(all, slices), noderesources.Of(inventory.Hardware("node-a"))}
}

// take allocates a claim and returns whether the node has room.
func (n *node) take(t testing.TB, spec resourceapi.ResourceClaimSpec) bool {
	claim := allocator.Claim(fmt.Sprint("c", len(n.Held())))
	claim.Spec = spec
	grant, err := n.Allocate(t.Context(), "node-a", claim)
	require.NoError(t, err)
	return grant != nil
}

// requested is what all claims of the node request.
func (n *node) requested(t testing.TB) (sum noderesources.Amount) {
	_, byName := classes(t)
	for _, g := range n.Held() {
		least := catalog.Least(t.Context(), &g.Claim.Spec, byName)
		sum.MemoryMiB, sum.Compute = sum.MemoryMiB+least.MemoryMiB, sum.Compute+least.Compute
	}
	return sum
}

func asking(class string, count int64, amounts ...string) resourceapi.ResourceClaimSpec {
	r := allocator.Request("gpu", class, count)
	if len(amounts) > 0 {
		r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	}
	for i := 0; i < len(amounts); i += 2 {
		r.Exactly.Capacity.Requests[resourceapi.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{r}}}
}

func selecting(class, cel string) resourceapi.ResourceClaimSpec {
	spec := asking(class, 1)
	spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: cel}}}
	return spec
}

func TestLeast(t *testing.T) {
	custom := func(cel string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: cel}}}}}
	}
	_, byName := classes(t)
	any := asking("gpu-mig-1g-10gb.tranche.dev", 1)
	any.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "a", DeviceClassName: "gpu-mig-3g-40gb.tranche.dev", Count: 1},
		{Name: "b", DeviceClassName: "gpu-mig-1g-10gb.tranche.dev", Count: 2},
		{Name: "c", DeviceClassName: "gpu-mig-2g-20gb.tranche.dev", Count: 1},
	}}
	admin := asking("gpu-mig-1g-10gb.tranche.dev", 1)
	admin.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	all := asking("gpu-mig-1g-10gb.tranche.dev", 0)
	all.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	two := asking("gpu-mig-1g-10gb.tranche.dev", 1)
	two.Devices.Requests = append(two.Devices.Requests, asking("gpu-mig-2g-20gb.tranche.dev", 1).Devices.Requests...)

	for _, tt := range []struct {
		name string
		spec resourceapi.ResourceClaimSpec
		want noderesources.Amount
	}{
		{"the smallest of all models and driver versions", asking("gpu-mig-1g-10gb.tranche.dev", 1), noderesources.Amount{MemoryMiB: 9728, Compute: 142}},
		{"two", asking("gpu-mig-1g-10gb.tranche.dev", 2), noderesources.Amount{MemoryMiB: 19456, Compute: 284}},
		{"two requests", two, noderesources.Amount{MemoryMiB: 9728 + 19968, Compute: 142 + 285}},
		{"all: at least one", all, noderesources.Amount{MemoryMiB: 9728, Compute: 142}},
		{"any of several: the least of each", any, noderesources.Amount{MemoryMiB: 19456, Compute: 284}},
		{"for administrators", admin, noderesources.Amount{}},
		{"a whole GPU of any model, known or not", asking("gpu.tranche.dev", 1), noderesources.Amount{Compute: 1000}},
		{"a whole GPU with much memory", asking("gpu.tranche.dev", 1, "memory", "100Gi"), noderesources.Amount{MemoryMiB: 102400, Compute: 1000}},
		{"a partition with much memory", asking("gpu-mig.tranche.dev", 1, "memory", "100Gi"), noderesources.Amount{MemoryMiB: 136320, Compute: 428}},
		{"a capacity that no device has", asking("gpu-mig.tranche.dev", 1, "fraction", "0.5"), noderesources.Amount{}},
		{"what an older driver says of its memory", selecting("gpu-mig.tranche.dev", `device.attributes["gpu.tranche.dev"].profile == "1g.23gb"`), noderesources.Amount{MemoryMiB: 20992, Compute: 142}},
		{"a selector", selecting("gpu-mig.tranche.dev", `device.attributes["gpu.tranche.dev"].productName.startsWith("NVIDIA H200") && device.capacity["gpu.tranche.dev"].memory.isGreaterThan(quantity("60Gi"))`), noderesources.Amount{MemoryMiB: 71424, Compute: 428}},
		{"a selector that fails", selecting("gpu-mig.tranche.dev", `device.attributes["gpu.tranche.dev"].color == "red"`), noderesources.Amount{}},
		{"a selector that selects nothing", selecting("gpu-mig.tranche.dev", `device.attributes["gpu.tranche.dev"].profile == "9g.1gb"`), noderesources.Amount{}},
		{"a class that does not exist", asking("none", 1), noderesources.Amount{}},
		{"an AMD partition", asking("gpu-xcp-cpx.tranche.dev", 1), noderesources.Amount{MemoryMiB: 21845, Compute: 125}},
		{"a share of memory", asking("gpu-memory-share.tranche.dev", 1, "memory", "20Gi"), noderesources.Amount{MemoryMiB: 20480}},
		{"a share of memory, with the driver's domain", asking("gpu-memory-share.tranche.dev", 1, "gpu.tranche.dev/memory", "20Gi"), noderesources.Amount{MemoryMiB: 20480}},
		{"a share without an amount", asking("gpu-memory-share.tranche.dev", 1), noderesources.Amount{}},
		{"a fraction of any GPU", asking("gpu-fraction-share.tranche.dev", 1, "fraction", "0.5"), noderesources.Amount{Compute: 500}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, catalog.Least(t.Context(), &tt.spec, byName))
		})
	}
	for cel, want := range map[string]noderesources.Amount{
		`device.driver == "gpu.nvidia.com"`: {}, `true`: {}, `device.attributes["x"].y == 1`: {},
		`device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].profile == "4g.40gb"`:                                                                    {}, // whole GPUs have none
		`device.driver != "gpu.tranche.dev" || device.attributes["gpu.tranche.dev"].type == "mig"`:                                                                           {},
		`device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].type == "mig" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "4g.40gb"`: {MemoryMiB: 40192, Compute: 571},
	} {
		ended, end := context.WithCancel(t.Context())
		end()
		assert.Empty(t, catalog.LeastOfClass(ended, custom(cel)), "and not kept")
		assert.Equal(t, want, catalog.LeastOfClass(t.Context(), custom(cel)), cel)
	}
}

// What claims hold together never requests more than the node gives.
func TestNoFeasibleSetIsRefused(t *testing.T) {
	all, _ := classes(t)
	var asks []resourceapi.ResourceClaimSpec
	for _, class := range all {
		switch {
		case strings.Contains(class.Name, "memory-share"):
			asks = append(asks, asking(class.Name, 1, "memory", "5Gi"), asking(class.Name, 1, "memory", "17Gi"))
		case strings.Contains(class.Name, "fraction-share"):
			asks = append(asks, asking(class.Name, 1, "fraction", "0.3"), asking(class.Name, 1, "fraction", "0.5"))
		default:
			asks = append(asks, asking(class.Name, 1))
		}
	}
	for _, model := range append(models.NVIDIAModels(), models.AMDModels()...) {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(short.Of(2, 10)) {
				random := rand.New(rand.NewPCG(seed, 0))
				n := newNode(t, "{model: "+model+", count: 2}")
				// Few classes for each node, so that it fills with the same.
				some := []resourceapi.ResourceClaimSpec{asks[random.IntN(len(asks))], asking("gpu.tranche.dev", 1, "memory", "1Gi")}
				for range 4 {
					some = append(some, asks[random.IntN(len(asks))])
				}
				for refused := 0; refused < 8; refused++ {
					for n.take(t, some[random.IntN(len(some))]) {
						sum := n.requested(t)
						require.LessOrEqual(t, sum.MemoryMiB, n.gives.MemoryMiB)
						require.LessOrEqual(t, sum.Compute, n.gives.Compute)
					}
				}
			}
		})
	}
}

// A node of eight GPUs that partitions of one kind fill has no room for another one: that is what the scheduler
// must see without looking at devices.
func TestFullNodesAreSeen(t *testing.T) {
	_, byName := classes(t)
	for _, tt := range []struct{ gpus, class string }{
		{"{model: H100-80GB, count: 8}", "gpu.tranche.dev"},
		{"{model: H100-80GB, count: 8}", "gpu-mig-1g-10gb.tranche.dev"},
		{"{model: H100-80GB, count: 8}", "gpu-mig-3g-40gb.tranche.dev"},
		{"{model: A100-40GB, count: 8, migMode: enabled}", "gpu-mig-1g-5gb.tranche.dev"},
		{"{model: A30-24GB, count: 4, migMode: enabled}", "gpu-mig-1g-6gb.tranche.dev"},
		{"{model: MI300X, count: 8}", "gpu-xcp-cpx.tranche.dev"},
		{"{model: MI300X, count: 8}", "gpu-xcp-dpx.tranche.dev"},
	} {
		t.Run(tt.gpus+" "+tt.class, func(t *testing.T) {
			n := newNode(t, tt.gpus)
			spec := asking(tt.class, 1)
			for n.take(t, spec) {
			}
			require.NotEmpty(t, n.Held())
			sum, more := n.requested(t), catalog.Least(t.Context(), &spec, byName)
			assert.True(t, sum.MemoryMiB+more.MemoryMiB > n.gives.MemoryMiB || sum.Compute+more.Compute > n.gives.Compute,
				"%d claims hold %+v of %+v, and %+v would fit", len(n.Held()), sum, n.gives, more)
		})
	}
}

func TestAmounts(t *testing.T) {
	gpus := []gpu.GPU{{Memory: 3*gpu.MiB + 1}, {Memory: gpu.MiB}}
	amount := noderesources.Of(gpus)
	assert.Equal(t, noderesources.Amount{MemoryMiB: 5, Compute: 2000}, amount, "rounded up")
	list := amount.List()
	assert.Len(t, list, 2)
	memory, compute := list[names.ResourceGPUMemory], list[names.ResourceGPUCompute]
	assert.Equal(t, "5Mi", memory.String())
	assert.Equal(t, "2k", compute.String())
	for _, test := range []struct {
		of   gpu.Placement
		want int64
	}{
		{gpu.Placement{Type: gpu.TypeGPU}, 1000},
		{gpu.Placement{Type: gpu.TypeMIG, Profile: "3g.40gb"}, 3000 / 7},
		{gpu.Placement{Type: gpu.TypeMIG, Profile: "7g.80gb"}, 1000},
		{gpu.Placement{Type: gpu.TypeMIG, Profile: "8g.80gb"}, 1000},
		{gpu.Placement{Type: gpu.TypeMIG, Profile: "unknown7"}, 0},
		{gpu.Placement{Type: gpu.TypeXCP, Profile: "cpx"}, 125},
		{gpu.Placement{Type: gpu.TypeXCP, Profile: "qpx"}, 250},
		{gpu.Placement{Type: gpu.TypeXCP, Profile: "tpx"}, 333},
		{gpu.Placement{Type: gpu.TypeXCP, Profile: "dpx"}, 500},
		{gpu.Placement{Type: gpu.TypeXCP, Profile: "of the future"}, 0},
		{gpu.Monitor("0000:05:00.0"), 0},
	} {
		assert.Equal(t, test.want, noderesources.ComputeOf(test.of), test.of.Profile)
	}
}
