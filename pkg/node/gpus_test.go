package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func gpuAt(address string) gpu.GPU {
	return gpu.GPU{
		PCIAddress: address, Vendor: gpu.NVIDIA, UUID: "GPU-" + address, ProductName: "H100", Architecture: "hopper", DriverVersion: "580", PCIeRoot: "pci0000:00",
		NUMANode: new(int64(0)), Counters: gpu.Counters{"memory": 80},
		Placements: []gpu.Placement{
			{GPU: address, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 2, Size: 1, Memory: 10, ComputeUnits: 16, Engines: map[string]int64{"decoders": 1}, Consumes: gpu.Counters{"memory": 10}},
			{GPU: address, Type: gpu.TypeGPU, Memory: 80, Consumes: gpu.Counters{"memory": 80}},
		},
	}
}

// amdGPUAt is a GPU with two compute modes, in one memory mode.
func amdGPUAt(address, memoryMode string) gpu.GPU {
	g := gpu.GPU{
		PCIAddress: address, Vendor: gpu.AMD, UUID: "e3a9", ProductName: "MI300X", DriverVersion: "6.16.13", MemoryMode: memoryMode,
		Counters: gpu.Counters{"memory": 80, "cpx-0": 1, "cpx-1": 1},
	}
	for i, own := range []string{"cpx-0", "cpx-1"} {
		g.Placements = append(g.Placements, gpu.Placement{GPU: address, Type: gpu.TypeXCP, Profile: "cpx", Start: i, Memory: 40, Consumes: gpu.Counters{"memory": 40, own: 1}})
	}
	if memoryMode == "NPS1" {
		g.Counters["dpx-0"] = 2
		g.Placements[0].Consumes["dpx-0"] = 1
		g.Placements = append(g.Placements,
			gpu.Placement{GPU: address, Type: gpu.TypeXCP, Profile: "dpx", Memory: 40, Consumes: gpu.Counters{"memory": 40, "dpx-0": 2}},
			gpu.Placement{GPU: address, Type: gpu.TypeGPU, Profile: "spx", Memory: 80, Consumes: gpu.Counters{"memory": 80}})
	}
	return g
}

func publishes(_ []change, publish bool) bool { return publish }

func TestGPUsUpdate(t *testing.T) {
	var c gpus
	assert.True(t, publishes(c.update([]gpu.GPU{gpuAt("0000:02:00.0"), gpuAt("0000:01:00.0")}, nil, nil)), "new GPUs")
	assert.False(t, publishes(c.update([]gpu.GPU{gpuAt("0000:01:00.0"), gpuAt("0000:02:00.0")}, nil, nil)), "the same in another order")
	assert.Equal(t, []gpu.GPU{gpuAt("0000:01:00.0"), gpuAt("0000:02:00.0")}, c.gpus(), "in PCI order")
	c.markPublished("0000:01:00.0")

	// A GPU that is lost stays, with what is wrong with it.
	assert.True(t, publishes(c.update([]gpu.GPU{gpuAt("0000:02:00.0")}, map[string]string{"0000:01:00.0": "fell off the bus"}, nil)))
	assert.False(t, publishes(c.update([]gpu.GPU{gpuAt("0000:02:00.0")}, map[string]string{"0000:01:00.0": "fell off the bus"}, nil)))
	assert.Equal(t, "fell off the bus", c.list()[0].problem)
	assert.True(t, publishes(c.update([]gpu.GPU{gpuAt("0000:02:00.0")}, nil, nil)), "another problem")
	assert.Equal(t, "the driver no longer lists the GPU", c.list()[0].problem)

	// It comes back, which is believed when it has been seen several times, and
	// is known to have been published.
	all := []gpu.GPU{gpuAt("0000:01:00.0"), gpuAt("0000:02:00.0")}
	for range recoveredLooks - 1 {
		assert.False(t, publishes(c.update(all, nil, nil)))
	}
	assert.True(t, publishes(c.update(all, map[string]string{"0000:01:00.0": "flickers"}, nil)))
	for range recoveredLooks - 1 {
		assert.False(t, publishes(c.update(all, nil, nil)))
		assert.Equal(t, "flickers", c.list()[0].problem)
	}
	changes, publish := c.update(all, nil, nil)
	assert.True(t, publish)
	assert.Equal(t, []change{{pciAddress: "0000:01:00.0"}}, changes)
	assert.Empty(t, c.list()[0].problem)
	assert.True(t, c.list()[0].published)
	assert.False(t, c.list()[1].published)

	// What never answered has no name to be listed by.
	assert.False(t, publishes(c.update([]gpu.GPU{gpuAt("0000:01:00.0"), gpuAt("0000:02:00.0")}, map[string]string{"": "dead"}, nil)))
	c.markPublished("0000:ff:00.0")
	assert.Len(t, c.list(), 2)
}

