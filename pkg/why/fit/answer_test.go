package fit_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/pending"
)

// The reason of an event is that of the nodes that are closest to serving the pod.
func TestCounts(t *testing.T) {
	for _, test := range []struct {
		nodes           fit.Counts
		want, uncertain string
		note            string
	}{
		{nil, names.EventNoSuchDevice, "", "Waits for 1 × x: no node publishes GPUs. For details: kubectl tranche why p -n team-a"},
		{fit.Counts{fit.Lacking: 1}, names.EventNoSuchDevice, "", "Waits for 1 × x: 0 of 1 nodes fit: 1 without such a device. For details: kubectl tranche why p -n team-a"},
		{fit.Counts{fit.Lacking: 3, fit.Full: 1, fit.Tainted: 2}, names.EventDevicesHeld, names.EventDevicesHeld,
			"Waits for 1 × x: 0 of 6 nodes fit: 1 full, 2 tainted, 3 without such a device. For details: kubectl tranche why p -n team-a"},
		{fit.Counts{fit.Lacking: 3, fit.Switching: 1}, names.EventNodesSwitching, names.EventNodesSwitching, ""},
		{fit.Counts{fit.Full: 3, fit.Fits: 1}, "", "", ""},
		{fit.Counts{fit.Full: 3, fit.Unclear: 1}, "", "", ""},
		{fit.Counts{fit.SelectorFails: 1, fit.Unclear: 1}, names.EventSelectorFails, "", ""},
	} {
		assert.Equal(t, test.want, test.nodes.Event(true))
		assert.Equal(t, test.uncertain, test.nodes.Event(false))
		if test.note != "" {
			assert.Equal(t, test.note, fit.Note(types.NamespacedName{Namespace: "team-a", Name: "p"}, []demand.Ask{{Text: "1 × x"}}, fit.Tally{Counts: test.nodes}))
		}
	}
}

// Only events about devices of waiting pods are answers.
func TestIsEvent(t *testing.T) {
	for reason, want := range map[string]bool{names.EventDevicesHeld: true, names.EventNoSuchDevice: true, "": false, "FailedScheduling": false} {
		assert.Equal(t, want, fit.IsEvent(reason), reason)
	}
}

// shared is what the controller judges for the pod.
func shared(w *pending.World) *demand.Demand {
	w.T.Helper()
	d := demand.Of(demand.Input{Pod: w.In.Pod, Claims: w.In.Claims, Templates: w.In.Templates, Classes: w.In.Classes})
	require.Empty(w.T, d.Missing)
	require.Empty(w.T, d.Invalid(w.In.Classes))
	ours, certain, err := fit.Narrow(w.T.Context(), d, w.In.Objects)
	require.NoError(w.T, err)
	require.True(w.T, ours)
	require.True(w.T, certain)
	return d
}

// verdict is the verdict about a node as the controller reads it.
func verdict(ctx context.Context, w *pending.World, name string, d *demand.Demand) fit.Verdict {
	o := w.In.Objects
	o.Slices = nil
	for _, s := range w.In.Slices {
		if *s.Spec.NodeName == name {
			o.Slices = append(o.Slices, s)
		}
	}
	o.Claims = nil
	for _, c := range w.In.Claims {
		if c.Status.Allocation != nil {
			o.Claims = append(o.Claims, c)
		}
	}
	return fit.NewNodeModel(o).Judge(ctx, name, d).Verdict
}

// One node at a time gives the same answer as all of them together.
func TestNodeModel(t *testing.T) {
	w := newWorld(t).Node("node-a", "H100-80GB", 1).Node("node-b", "L4-24GB", 1).Node("node-c", "H100-80GB", 1)
	w.Hold("node-a", "team-b", "train", pending.WholeGPU, 1)
	w.Pod(pending.Request("gpu", pending.Small))
	w.GPUNodes(gpunodes.WithProfile("node-y", "spx").Switches(v1beta1.Applying, "cpx", ""))
	nodes := fit.Counts{}
	for _, name := range []string{"node-a", "node-b", "node-c", "node-x", "node-y"} {
		nodes[verdict(t.Context(), w, name, shared(w))]++
	}
	require.Equal(t, fit.Counts{fit.Full: 1, fit.Lacking: 1, fit.Fits: 1, fit.Unusable: 1, fit.Switching: 1}, nodes)
}

