package fit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/pending"
)

func selecting(expressions ...string) (out []resourceapi.DeviceSelector) {
	for _, e := range expressions {
		out = append(out, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].` + e}})
	}
	return out
}

// tied has a constraint on one of the pod's requests, with an attribute that no device has.
func tied(w *pending.World, request string) {
	w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{request}, MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("example.com/none"))}}
}

// Of nodes with the same reason, the one counts that is closest to serving the pod.
func TestSummary(t *testing.T) {
	var got strings.Builder
	for _, test := range []struct {
		name  string
		world func(w *pending.World)
	}{
		{"the largest node", func(w *pending.World) {
			w.Node("node-b", "H100-80GB", 1).Node("node-c", "H100-80GB", 1).Pod(pending.Request("gpu", pending.Small)).Spec.Containers[0].Resources.Requests = pending.Resources("cpu", "500")
			for i, cpu := range []string{"64", "192", "96"} {
				w.In.Nodes[i].Status.Allocatable = pending.Resources("cpu", cpu)
			}
		}},
		{"nodes with less GPU memory", func(w *pending.World) {
			requesting(w.Node("node-b", "H100-80GB", 1))
			w.In.Nodes[0].Status.Allocatable, w.In.Nodes[1].Status.Allocatable = pending.Requests("6Gi", "0"), pending.Requests("5Gi", "0")
		}},
		{"GPU memory alone", func(w *pending.World) {
			w.Pod(pending.Request("gpu", pending.Small)).Spec.Containers[0].Resources.Requests = pending.Resources("tranche.dev/gpu-memory", "1Gi")
		}},
		{"a class that does not exist", func(w *pending.World) { w.Pod(pending.Request("gpu", "gone")) }},
		{"the alternative that is closer", func(w *pending.World) {
			r := pending.AnyOf("gpu", "gone", "gpu-nvidia.tranche.dev", "gpu-nvidia.tranche.dev")
			r.FirstAvailable[1].Selectors = selecting(`vendor == "nvidia"`, `productName == "H100"`)
			r.FirstAvailable[2].Selectors = selecting(`productName == "L4"`)
			w.Node("node-b", "A100-80GB", 1).Pod(r)
		}},
		{"some pass the selector before", func(w *pending.World) {
			r := pending.Request("gpu", "gpu-partition.tranche.dev")
			r.Exactly.Selectors = selecting(`profile in ["1g.10gb", "7g.80gb"]`, `productName == "H100"`)
			w.Pod(r)
		}},
		{"more than fit at once", func(w *pending.World) { w.Pod(allocator.Request("gpu", "gpu-partition.tranche.dev", 8)) }},
		{"a constraint on one request", func(w *pending.World) {
			*w = *newWorld(w.T).Node("node-a", "H100-80GB", 2)
			w.Pod(pending.Request("a", pending.Small), pending.Request("b", pending.WholeGPU))
			tied(w, "b")
		}},
		{"a constraint on the only device", func(w *pending.World) {
			w.Pod(pending.Request("b", "gpu-nvidia.tranche.dev"))
			tied(w, "b")
		}},
	} {
		w := newWorld(t).Node("node-a", "H100-80GB", 1)
		test.world(w)
		_, nodes := nodesFor(w)
		fmt.Fprintf(&got, "# %s\n%s\n%s\n", test.name, fit.Summary(nodes), fit.Summary(nodes[:1]))
	}
	golden.Equal(t, "testdata/summaries.txt", got.String())
}

// Nodes with the same outcome are counted together.
func TestTally(t *testing.T) {
	w := newWorld(t).Node("node-a", "H100-80GB", 1).Node("node-b", "L4-24GB", 1)
	r := pending.Request("gpu", "gpu-nvidia.tranche.dev")
	r.Exactly.Selectors = selecting(`productName == "H100"`)
	w.Pod(r)
	_, nodes := nodesFor(w)
	h100, l4 := nodes[0].Outcome(), nodes[1].Outcome()
	assert.True(t, h100.Equal(nodes[0].Outcome()))
	assert.False(t, h100.Equal(l4))
	var tally fit.Tally
	tally.Add(h100, 2)
	tally.Add(l4, 3)
	assert.Equal(t, fit.Counts{fit.Lacking: 5}, tally.Counts)
	assert.Equal(t, "5 devices of class gpu-nvidia.tranche.dev, none passes `device.attributes[\"gpu.tranche.dev\"].productName == \"H100\"`; found: productName NVIDIA H100 80GB HBM3, NVIDIA L4", tally.String())
}

// The holders to wait for are the fewest of those of the first nodes, and all are needed.
func TestFewestHolders(t *testing.T) {
	whole := func(n int64) []resourceapi.DeviceRequest {
		return []resourceapi.DeviceRequest{allocator.Request("gpu", pending.WholeGPU, n)}
	}
	for want, test := range map[string]struct {
		world    *pending.World
		requests []resourceapi.DeviceRequest
	}{
		"team-c/all-0 ends.": {newWorld(t).Node("node-a", "H100-80GB", 1).Hold("node-a", "team-b", "small", pending.Small, 7).
			Node("node-b", "H100-80GB", 1).Hold("node-b", "team-c", "all", pending.WholeGPU, 1).Node("node-c", "H100-80GB", 1).Hold("node-c", "team-d", "three", pending.Three, 2), whole(1)},
		"team-c/one-0 ends.": {newWorld(t).Node("node-a", "H100-80GB", 2).Hold("node-a", "team-b", "both", pending.WholeGPU, 2).
			Node("node-b", "H100-80GB", 2).Hold("node-b", "team-c", "one", pending.WholeGPU, 1), whole(2)},
		"team-b/x-0, team-b/y-0, team-c/a-0 end.": {newWorld(t).Node("node-a", "H100-80GB", 3).Hold("node-a", "team-c", "a", pending.WholeGPU, 1).
			Hold("node-a", "team-b", "y", pending.WholeGPU, 1).Hold("node-a", "team-b", "x", pending.WholeGPU, 1), whole(3)},
		"team-d/four-0 ends.": {newWorld(t).Node("node-a", "H100-80GB", 2).Hold("node-a", "team-b", "three", pending.Three, 1).Hold("node-a", "team-c", "small", pending.Small, 2).
			Hold("node-a", "team-d", "four", "gpu-mig-4g-40gb.tranche.dev", 1), []resourceapi.DeviceRequest{pending.Request("a", pending.Three), pending.Request("b", pending.Three)}},
	} {
		w := test.world
		w.Pod(test.requests...)
		if len(test.requests) > 1 {
			w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
		}
		_, nodes := nodesFor(w)
		said := fit.Remedies(nodes)[0].Text
		assert.Contains(t, said, " free when "+want)
		w.In.Partial = true
		_, nodes = nodesFor(w)
		assert.Equal(t, strings.Replace(said, ". This", ", as far as you may see. This", 1), fit.Remedies(nodes)[0].Text)
	}
}

// A taint is no reason to ask for less, and nodes do not share theirs. Holders of other devices cannot help.
func TestTaintedAndHeld(t *testing.T) {
	tainted := []resourceapi.DeviceTaint{{Key: "example.com/maintenance", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	n := 0
	w := newWorld(t).Node("node-a", "H100-80GB", 2, func(g *publish.GPU) {
		g.Taints = []resourceapi.DeviceTaint{{Key: "example.com/informs", Effect: resourceapi.DeviceTaintEffectNone}}
		if n++; n == 2 {
			g.Taints = tainted
		}
	}).Node("node-b", "H100-80GB", 2, func(g *publish.GPU) { g.Taints = tainted })
	w.Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
	w.Pod(allocator.Request("gpu", pending.WholeGPU, 2))
	_, nodes := nodesFor(w)
	assert.Equal(t, []fit.Verdict{fit.Full, fit.Tainted}, []fit.Verdict{nodes[0].Verdict, nodes[1].Verdict})
	assert.Equal(t, "2 × NVIDIA H100 80GB HBM3", nodes[0].GPUs)
	assert.Equal(t, "wait until holders end: this pod then gets its devices automatically.", fit.Remedies(nodes)[0].Text)
}
