package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func publishes(_ []Change, publish bool) bool { return publish }

// What was there before the plugin started is known, and stays if it does not answer.
func TestSeed(t *testing.T) {
	var c GPUs
	lost := gpu.Problem{Cause: gpu.CauseLost, Message: "fell off the bus"}
	c.Seed([]gpu.GPU{nodetest.GPUAt("0000:01:00.0")}, map[string]gpu.Problem{"0000:01:00.0": lost})
	c.Seed([]gpu.GPU{nodetest.GPUAt("0000:02:00.0")}, nil)
	assert.Equal(t, []GPU{{GPU: nodetest.GPUAt("0000:01:00.0"), Problem: lost}, {GPU: nodetest.GPUAt("0000:02:00.0")}}, c.List())
}

func TestGPUsUpdate(t *testing.T) {
	var c GPUs
	assert.True(t, publishes(c.Update([]gpu.GPU{nodetest.GPUAt("0000:02:00.0"), nodetest.GPUAt("0000:01:00.0")}, nil, nil)), "new GPUs")
	assert.False(t, publishes(c.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)), "the same in another order")
	assert.Equal(t, []gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, c.Now(), "in PCI order")
	c.MarkPublished("0000:01:00.0")

	// A GPU that is lost stays, with what is wrong with it.
	assert.True(t, publishes(c.Update([]gpu.GPU{nodetest.GPUAt("0000:02:00.0")}, map[string]gpu.Problem{"0000:01:00.0": {Cause: gpu.CauseLost, Message: "fell off the bus"}}, nil)))
	assert.False(t, publishes(c.Update([]gpu.GPU{nodetest.GPUAt("0000:02:00.0")}, map[string]gpu.Problem{"0000:01:00.0": {Cause: gpu.CauseLost, Message: "fell off the bus"}}, nil)))
	assert.Equal(t, gpu.Problem{Cause: gpu.CauseLost, Message: "fell off the bus"}, c.List()[0].Problem)
	assert.True(t, publishes(c.Update([]gpu.GPU{nodetest.GPUAt("0000:02:00.0")}, nil, nil)), "another problem")
	assert.Equal(t, "the driver no longer lists the GPU", c.List()[0].Problem.Message)

	// It comes back, which is believed when it has been seen several times, and
	// is known to have been published.
	all := []gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}
	for range HealthyChecks - 1 {
		assert.False(t, publishes(c.Update(all, nil, nil)))
	}
	assert.True(t, publishes(c.Update(all, map[string]gpu.Problem{"0000:01:00.0": {Message: "flickers"}}, nil)))
	for range HealthyChecks - 1 {
		assert.False(t, publishes(c.Update(all, nil, nil)))
		assert.Equal(t, "flickers", c.List()[0].Problem.Message)
	}
	changes, publish := c.Update(all, nil, nil)
	assert.True(t, publish)
	assert.Equal(t, []Change{{PCIAddress: "0000:01:00.0"}}, changes)
	assert.Empty(t, c.List()[0].Problem.Message)
	assert.True(t, c.List()[0].Published)
	assert.False(t, c.List()[1].Published)

	// What never answered has no name to be listed by.
	assert.False(t, publishes(c.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, map[string]gpu.Problem{"": {Message: "dead"}}, nil)))
	c.MarkPublished("0000:ff:00.0")
	assert.Len(t, c.List(), 2)

	// A report of the driver counts at once.
	xid := gpu.Problem{Cause: "xid-79", Message: "XID 79"}
	assert.Equal(t, []Change{{PCIAddress: "0000:02:00.0", Problem: "XID 79"}}, c.Trouble("0000:02:00.0", xid))
	assert.Empty(t, c.Trouble("0000:02:00.0", xid))
	assert.Empty(t, c.Trouble("0000:ff:00.0", xid), "it is not known")
	g := c.List()[1]
	assert.True(t, g.Unhealthy())
	assert.EqualValues(t, "xid-79", g.Cause())
	c.Remove([]string{"0000:01:00.0"})
	assert.Equal(t, []GPU{g}, c.List())
}

// Whatever is published and changes is noticed.
func TestGPUsUpdateNoticesChange(t *testing.T) {
	for name, change := range map[string]func(*gpu.GPU){
		"UUID":             func(g *gpu.GPU) { g.UUID = "x" },
		"product":          func(g *gpu.GPU) { g.ProductName = "x" },
		"architecture":     func(g *gpu.GPU) { g.Architecture = "x" },
		"driver":           func(g *gpu.GPU) { g.DriverVersion = "x" },
		"CUDA":             func(g *gpu.GPU) { g.CUDADriverVersion = "x" },
		"capability":       func(g *gpu.GPU) { g.CUDAComputeCapability = "x" },
		"partitionable":    func(g *gpu.GPU) { g.Partitionable = !g.Partitionable },
		"memory mode":      func(g *gpu.GPU) { g.MemoryMode = "x" },
		"PCIe root":        func(g *gpu.GPU) { g.PCIeRoot = "x" },
		"NUMA node":        func(g *gpu.GPU) { g.NUMANode = new(int64(1)) },
		"no NUMA node":     func(g *gpu.GPU) { g.NUMANode = nil },
		"counters":         func(g *gpu.GPU) { g.Counters["memory"] = 1 },
		"fewer placements": func(g *gpu.GPU) { g.Placements = g.Placements[:1] },
		"order":            func(g *gpu.GPU) { g.Placements[0], g.Placements[1] = g.Placements[1], g.Placements[0] },
		"memory":           func(g *gpu.GPU) { g.Placements[0].Memory = 1 },
		"SMs":              func(g *gpu.GPU) { g.Placements[0].ComputeUnits = 1 },
		"engines":          func(g *gpu.GPU) { g.Placements[0].Engines["decoders"] = 0 },
		"shares":           func(g *gpu.GPU) { g.Placements[1].Share = &gpu.Share{Of: gpu.TypeGPU} },
		"consumption":      func(g *gpu.GPU) { g.Placements[0].Consumes["memory"] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			var c GPUs
			c.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0")}, nil, nil)
			now := nodetest.GPUAt("0000:01:00.0")
			change(&now)
			assert.True(t, publishes(c.Update([]gpu.GPU{now}, nil, nil)))
			assert.False(t, publishes(c.Update([]gpu.GPU{now}, nil, nil)))
		})
	}
}