// lackingEverywhere has nodes without the requested device. The pod can run on the first of them only.
func lackingEverywhere(t *testing.T) *pending.World {
	w := newWorld(t).TwoNodes().Node("node-c", "H100-80GB", 1)
	pod := w.Pod(pending.Request("gpu", "gpu-mig-1g-35gb.tranche.dev"))
	pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	w.In.Nodes[0].Labels["disk"], w.In.Nodes[2].Labels["disk"] = "ssd", "ssd"
	w.In.Nodes[2].Spec.Unschedulable = true
	return w
}

// A node that the pod cannot use is closed to it only if the node has the devices, held or not. Events and
// explanations agree.
func TestExcludedOrLacking(t *testing.T) {
	elsewhere := map[string]string{"disk": "ssd"}
	for name, test := range map[string]struct {
		world  func(*testing.T) *pending.World
		want   map[string]fit.Verdict
		answer string
	}{
		"nowhere": {lackingEverywhere, map[string]fit.Verdict{"node-a": fit.Lacking, "node-b": fit.Lacking, "node-c": fit.Lacking}, names.EventNoSuchDevice},
		"on closed nodes": {func(t *testing.T) *pending.World {
			w := newWorld(t).TwoNodes().Node("node-c", "H100-80GB", 1).Hold("node-c", "team-b", "train", pending.WholeGPU, 1)
			w.Pod(pending.Request("gpu", pending.Small)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded, "node-b": fit.Lacking, "node-c": fit.Excluded}, names.EventNodesExcluded},
		"not so many": {func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2)
			w.Pod(allocator.Request("gpu", pending.WholeGPU, 3)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Lacking}, names.EventNoSuchDevice},
		"only one of two": {func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.Pod(pending.Request("have", pending.Small), pending.Request("lack", "gpu-mig-1g-35gb.tranche.dev")).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Lacking}, names.EventNoSuchDevice},
		"the second choice": {func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.Pod(pending.AnyOf("gpu", "gpu-mig-1g-35gb.tranche.dev", pending.Small)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded}, names.EventNodesExcluded},
		"withheld GPUs may have it": {func(t *testing.T) *pending.World {
			w, n := newWorld(t), 0
			w.Node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld, n = n == 1, n+1 }).Node("node-b", "H100-80GB", 1)
			w.Pod(allocator.Request("gpu", pending.WholeGPU, 2)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded, "node-b": fit.Lacking}, names.EventNodesExcluded},
		"as many as there are": {func(t *testing.T) *pending.World {
			w := newWorld(t).Node("node-a", "H100-80GB", 2)
			w.Pod(allocator.Request("gpu", pending.WholeGPU, 2)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded}, names.EventNodesExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			w := test.world(t)
			_, nodes := nodesFor(w)
			explained, judged := map[string]fit.Verdict{}, map[string]fit.Verdict{}
			for _, n := range nodes {
				explained[n.Name], judged[n.Name] = n.Verdict, verdict(t.Context(), w, n.Name, shared(w))
			}
			assert.Equal(t, test.want, explained)
			assert.Equal(t, test.want, judged)
			assert.Equal(t, test.answer, fit.CountsOf(nodes).Event(true))
		})
	}
}

