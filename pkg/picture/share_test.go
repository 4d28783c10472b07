package picture

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish"
)

var takingTurns = gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 10, MaxClients: 48}

// sharedCard publishes a card with the shares of the placements that are named.
func sharedCard(node string, card gpu.GPU, s gpu.Sharing, of ...string) []resourceapi.ResourceSlice {
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

func sharedL4(node string, slot int) []resourceapi.ResourceSlice {
	card := gpu.GPU{PCIAddress: address(slot), Vendor: gpu.NVIDIA, UUID: "GPU-l4", ProductName: "NVIDIA L4", DriverVersion: "580.159.04", Memory: 24 << 30,
		Counters: gpu.Counters{"memory": 24 << 30}}
	card.Placements = []gpu.Placement{{GPU: card.PCIAddress, Type: gpu.TypeGPU, Memory: 23 << 30, Consumes: card.Counters}}
	limited := takingTurns
	limited.Limits = true
	return sharedCard(node, card, limited, card.Name())
}

func sharedMI300X(node string, slot int) []resourceapi.ResourceSlice {
	f := xcp.Facts{PCIAddress: address(slot), MemoryMode: xcp.NPS1, XCCs: 8, ComputeUnits: 304, Memory: 196592 << 20,
		Modes: []xcp.Mode{xcp.SPX, xcp.DPX, xcp.QPX, xcp.CPX}}
	card := gpu.GPU{PCIAddress: f.PCIAddress, Vendor: gpu.AMD, UUID: "GPU-amd", ProductName: mi300xName, DriverVersion: "6.16.13",
		MemoryMode: "NPS1", Memory: f.Memory}
	card.Placements, card.Counters = xcp.Devices(f)
	return sharedCard(node, card, takingTurns, card.Name(), xcpOf(slot, "dpx", 0), xcpOf(slot, "dpx", 1))
}

// sharer is a claim for a share, with amounts in pairs of capacity and quantity.
func sharer(namespace, pod string, slot int, device string, amounts ...string) resourceapi.ResourceClaim {
	c := claim(namespace, pod, "node-a", slot, device)
	result(&c).ConsumedCapacity = map[resourceapi.QualifiedName]quantity{}
	for i := 0; i < len(amounts); i += 2 {
		result(&c).ConsumedCapacity[resourceapi.QualifiedName(amounts[i])] = mustParse(amounts[i+1])
	}
	return c
}

// shared is cards that are shared: by memory, by fraction, and a half of an AMD
// card; and one that nobody has.
func shared() Input {
	in := Input{}
	for slot, make := range []func(string, int) []resourceapi.ResourceSlice{sharedL4, sharedL4, sharedMI300X, sharedL4} {
		in.Slices = append(in.Slices, make("node-a", slot)...)
	}
	memory, fraction := cardOf(0)+"-memory-share", cardOf(1)+"-fraction-share"
	in.Claims = []resourceapi.ResourceClaim{
		sharer("default", "notebook", 0, memory, "memory", "2355Mi", "compute", "0", "clients", "1"),
		sharer("team-b", "serve", 0, memory, "memory", "8Gi", "compute", "50", "clients", "2"),
		sharer("default", "half", 1, fraction, "fraction", "500m", "compute", "0", "clients", "1"),
		sharer("default", "big", 2, xcpOf(2, "dpx", 1)+"-memory-share", "memory", "40Gi", "clients", "1"),
	}
	return in
}

// TestLeft: what nobody has of a share is what it has without what all have,
// whether or not their names are shown.
func TestLeft(t *testing.T) {
	in := shared()
	admin := sharer("monitoring", "look", 0, cardOf(0)+"-memory-share", "memory", "1Gi", "clients", "9")
	result(&admin).AdminAccess = new(true)
	in.Claims = append(in.Claims, admin)
	want := map[string]string{"memory": "13005Mi", "compute": "50", "clients": "45"}
	assert.Equal(t, want, Build(in).Nodes[0].Cards[0].Held[0].Left)
	in.Namespace = "default"
	assert.Equal(t, want, Build(in).Nodes[0].Cards[0].Held[0].Left, "also of those that are not shown")

	in.Partial = true
	assert.Nil(t, Build(in).Nodes[0].Cards[0].Held[0].Left, "when not all claims could be read, nobody knows")
}

// TestSharesInJSON: programs find amounts as quantities.
func TestSharesInJSON(t *testing.T) {
	var b strings.Builder
	require.NoError(t, WriteJSON(&b, Build(shared())))
	var m Model
	require.NoError(t, json.Unmarshal([]byte(b.String()), &m))
	h := m.Nodes[0].Cards[1].Held[0]
	assert.Equal(t, "fraction share", h.Label)
	assert.Equal(t, "share", h.Type)
	assert.Equal(t, map[string]string{"fraction": "500m", "compute": "0", "clients": "1"}, h.Holders[0].Consumed)
	assert.Equal(t, map[string]string{"fraction": "500m", "compute": "100", "clients": "47"}, h.Left)
}

// TestModeOfShares: a share of a partition keeps its card in the partition's mode,
// and is no piece beside it.
func TestModeOfShares(t *testing.T) {
	assert.Equal(t, &Mode{Name: "DPX", Held: 1, Of: 2}, Build(shared()).Nodes[0].Cards[2].Mode)
	in := shared()
	in.Claims = []resourceapi.ResourceClaim{sharer("default", "x", 2, cardOf(2)+"-memory-share", "memory", "1Gi")}
	assert.Equal(t, &Mode{Name: "SPX", Held: 1, Of: 1}, Build(in).Nodes[0].Cards[2].Mode)
}

func TestAmounts(t *testing.T) {
	for name, test := range map[string]struct {
		of   map[string]string
		all  bool
		want string
	}{
		"memory":             {map[string]string{"memory": "20Gi", "clients": "1", "compute": "0"}, false, "20Gi of memory"},
		"everything":         {map[string]string{"clients": "3", "compute": "25", "memory": "20Gi"}, false, "20Gi of memory, 25% of compute, 3 clients"},
		"fraction":           {map[string]string{"fraction": "333m"}, false, "fraction 0.333"},
		"all of it":          {map[string]string{"fraction": "1"}, false, "fraction 1"},
		"left":               {map[string]string{"memory": "0", "clients": "1", "compute": "0"}, true, "0 of memory, 0% of compute, 1 client"},
		"a capacity to come": {map[string]string{"bandwidth": "5", "clients": "2"}, false, "2 clients, 5 of bandwidth"},
		"no number":          {map[string]string{"fraction": "x"}, false, "fraction x"},
		"nothing":            {nil, true, ""},
	} {
		assert.Equal(t, test.want, strings.Join(Amounts(test.of, test.all), ", "), name)
	}
}
