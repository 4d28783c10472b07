package scenes

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
)

var takingTurns = gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 10, MaxClients: 48}

// SharedCard publishes a card with the shares of the placements that are named.
func SharedCard(node string, card gpu.GPU, s gpu.Sharing, of ...string) []resourceapi.ResourceSlice {
	for _, name := range of {
		p, ok := card.Placement(name)
		if !ok {
			panic(name)
		}
		for _, by := range gpu.Bases() {
			card.Placements = append(card.Placements, gpu.ShareOf(p, by, s))
		}
	}
	resources, errs := publish.Resources(node, []publish.Card{{GPU: card}})
	if len(errs) > 0 {
		panic(errs[0])
	}
	return publish.Objects(gpu.DriverName, node, resources)
}

// SharedL4 is a scene.
func SharedL4(node string, slot int) []resourceapi.ResourceSlice {
	card := gpu.GPU{PCIAddress: address(slot), Vendor: gpu.NVIDIA, UUID: "GPU-l4", ProductName: "NVIDIA L4", DriverVersion: "580.159.04", Memory: 24 << 30,
		Counters: gpu.Counters{"memory": 24 << 30}}
	card.Placements = []gpu.Placement{{GPU: card.PCIAddress, Type: gpu.TypeGPU, Memory: 23 << 30, Consumes: card.Counters}}
	limited := takingTurns
	limited.Limits = true
	return SharedCard(node, card, limited, card.Name())
}

// SharedMI300X is a scene.
func SharedMI300X(node string, slot int) []resourceapi.ResourceSlice {
	f := xcp.Facts{PCIAddress: address(slot), MemoryMode: xcp.NPS1, XCCs: 8, ComputeUnits: 304, Memory: 196592 << 20,
		Modes: []xcp.Mode{xcp.SPX, xcp.DPX, xcp.QPX, xcp.CPX}}
	card := gpu.GPU{PCIAddress: f.PCIAddress, Vendor: gpu.AMD, UUID: "GPU-amd", ProductName: MI300XName, DriverVersion: "6.16.13",
		MemoryMode: "NPS1", Memory: f.Memory}
	card.Placements, card.Counters = xcp.Devices(f)
	return SharedCard(node, card, takingTurns, card.Name(), XCP(slot, "dpx", 0), XCP(slot, "dpx", 1))
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

// Shared is cards that are shared: by memory, by fraction, and a half of an AMD
// card; and one that nobody has.
func Shared() Scene {
	in := Scene{}
	for slot, make := range []func(string, int) []resourceapi.ResourceSlice{SharedL4, SharedL4, SharedMI300X, SharedL4} {
		in.Slices = append(in.Slices, make("node-a", slot)...)
	}
	memory, fraction := CardOf(0)+"-memory-share", CardOf(1)+"-fraction-share"
	in.Claims = []resourceapi.ResourceClaim{
		Sharer("default", "notebook", 0, memory, "memory", "2355Mi", "compute", "0", "clients", "1"),
		Sharer("team-b", "serve", 0, memory, "memory", "8Gi", "compute", "50", "clients", "2"),
		Sharer("default", "half", 1, fraction, "fraction", "500m", "compute", "0", "clients", "1"),
		Sharer("default", "big", 2, XCP(2, "dpx", 1)+"-memory-share", "memory", "40Gi", "clients", "1"),
	}
	return in
}
