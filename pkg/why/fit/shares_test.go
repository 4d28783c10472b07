package fit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/pending"
)

// TestShares: each way in which a pod can wait for a share, and the words for it.
func TestShares(t *testing.T) {
	partitions := func(c *profile.Desired) { c.Partitions = []string{"3g.40gb"} }
	calls := 0
	second := func() bool { calls++; return calls%2 == 0 }
	oneClient := func(c *profile.Desired) { c.FailRequestsGreaterThanOne = true }
	for name, test := range map[string]struct {
		world   *pending.World
		ask     resourceapi.DeviceRequest
		verdict fit.Verdict
		text    string
		holders []string
	}{
		"room": {
			newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(true)).HoldShare("node-a", "a", pending.Amounting(pending.MemoryShare, "memory", "70Gi")),
			pending.Amounting(pending.MemoryShare, "memory", "60Gi"), fit.Fits,
			"1 of 2 devices free: 1 with too little left (at most 8668Mi of memory).", []string{"team-b: a"},
		},
		"more than any GPU has": {
			newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(true)), pending.Amounting(pending.MemoryShare, "memory", "200Gi"), fit.Lacking,
			"it asks for 200Gi of memory, and a device has 80348Mi of memory for all its shares.", nil,
		},
		"more clients than any GPU has": {
			newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(true)), pending.Amounting(pending.FractionShare, "clients", "49"), fit.Lacking,
			"it asks for 49 clients, and a device has 48 clients for all its shares.", nil,
		},
		"one client is allowed": {
			newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(true, oneClient)), pending.Amounting(pending.MemoryShare, "clients", "2"), fit.Lacking,
			"it asks for 2 clients, and the node's settings allow 1 client for a share.", nil,
		},
		"compute without limits": {
			newWorld(t).Node("node-a", "MI300X", 1, pending.Sharing(true)), pending.Amounting(pending.MemoryShare, "computePercent", "50"), fit.Lacking,
			"it asks for compute, and shares have that only where MPS limits them: on NVIDIA's GPUs, on nodes where MPS works.", nil,
		},
		"a capacity that is none": {
			newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(true)), pending.Amounting(pending.MemoryShare, "latency", "1", "bandwidth", "5", "order", "1"), fit.Lacking,
			"it asks for bandwidth and latency and order, which such a share does not have.", nil,
		},
		"one GPU of two can serve it": {
			newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(true, func(c *profile.Desired) { c.FailRequestsGreaterThanOne = second() })),
			pending.Amounting(pending.MemoryShare, "clients", "2"), fit.Fits,
			"1 of 2 devices free: 1 that can never satisfy it (it asks for 2 clients, and the node's settings allow 1 client for a share).", nil,
		},
		"one is tainted, the other too small": {
			newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(true), func(g *publish.GPU) {
				if second() {
					g.Taints = []resourceapi.DeviceTaint{{Key: "a", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
				}
			}), pending.Amounting(pending.MemoryShare, "memory", "200Gi"), fit.Lacking,
			"it asks for 200Gi of memory, and a device has 80348Mi of memory for all its shares.", nil,
		},
		"amounts of what cannot be shared": {
			newWorld(t).Node("node-a", "L4-24GB", 1), pending.Amounting("gpu-mig-1g-35gb.tranche.dev", "memory", "5Gi"), fit.Lacking,
			"no such share here: the node's settings share no such GPU, or the API server drops what shares need (feature gate DRAConsumableCapacity); see the node's events; its GPUs have whole NVIDIA GPU.", nil,
		},
		"too little left": {
			newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(true)).HoldShare("node-a", "a", pending.Amounting(pending.MemoryShare, "memory", "70Gi")),
			pending.Amounting(pending.MemoryShare, "memory", "20Gi"), fit.Full,
			"0 of 1 devices free: 1 with too little left (at most 8668Mi of memory).", []string{"team-b: a"},
		},
		"clients are used up": {
			newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(true)).HoldShare("node-a", "a", pending.Amounting(pending.MemoryShare, "memory", "1Gi", "clients", "47")),
			pending.Amounting(pending.MemoryShare, "memory", "1Gi", "clients", "2"), fit.Full,
			"0 of 1 devices free: 1 with too little left (at most 1 client).", []string{"team-b: a"},
		},
		"whole, in pieces, and by the other basis": {
			newWorld(t).Node("node-a", "H100-80GB", 3, pending.Sharing(true)).Hold("node-a", "team-a", "whole", pending.WholeGPU, 1).
				Hold("node-a", "team-c", "cut", pending.Small, 1).HoldShare("node-a", "b", pending.Amounting(pending.FractionShare)),
			pending.Amounting(pending.MemoryShare), fit.Full,
			"0 of 3 devices free: 3 on a GPU that is held whole, in pieces or by shares of another kind.",
			[]string{"team-a: whole-0", "team-b: b", "team-c: cut-0"},
		},
		"some of everything": {
			newWorld(t).Node("node-a", "H100-80GB", 3, pending.Sharing(true)).Hold("node-a", "team-a", "whole", pending.WholeGPU, 1).
				HoldShare("node-a", "b", pending.Amounting(pending.MemoryShare, "memory", "60Gi")).HoldShare("node-a", "c", pending.Amounting(pending.MemoryShare, "memory", "50Gi")),
			pending.Amounting(pending.MemoryShare, "memory", "40Gi"), fit.Full,
			"0 of 3 devices free: 1 on a GPU that is held whole, in pieces or by shares of another kind, 2 with too little left (at most 29148Mi of memory).",
			[]string{"team-a: whole-0", "team-b: b, c"},
		},
		"no shares here": {
			newWorld(t).Node("node-a", "L4-24GB", 1), pending.Amounting(pending.MemoryShare), fit.Lacking,
			"no such share here: the node's settings share no such GPU, or the API server drops what shares need (feature gate DRAConsumableCapacity); see the node's events; its GPUs have whole NVIDIA GPU.", nil,
		},
		"no shares of partitions here": {
			newWorld(t).Node("node-a", "L4-24GB", 1, pending.Sharing(true)), pending.Amounting(pending.PartShare), fit.Lacking,
			"no such share here; its GPUs have whole NVIDIA GPU, fraction share, memory share.", nil,
		},
		"partitions are held": {
			newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(true, partitions)).Hold("node-a", "team-c", "cut", pending.Three, 2),
			pending.Amounting(pending.PartShare), fit.Full,
			"0 of 2 devices free: 2 on a GPU that is held whole, in pieces or by shares of another kind.", []string{"team-c: cut-0, cut-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.world.Pod(test.ask)
			_, nodes := nodesFor(test.world)
			require.Len(t, nodes, 1)
			require.Len(t, nodes[0].Requests, 1)
			got := nodes[0].Requests[0]
			assert.Equal(t, test.verdict, got.Verdict)
			assert.Equal(t, test.text, got.Text)
			assert.Equal(t, test.holders, fit.NamesOf(got.Holders))
			if strings.HasPrefix(test.text, "it asks for ") {
				assert.Equal(t, test.text, fit.Summary(nodes)+".")
			}
			grant, err := test.world.Scheduler.Allocate(t.Context(), "node-a", pending.ClaimOf("x", "x", test.ask))
			require.NoError(t, err)
			assert.Equal(t, grant != nil, got.Verdict == fit.Fits, "the scheduler would not agree")
		})
	}
}

// TestManySharesAtOnce: a request gets one share of each GPU at most.
func TestManySharesAtOnce(t *testing.T) {
	for count, want := range map[int64]fit.Verdict{2: fit.Fits, 3: fit.Lacking} {
		w := newWorld(t).Node("node-a", "H100-80GB", 2, pending.Sharing(true))
		r := pending.Request("gpu", pending.MemoryShare)
		r.Exactly.Count = count
		w.Pod(r)
		_, nodes := nodesFor(w)
		assert.Equal(t, want, nodes[0].Requests[0].Verdict, count)
	}
}