// Whatever is published and changes is noticed.
func TestGPUsUpdateNoticesChange(t *testing.T) {
	for name, change := range map[string]func(*gpu.GPU){
		"UUID":             func(g *gpu.GPU) { g.UUID = "x" },
		"product":          func(g *gpu.GPU) { g.ProductName = "x" },
		"architecture":     func(g *gpu.GPU) { g.Architecture = "x" },
		"driver":           func(g *gpu.GPU) { g.DriverVersion = "x" },
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
			var c gpus
			c.update([]gpu.GPU{gpuAt("0000:01:00.0")}, nil, nil)
			now := gpuAt("0000:01:00.0")
			change(&now)
			assert.True(t, publishes(c.update([]gpu.GPU{now}, nil, nil)))
			assert.False(t, publishes(c.update([]gpu.GPU{now}, nil, nil)))
		})
	}
}

func TestGPUsAdopt(t *testing.T) {
	var c gpus
	c.update([]gpu.GPU{gpuAt("0000:01:00.0"), gpuAt("0000:02:00.0"), gpuAt("0000:03:00.0")}, nil, nil)
	slice := func(pool string, devices ...string) resourceapi.ResourceSlice {
		s := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Pool: resourceapi.ResourcePool{Name: pool}}}
		for _, d := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: d})
		}
		return s
	}
	c.adopt("node-a", []resourceapi.ResourceSlice{
		slice("node-a"), slice("node-a", "gpu-0000-01-00-0"),
		slice("node-a/gpu-0000-02-00-0", "gpu-0000-02-00-0"), slice("node-b", "gpu-0000-03-00-0"),
	})
	var published []bool
	for _, g := range c.list() {
		published = append(published, g.published)
	}
	assert.Equal(t, []bool{true, true, false}, published, "also of version 0.1; other nodes' do not count")
}

// A GPU that has another memory mode after a reload of its driver still
// publishes what claims hold, and nothing new comes to it until they let go.
func TestMemoryModeChangedBehindOurBack(t *testing.T) {
	const address = "0000:05:00.0"
	var c gpus
	before, now := amdGPUAt(address, "NPS1"), amdGPUAt(address, "NPS4")
	c.update([]gpu.GPU{before}, nil, nil)
	held := map[string][]gpu.Placement{address: {before.Placements[1], before.Placements[2]}}

	changes, publish := c.update([]gpu.GPU{now}, nil, held)
	assert.True(t, publish)
	const reason = "the GPU's memory mode is now NPS4, in which it does not have it"
	assert.Equal(t, []change{{pciAddress: address, device: "gpu-0000-05-00-0-dpx-0", problem: reason}}, changes, "cpx-1 is there in both")
	known := c.list()[0]
	assert.True(t, known.unhealthy())
	offered := known.offer()
	assert.Equal(t, []string{"gpu-0000-05-00-0-cpx-0", "gpu-0000-05-00-0-cpx-1", "gpu-0000-05-00-0-dpx-0"}, placementNames(offered.Placements))
	assert.Equal(t, gpu.Counters{"memory": 40}, offered.Placements[2].Consumes, "the counter of the old mode is gone")
	assert.Equal(t, []string{"gpu-0000-05-00-0-cpx-0", "gpu-0000-05-00-0-cpx-1"}, placementNames(c.gpus()[0].Placements), "it cannot be prepared")
	_, publish = c.update([]gpu.GPU{now}, nil, held)
	assert.False(t, publish, "told once")

	// So it is after a restart of the plugin, which has seen nothing of before.
	var again gpus
	again.update([]gpu.GPU{now}, nil, held)
	assert.True(t, again.list()[0].unhealthy())

	changes, publish = c.update([]gpu.GPU{now}, nil, nil)
	assert.True(t, publish)
	assert.Equal(t, []change{{pciAddress: address, device: "gpu-0000-05-00-0-dpx-0"}}, changes)
	assert.False(t, c.list()[0].unhealthy())
	last := c.list()[0]
	assert.Len(t, last.offer().Placements, 2)
}

func placementNames(all []gpu.Placement) []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name()
	}
	return names
}
