package scenes

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
)

var takingTurns = gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 10, MaxClients: 48}

// SharedGPU publishes a GPU with the shares of the placements that are named.
func SharedGPU(node string, g gpu.GPU, s gpu.Sharing, of ...string) []resourceapi.ResourceSlice {
	for _, name := range of {
		p, ok := g.Placement(name)
		if !ok {
			panic(name)
		}
		for _, by := range gpu.Bases() {
			g.Placements = append(g.Placements, gpu.ShareOf(p, by, s))
		}
	}
	published, errs := publish.Slices([]publish.GPU{{GPU: g}})
	if len(errs) > 0 {
		panic(errs[0])
	}
	return publish.Objects(names.DriverName, node, published)
}

// SharedL4 is a scene.
func SharedL4(node string, slot int) []resourceapi.ResourceSlice {
	g := gpu.GPU{PCIAddress: address(slot), Vendor: gpu.NVIDIA, UUID: "GPU-l4", ProductName: "NVIDIA L4", DriverVersion: "580.159.04", Memory: 24 << 30,
		Counters: gpu.Counters{"memory": 24 << 30}}
	g.Placements = []gpu.Placement{{GPU: g.PCIAddress, Type: gpu.TypeGPU, Memory: 23 << 30, Consumes: g.Counters}}
	limited := takingTurns
	limited.Limits = true
	return SharedGPU(node, g, limited, g.Name())
}

// SharedMI300X is a scene.
func SharedMI300X(node string, slot int) []resourceapi.ResourceSlice {
	f := xcp.Facts{PCIAddress: address(slot), MemoryMode: xcp.NPS1, XCCs: 8, ComputeUnits: 304, Memory: 196592 << 20,
		Modes: []xcp.Mode{xcp.SPX, xcp.DPX, xcp.QPX, xcp.CPX}}
	g := gpu.GPU{PCIAddress: f.PCIAddress, Vendor: gpu.AMD, UUID: "GPU-amd", ProductName: MI300XName, DriverVersion: "6.16.13",
		MemoryMode: "NPS1", Memory: f.Memory}
	g.Placements, g.Counters = xcp.Devices(f)
	return SharedGPU(node, g, takingTurns, g.Name(), XCP(slot, "dpx", 0), XCP(slot, "dpx", 1))
}

// Sharer is a claim for a share, with amounts in pairs of capacity and quantity.
func Sharer(namespace, pod string, slot int, device string, amounts ...string) resourceapi.ResourceClaim {
	c := Claim(namespace, pod, "node-a", slot, device)
	Result(&c).ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
	for i := 0; i < len(amounts); i += 2 {
		Result(&c).ConsumedCapacity[resourceapi.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return c
}

// Shared is GPUs that are shared: by memory, by fraction, and a half of an AMD
// GPU; and one that nobody has.
func Shared() Scene {
	in := Scene{}
	for slot, make := range []func(string, int) []resourceapi.ResourceSlice{SharedL4, SharedL4, SharedMI300X, SharedL4} {
		in.Slices = append(in.Slices, make("node-a", slot)...)
	}
	memory, fraction := GPUOf(0)+"-memory-share", GPUOf(1)+"-fraction-share"
	in.Claims = []resourceapi.ResourceClaim{
		Sharer("default", "notebook", 0, memory, "memory", "2355Mi", "computePercent", "0", "clients", "1"),
		Sharer("team-b", "serve", 0, memory, "memory", "8Gi", "computePercent", "50", "clients", "2"),
		Sharer("default", "half", 1, fraction, "fraction", "500m", "computePercent", "0", "clients", "1"),
		Sharer("default", "big", 2, XCP(2, "dpx", 1)+"-memory-share", "memory", "40Gi", "clients", "1"),
	}
	return in
}
