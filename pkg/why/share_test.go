package why_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

const (
	memoryShare   = "gpu-memory-share.tranche.dev"
	fractionShare = "gpu-fraction-share.tranche.dev"
	partShare     = "gpu-partition-memory-share.tranche.dev"
)

// sharing publishes shares of the GPUs of a node, as the settings want them.
func sharing(limits bool, change ...func(*profile.Desired)) func(*publish.GPU) {
	return func(g *publish.GPU) {
		wanted := profile.Default()
		for _, f := range change {
			f(&wanted)
		}
		devices, err := wanted.ShareDevices(&g.GPU, limits)
		if err != nil {
			panic(err)
		}
		g.Placements = append(g.Placements, devices...)
	}
}

// amounting is a request for a share with amounts, in pairs of name and quantity.
func amounting(class string, amounts ...string) resourceapi.DeviceRequest {
	r := request("gpu", class)
	r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	for i := 0; i < len(amounts); i += 2 {
		r.Exactly.Capacity.Requests[resourceapi.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return r
}

// holdShare lets a pod take a share on a node.
func (w *world) holdShare(node, pod string, r resourceapi.DeviceRequest) *world {
	w.t.Helper()
	claim := claimOf("team-b", pod+"-gpu", r)
	grant, err := w.scheduler.Allocate(w.t.Context(), node, claim)
	require.NoError(w.t, err)
	require.NotNil(w.t, grant, pod)
	w.give(claim, grant.Result, pod)
	return w
}

// TestShares: each way in which a pod can wait for a share, and the words for it.
func TestShares(t *testing.T) {
	partitions := func(c *profile.Desired) { c.Partitions = []string{"3g.40gb"} }
	oneClient := func(c *profile.Desired) { c.OneClient = true }
	for name, test := range map[string]struct {
		world   *world
		ask     resourceapi.DeviceRequest
		verdict fit.Verdict
		text    string
		holders []string
	}{
		"room": {
			newWorld(t).node("node-a", "H100-80GB", 2, sharing(true)).holdShare("node-a", "a", amounting(memoryShare, "memory", "70Gi")),
			amounting(memoryShare, "memory", "60Gi"), fit.Fits,
			"1 of 2 devices free: 1 with too little left (at most 8668Mi of memory).", []string{"team-b: a"},
		},
		"more than any GPU has": {
			newWorld(t).node("node-a", "H100-80GB", 2, sharing(true)), amounting(memoryShare, "memory", "200Gi"), fit.Lacking,
			"it asks for 200Gi of memory, and a device has 80348Mi of memory for all its shares.", nil,
		},
		"more clients than any GPU has": {
			newWorld(t).node("node-a", "H100-80GB", 2, sharing(true)), amounting(fractionShare, "clients", "49"), fit.Lacking,
			"it asks for 49 clients, and a device has 48 clients for all its shares.", nil,
		},
		"one client is allowed": {
			newWorld(t).node("node-a", "H100-80GB", 1, sharing(true, oneClient)), amounting(memoryShare, "clients", "2"), fit.Lacking,
			"it asks for 2 clients, and the node's settings allow 1 client for a share.", nil,
		},
		"compute without limits": {
			newWorld(t).node("node-a", "MI300X", 1, sharing(true)), amounting(memoryShare, "computePercent", "50"), fit.Lacking,
			"it asks for compute, and shares have that only where MPS limits them: on NVIDIA's GPUs, on nodes where MPS works.", nil,
		},
		"a capacity that is none": {
			newWorld(t).node("node-a", "H100-80GB", 1, sharing(true)), amounting(memoryShare, "bandwidth", "5"), fit.Lacking,
			"it asks for bandwidth, which such a share does not have.", nil,
		},
		"too little left": {
			newWorld(t).node("node-a", "H100-80GB", 1, sharing(true)).holdShare("node-a", "a", amounting(memoryShare, "memory", "70Gi")),
			amounting(memoryShare, "memory", "20Gi"), fit.Full,
			"0 of 1 devices free: 1 with too little left (at most 8668Mi of memory).", []string{"team-b: a"},
		},
		"clients are used up": {
			newWorld(t).node("node-a", "H100-80GB", 1, sharing(true)).holdShare("node-a", "a", amounting(memoryShare, "memory", "1Gi", "clients", "47")),
			amounting(memoryShare, "memory", "1Gi", "clients", "2"), fit.Full,
			"0 of 1 devices free: 1 with too little left (at most 1 client).", []string{"team-b: a"},
		},
		"whole, in pieces, and by the other basis": {
			newWorld(t).node("node-a", "H100-80GB", 3, sharing(true)).hold("node-a", "team-a", "whole", wholeGPU, 1).
				hold("node-a", "team-c", "cut", small, 1).holdShare("node-a", "b", amounting(fractionShare)),
			amounting(memoryShare), fit.Full,
			"0 of 3 devices free: 3 on a GPU that is held whole, in pieces or by shares of another kind.",
			[]string{"team-a: whole-0", "team-b: b", "team-c: cut-0"},
		},
		"some of everything": {
			newWorld(t).node("node-a", "H100-80GB", 3, sharing(true)).hold("node-a", "team-a", "whole", wholeGPU, 1).
				holdShare("node-a", "b", amounting(memoryShare, "memory", "60Gi")).holdShare("node-a", "c", amounting(memoryShare, "memory", "50Gi")),
			amounting(memoryShare, "memory", "40Gi"), fit.Full,
			"0 of 3 devices free: 1 on a GPU that is held whole, in pieces or by shares of another kind, 2 with too little left (at most 29148Mi of memory).",
			[]string{"team-a: whole-0", "team-b: b, c"},
		},
		"no shares here": {
			newWorld(t).node("node-a", "L4-24GB", 1), amounting(memoryShare), fit.Lacking,
			"no such share here: the node's settings share no such GPU, or the API server drops what shares need (feature gate DRAConsumableCapacity); see the node's events; its GPUs have whole GPU.", nil,
		},
		"no shares of partitions here": {
			newWorld(t).node("node-a", "L4-24GB", 1, sharing(true)), amounting(partShare), fit.Lacking,
			"no such share here: the node's settings share no such GPU, or the API server drops what shares need (feature gate DRAConsumableCapacity); see the node's events; its GPUs have whole GPU, fraction share, memory share.", nil,
		},
		"partitions are held": {
			newWorld(t).node("node-a", "H100-80GB", 1, sharing(true, partitions)).hold("node-a", "team-c", "cut", three, 2),
			amounting(partShare), fit.Full,
			"0 of 2 devices free: 2 on a GPU that is held whole, in pieces or by shares of another kind.", []string{"team-c: cut-0, cut-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.world.pod(test.ask)
			e := test.world.explain()
			require.Len(t, e.Nodes, 1)
			require.Len(t, e.Nodes[0].Requests, 1)
			got := e.Nodes[0].Requests[0]
			assert.Equal(t, test.verdict, got.Verdict)
			assert.Equal(t, test.text, got.Text)
			assert.Equal(t, test.holders, fit.NamesOf(got.Holders))
			grant, err := test.world.scheduler.Allocate(t.Context(), "node-a", claimOf("x", "x", test.ask))
			require.NoError(t, err)
			assert.Equal(t, grant != nil, got.Verdict == fit.Fits, "the scheduler would not agree")
		})
	}
}

// TestManySharesAtOnce: a request gets one share of each GPU at most.
func TestManySharesAtOnce(t *testing.T) {
	for count, want := range map[int64]fit.Verdict{2: fit.Fits, 3: fit.Lacking} {
		w := newWorld(t).node("node-a", "H100-80GB", 2, sharing(true))
		r := request("gpu", memoryShare)
		r.Exactly.Count = count
		w.pod(r)
		assert.Equal(t, want, w.explain().Nodes[0].Requests[0].Verdict, count)
	}
}

// TestDrawnShares: the whole answer, for people.
func TestDrawnShares(t *testing.T) {
	w := newWorld(t).node("node-a", "H100-80GB", 1, sharing(true)).node("node-b", "MI300X", 1, sharing(false))
	w.holdShare("node-a", "serve", amounting(memoryShare, "memory", "70Gi")).hold("node-b", "team-c", "all", "gpu-amd.tranche.dev", 1)
	w.pod(amounting(memoryShare, "memory", "20Gi"))
	requireText(t, "share-no-room", w.explain())
}
