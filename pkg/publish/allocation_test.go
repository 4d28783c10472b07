package publish_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
)

const (
	wholeGPU     = "gpu.tranche.dev"
	anyPartition = "gpu-partition.tranche.dev"
	anyMIG       = "gpu-mig.tranche.dev"
	monitors     = "gpu-monitor.tranche.dev"
)

func classOf(profile string) string { return "gpu-mig-" + gpu.ProfileSlug(profile) + ".tranche.dev" }

// cluster is one node's slices and the scheduler that sees them, with the
// device classes of the chart.
type cluster struct {
	t         *testing.T
	scheduler *allocator.Scheduler
	claims    int
}

func clusterOf(t *testing.T, gpus []publish.GPU) *cluster {
	t.Helper()
	scheduler := allocator.New(chartClasses(t), slicesOf(t, gpus))
	scheduler.Compiled = compiled
	return &cluster{t: t, scheduler: scheduler}
}

// compiled has the expressions of all schedulers of these tests.
var compiled = allocation.NewCache(1000)

// chartClasses are the device classes of the chart.
func chartClasses(t *testing.T) []*resourceapi.DeviceClass {
	t.Helper()
	classes, err := allocator.Classes("../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	return classes
}

// ask allocates one claim with these requests; nil when it has to wait.
func (c *cluster) ask(requests ...resourceapi.DeviceRequest) *allocator.Grant {
	c.t.Helper()
	c.claims++
	grant, err := c.scheduler.Allocate(c.t.Context(), node, allocator.Claim(fmt.Sprint("claim-", c.claims), requests...))
	require.NoError(c.t, err)
	return grant
}

// one allocates a claim for one device of a class.
func (c *cluster) one(class string) *allocator.Grant {
	c.t.Helper()
	return c.ask(allocator.Request("device", class, 1))
}

// fill allocates claims of a class until one has to wait, and returns the
// devices in the order in which they were given.
func (c *cluster) fill(class string) []string {
	c.t.Helper()
	var devices []string
	for grant := c.one(class); grant != nil; grant = c.one(class) {
		devices = append(devices, grant.Devices()...)
	}
	return devices
}

// play fills and drains the node in turns, so that both a full and an empty one come up. ask makes
// a claim at random, and released is told of what a claim gives back.
func (c *cluster) play(random *rand.Rand, steps int, ask func(step int) *allocator.Grant, released func(*allocator.Grant)) {
	c.t.Helper()
	granted, refused := 0, 0
	filling := true
	for step := range steps {
		held := c.scheduler.Held()
		if random.IntN(30) == 0 {
			filling = !filling
		}
		filling = filling || len(held) == 0
		if give := random.IntN(10); len(held) > 0 && (filling && give < 3 || !filling && give < 8) {
			grant := held[random.IntN(len(held))]
			c.scheduler.Release(grant)
			released(grant)
			continue
		}
		if ask(step) == nil {
			refused++
		} else {
			granted++
		}
	}
	require.NotZero(c.t, granted)
	require.NotZero(c.t, refused, "the node was never full: the test is too short")
}

// TestPacking is the day of a node with 8 × H100: every fill is exact.
func TestPacking(t *testing.T) {
	gpus := gpusOf(t, builtIn(t, "h100x8"))
	c := clusterOf(t, gpus)
	var small, fours, threes, whole []string
	for _, g := range gpus {
		for start := 6; start >= 0; start-- {
			small = append(small, fmt.Sprintf("%s-mig-1g-10gb-%d", g.Name(), start))
		}
		fours = append(fours, g.Name()+"-mig-4g-40gb-0")
		threes = append(threes, g.Name()+"-mig-3g-40gb-4")
		whole = append(whole, g.Name())
	}

	assert.Equal(t, small, c.fill(classOf("1g.10gb")), "56, GPU after GPU, and a 57th waits")
	assert.Nil(t, c.one(wholeGPU))
	assert.Nil(t, c.one(anyMIG))

	c.scheduler.ReleaseAll()
	assert.Equal(t, fours, c.fill(classOf("4g.40gb")))
	assert.Equal(t, threes, c.fill(classOf("3g.40gb")), "beside the 4g")
	assert.Nil(t, c.one(anyMIG))

	c.scheduler.ReleaseAll()
	for i := range gpus {
		grant := c.one(classOf("3g.40gb"))
		require.NotNil(t, grant)
		assert.Equal(t, gpus[i/2].Name(), gpu.OfDevice(grant.Devices()[0]), "two fill a GPU before the next is cut")
	}
	assert.Equal(t, fours[4:], c.fill(classOf("4g.40gb")), "the other GPUs are whole still")

	c.scheduler.ReleaseAll()
	assert.Equal(t, whole, c.fill(wholeGPU))
	assert.Nil(t, c.one(classOf("1g.10gb")))
}

// TestSmallClaimsLeaveRoom: one claim of each size on one GPU, smallest
// first, still lets the larger ones in.
func TestSmallClaimsLeaveRoom(t *testing.T) {
	c := clusterOf(t, gpusOf(t, machineOf(t, "H100-80GB", 1)))
	for _, want := range []struct{ profile, device string }{
		{"1g.10gb", "mig-1g-10gb-6"},
		{"2g.20gb", "mig-2g-20gb-4"},
		{"4g.40gb", "mig-4g-40gb-0"},
	} {
		grant := c.one(classOf(want.profile))
		require.NotNil(t, grant, want.profile)
		assert.Equal(t, "gpu-0000-11-00-0-"+want.device, grant.Devices()[0])
	}
	assert.Nil(t, c.one(anyMIG))
}

// TestAnyPartition: who asks for no profile gets the smallest plain one of the
// first GPU that has room, and never one that takes the engines that only one
// partition of the GPU can have.
func TestAnyPartition(t *testing.T) {
	for _, model := range models.NVIDIAModels() {
		m, _ := models.NVIDIAModelByKey(model)
		if !m.HasMIG() {
			continue
		}
		t.Run(model, func(t *testing.T) {
			gpus := gpusOf(t, machineOf(t, model, 2))
			smallest := m.Profiles[0]
			for _, class := range []string{anyMIG, anyPartition} {
				c := clusterOf(t, gpus)
				got := c.fill(class)
				var want []string
				for _, g := range gpus {
					for i := len(smallest.Starts) - 1; i >= 0; i-- {
						want = append(want, gpu.Placement{
							GPU: g.PCIAddress, Type: gpu.TypeMIG, Profile: smallest.Name, Start: smallest.Starts[i],
						}.Name())
					}
				}
				assert.Equal(t, want, got)
			}
		})
	}
}

// TestSeveralDevicesInOneClaim: what the demo with two containers asks for,
// and a claim that is larger than the node.
func TestSeveralDevicesInOneClaim(t *testing.T) {
	c := clusterOf(t, gpusOf(t, machineOf(t, "H100-80GB", 2)))
	grant := c.ask(allocator.Request("small", classOf("1g.10gb"), 1), allocator.Request("large", classOf("3g.40gb"), 1))
	require.NotNil(t, grant)
	assert.Equal(t, []string{"gpu-0000-11-00-0-mig-1g-10gb-6", "gpu-0000-11-00-0-mig-3g-40gb-0"}, grant.Devices())
	assert.Nil(t, c.ask(allocator.Request("gpus", wholeGPU, 2)), "one GPU is cut")
	assert.NotNil(t, c.ask(allocator.Request("gpus", wholeGPU, 1)))
	c.scheduler.ReleaseAll()
	assert.NotNil(t, c.ask(allocator.Request("gpus", wholeGPU, 2)))
}

// TestAdminAccess: a monitor starts beside work, gets all GPUs, and takes nothing. The allocator checks counters also for a
// claim with admin access, so a whole GPU is no device for monitors.
func TestAdminAccess(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "H100-80GB", 2))
	c := clusterOf(t, gpus)
	asAdmin := func(class string) resourceapi.DeviceRequest {
		r := allocator.Request("gpus", class, 0)
		r.Exactly.AllocationMode, r.Exactly.AdminAccess = resourceapi.DeviceAllocationModeAll, new(true)
		r.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: names.TaintMonitor, Operator: resourceapi.DeviceTolerationOpExists}}
		return r
	}
	require.NotNil(t, c.one(classOf("1g.10gb")))
	require.NotNil(t, c.one(wholeGPU))
	assert.Nil(t, c.ask(asAdmin(wholeGPU)), "a partition is held")
	for range 2 {
		grant := c.ask(asAdmin(monitors))
		require.NotNil(t, grant)
		assert.Equal(t, []string{gpus[0].Name() + "-monitor", gpus[1].Name() + "-monitor"}, grant.Devices())
	}
	assert.Len(t, c.fill(classOf("1g.10gb")), 6, "monitors take nothing")
	assert.Nil(t, c.one(monitors), "nobody takes the device by accident")
}

// TestTaintedGPU: nothing new goes onto a tainted GPU, and what it gave away
// before still counts when the taint is gone.
func TestTaintedGPU(t *testing.T) {
	gpus := gpusOf(t, machineOf(t, "H100-80GB", 2))
	c := clusterOf(t, gpus)
	require.NotNil(t, c.one(classOf("4g.40gb")))
	gpus[0].Taints = []resourceapi.DeviceTaint{{Key: names.TaintUnhealthy, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	c.scheduler.Publish(slicesOf(t, gpus))
	assert.Equal(t, []string{gpus[1].Name()}, c.fill(wholeGPU))
	gpus[0].Taints = nil
	c.scheduler.Publish(slicesOf(t, gpus))
	assert.Equal(t, []string{gpus[0].Name() + "-mig-3g-40gb-4"}, c.fill(classOf("3g.40gb")))
}