// An allocator that gives up, and a context that has ended, are no answers. A selector that fails is one.
func TestUnclearVerdicts(t *testing.T) {
	w := newWorld(t).Node("node-a", "H100-80GB", 8)
	many := allocator.Request("gpu", pending.Small, 33) // more than a claim can have
	w.Pod(many)
	assert.Equal(t, fit.Unclear, verdict(t.Context(), w, "node-a", shared(w)))

	w.Claim().Spec.Devices.Requests = []resourceapi.DeviceRequest{pending.Request("gpu", pending.Small)}
	selector := &w.Claim().Spec.Devices.Requests[0].Exactly.Selectors
	*selector = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].nothing == "x"`}}}
	shared := shared(w)
	assert.Equal(t, fit.SelectorFails, verdict(t.Context(), w, "node-a", shared))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, fit.Unclear, verdict(ctx, w, "node-a", shared))
	_, _, err := fit.Narrow(ctx, shared, w.In.Objects)
	require.ErrorIs(t, err, context.Canceled)
}

// Requests that only another driver can serve do not count, and those that it may serve only if there are no
// others.
func TestRequestsOfOtherDrivers(t *testing.T) {
	of := pending.Request
	for name, test := range map[string]struct {
		requests               []resourceapi.DeviceRequest
		kept                   []string
		certain, only, perhaps bool
	}{
		"ours":                    {[]resourceapi.DeviceRequest{of("a", pending.Small)}, []string{"a"}, true, false, false},
		"also of another":         {[]resourceapi.DeviceRequest{of("a", pending.Small), of("b", "nic")}, []string{"a"}, true, false, false},
		"of another":              {[]resourceapi.DeviceRequest{of("b", "nic")}, nil, false, true, true},
		"of any, and of another":  {[]resourceapi.DeviceRequest{of("a", "any"), of("b", "nic")}, []string{"a"}, false, false, true},
		"of any, and ours":        {[]resourceapi.DeviceRequest{of("a", "any"), of("b", pending.Small)}, []string{"b"}, true, false, false},
		"ours, or else another's": {[]resourceapi.DeviceRequest{pending.AnyOf("a", pending.Small, "nic")}, nil, false, true, true},
		"any, or else ours":       {[]resourceapi.DeviceRequest{pending.AnyOf("a", "any", pending.Small)}, []string{"a"}, false, false, true},
	} {
		w := newWorld(t).Node("node-a", "H100-80GB", 1)
		for class, expression := range map[string]string{"nic": `device.driver == "nic.example.com"`, "any": `device.driver != "other.example.com"`} {
			w.In.Classes = append(w.In.Classes, resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
			}})
		}
		w.Pod(test.requests...)
		w.Claim().Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{"b"}, MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("x/y"))}}
		d, _ := nodesFor(w)
		only, perhaps := fit.NewModel(w.In.Objects, false).OtherDrivers(t.Context(), d)
		ours, certain, err := fit.Narrow(t.Context(), d, w.In.Objects)
		require.NoError(t, err)
		assert.Equal(t, []bool{test.kept != nil, test.certain, test.only, test.perhaps}, []bool{ours, certain, only, perhaps}, name)
		var kept []string
		for _, a := range d.Asks() {
			kept = append(kept, a.Request)
		}
		assert.Equal(t, test.kept, kept, name)
		for _, c := range d.Unallocated {
			assert.Equal(t, slices.Contains(kept, "b"), len(c.Spec.Devices.Constraints) > 0, "%s: a constraint on b", name)
		}
		assert.Len(t, w.Claim().Spec.Devices.Requests, len(test.requests), "%s: the claim is unchanged", name)
	}
}

// A claim can request nothing.
func TestClaimWithoutRequests(t *testing.T) {
	w := newWorld(t).Node("node-a", "H100-80GB", 1)
	w.Pod()
	_, nodes := nodesFor(w)
	assert.Equal(t, fit.Fits, nodes[0].Verdict)
}

// A pod with devices goes where they are.
func TestPodWithDevices(t *testing.T) {
	w := newWorld(t).TwoNodes()
	w.Pod(pending.Request("gpu", pending.Small))
	w.Placed("node-a").Spec.NodeName = ""
	_, nodes := nodesFor(w)
	assert.Equal(t, []fit.Verdict{fit.Fits, fit.Excluded}, []fit.Verdict{nodes[0].Verdict, nodes[1].Verdict})
	assert.Equal(t, []string{"the pod's devices are on this node."}, nodes[0].Reasons)
}

// A switch counts only if it keeps devices from pods.
func TestSwitchThatKeepsNoDevices(t *testing.T) {
	for want, test := range map[fit.Verdict]struct {
		state    v1beta1.State
		withhold bool
		of       func(*publish.GPU)
	}{
		fit.Lacking:  {v1beta1.Draining, false, pending.Only("3g.40gb")},
		fit.Unusable: {v1beta1.Waiting, false, func(g *publish.GPU) { g.Withheld = true }},
		fit.Tainted: {v1beta1.Draining, true, func(g *publish.GPU) {
			g.Taints = []resourceapi.DeviceTaint{{Key: "a", Effect: resourceapi.DeviceTaintEffectNoExecute}}
		}},
		fit.Switching: {v1beta1.Draining, true, pending.Only("3g.40gb")},
	} {
		w := newWorld(t).Node("node-a", "H100-80GB", 1, test.of)
		n := gpunodes.WithProfile("node-a", "dynamic").Switches(test.state, "all-1g.10gb", "", w.GPUOf("node-a"))
		n.Status.Switch.Withhold = test.withhold
		w.GPUNodes(n).Pod(pending.Request("gpu", pending.Small))
		_, nodes := nodesFor(w)
		assert.Equal(t, want, nodes[0].Verdict)
	}
}

// GPUs in another mode are not mentioned if another GPU is free.
func TestFreeBesideAnotherMode(t *testing.T) {
	w := newWorld(t).Node("node-b", "MI300X", 2).Hold("node-b", "team-b", "rank", pending.CPX, 1)
	w.Pod(pending.Request("gpu", pending.DPX))
	_, nodes := nodesFor(w)
	r := nodes[0].Requests[0]
	assert.Equal(t, "2 of 4 devices free: 2 taken.", r.Text)
	assert.Empty(t, r.InMode)
}

// A cordoned node has a field, a taint, or both, and a pod may tolerate it, as the scheduler sees it.
func TestCordonedNode(t *testing.T) {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	for name, spec := range map[string]corev1.NodeSpec{
		"the field": {Unschedulable: true}, "the taint": {Taints: []corev1.Taint{taint}}, "both": {Unschedulable: true, Taints: []corev1.Taint{taint}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).Node("node-a", "H100-80GB", 1)
			w.In.Nodes[0].Spec = spec
			pod := w.Pod(pending.Request("gpu", pending.Small))
			_, nodes := nodesFor(w)
			require.Len(t, nodes, 1)
			assert.Equal(t, fit.Excluded, nodes[0].Verdict)
			assert.Equal(t, []string{"the node is cordoned."}, nodes[0].Reasons)
			assert.Equal(t, []fit.Remedy{{Text: "node-a has the devices; when it no longer needs to be cordoned:", Command: "kubectl uncordon node-a"}}, fit.Remedies(nodes))
			pod.Spec.Tolerations = []corev1.Toleration{{Key: taint.Key, Operator: corev1.TolerationOpExists}}
			_, nodes = nodesFor(w)
			assert.Equal(t, fit.Fits, nodes[0].Verdict)
		})
	}
}

// TestOneClaimWithSeveralPiecesIsOneHolder: what counts is who has to go.
func TestOneClaimWithSeveralPiecesIsOneHolder(t *testing.T) {
	w := newWorld(t).Node("node-b", "MI300X", 2).Hold("node-b", "team-b", "rank", pending.CPX, 1)
	eight := pending.Request("gpu", pending.CPX)
	eight.Exactly.Count = 8
	claim := pending.ClaimOf("team-c", "eight-gpu", eight)
	claim.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID"))}}
	grant, err := w.Scheduler.Allocate(t.Context(), "node-b", claim)
	require.NoError(t, err)
	require.NotNil(t, grant)
	w.Give(claim, grant.Result, "eight")
	w.Hold("node-b", "team-b", "more", pending.CPX, 1)
	w.Pod(pending.Request("gpu", pending.DPX))
	_, nodes := nodesFor(w)
	r := nodes[0].Requests[0]
	assert.Equal(t, []fit.InMode{{Mode: "CPX", GPUs: 2, Claims: 3}}, r.InMode)
	assert.Equal(t, "wait, or delete the holders: gpu-0000-1e-00-0-dpx-0 on node-b is free when team-c/eight ends. This pod then gets its devices automatically.",
		fit.Remedies(nodes)[0].Text, "one claim, though it has eight pieces")
}