func TestGPUsAdopt(t *testing.T) {
	var c GPUs
	c.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0"), nodetest.GPUAt("0000:03:00.0")}, nil, nil)
	slice := func(pool string, devices ...string) resourceapi.ResourceSlice {
		s := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Pool: resourceapi.ResourcePool{Name: pool}}}
		for _, d := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: d})
		}
		return s
	}
	c.Adopt("node-a", []resourceapi.ResourceSlice{
		slice("node-a"), slice("node-a", "gpu-0000-01-00-0"),
		slice("node-a", "gpu-0000-02-00-0"), slice("node-b", "gpu-0000-03-00-0"),
	})
	var published []bool
	for _, g := range c.List() {
		published = append(published, g.Published)
	}
	assert.Equal(t, []bool{true, true, false}, published, "other nodes' do not count")
}

// A GPU that has another memory mode after a reload of its driver still
// publishes what claims hold, and nothing new comes to it until they let go.
func TestMemoryModeChangedBehindOurBack(t *testing.T) {
	const address = "0000:05:00.0"
	var c GPUs
	before, now := nodetest.AMDGPUAt(address, "NPS1"), nodetest.AMDGPUAt(address, "NPS4")
	c.Update([]gpu.GPU{before}, nil, nil)
	held := map[string][]gpu.Placement{address: {before.Placements[1], before.Placements[2]}}

	changes, publish := c.Update([]gpu.GPU{now}, nil, held)
	assert.True(t, publish)
	const reason = "the GPU's memory mode is now NPS4, in which it does not have it"
	assert.Equal(t, []Change{{PCIAddress: address, Device: "gpu-0000-05-00-0-dpx-0", Problem: reason}}, changes, "cpx-1 is there in both")
	known := c.List()[0]
	assert.True(t, known.Unhealthy())
	offered := known.Offer()
	assert.Equal(t, []string{"gpu-0000-05-00-0-cpx-0", "gpu-0000-05-00-0-cpx-1", "gpu-0000-05-00-0-dpx-0"}, placementNames(offered.Placements))
	assert.Equal(t, gpu.Counters{"memory": 40}, offered.Placements[2].Consumes, "the counter of the old mode is gone")
	assert.Equal(t, []string{"gpu-0000-05-00-0-cpx-0", "gpu-0000-05-00-0-cpx-1"}, placementNames(c.Now()[0].Placements), "it cannot be prepared")
	_, publish = c.Update([]gpu.GPU{now}, nil, held)
	assert.False(t, publish, "told once")

	// So it is after a restart of the plugin, which has seen nothing of before.
	var again GPUs
	again.Update([]gpu.GPU{now}, nil, held)
	assert.True(t, again.List()[0].Unhealthy())

	changes, publish = c.Update([]gpu.GPU{now}, nil, nil)
	assert.True(t, publish)
	assert.Equal(t, []Change{{PCIAddress: address, Device: "gpu-0000-05-00-0-dpx-0"}}, changes)
	assert.False(t, c.List()[0].Unhealthy())
	last := c.List()[0]
	assert.Len(t, last.Offer().Placements, 2)
}

// A partition that somebody removed is gone for another reason once the GPU does not offer it.
func TestCauseOfAMissingDeviceChanges(t *testing.T) {
	const address, device = "0000:05:00.0", "gpu-0000-05-00-0-dpx-0"
	var c GPUs
	before, now := nodetest.AMDGPUAt(address, "NPS1"), nodetest.AMDGPUAt(address, "NPS4")
	c.Update([]gpu.GPU{before}, nil, nil)
	held := nodetest.HeldDevice(before.Placements[2], "", false)
	assert.Equal(t, []Change{{PCIAddress: address, Device: device, Problem: "somebody other than Tranche has changed how the GPU is partitioned"}},
		c.SetRemoved(address, []ledger.Device{held}))
	changes, _ := c.Update([]gpu.GPU{now}, nil, map[string][]gpu.Placement{address: {held.Placement}})
	assert.Equal(t, []Change{{PCIAddress: address, Device: device, Problem: "the GPU's memory mode is now NPS4, in which it does not have it"}}, changes)
	assert.Empty(t, c.SetRemoved(address, []ledger.Device{held}), "it is known")
	g := c.List()[0]
	assert.Equal(t, gpu.CauseHeldDevice, g.Cause())
}

func placementNames(all []gpu.Placement) []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name()
	}
	return names
}
