package why_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/allocator"
)

// The reason of an event is that of the nodes that are closest to serving the pod.
func TestCounts(t *testing.T) {
	for _, test := range []struct {
		nodes           fit.Counts
		want, uncertain string
		note            string
	}{
		{nil, names.EventNoSuchDevice, "", "Waits for 1 × x: no node publishes GPUs. For details: kubectl tranche why p"},
		{fit.Counts{fit.Lacking: 1}, names.EventNoSuchDevice, "", "Waits for 1 × x: 0 of 1 nodes fit: 1 without such a device. For details: kubectl tranche why p"},
		{fit.Counts{fit.Lacking: 3, fit.Full: 1, fit.Tainted: 2}, names.EventDevicesHeld, names.EventDevicesHeld,
			"Waits for 1 × x: 0 of 6 nodes fit: 1 full, 2 tainted, 3 without such a device. For details: kubectl tranche why p"},
		{fit.Counts{fit.Lacking: 3, fit.Switching: 1}, names.EventNodesSwitching, names.EventNodesSwitching, ""},
		{fit.Counts{fit.Full: 3, fit.Fits: 1}, "", "", ""},
		{fit.Counts{fit.Full: 3, fit.Unclear: 1}, "", "", ""},
		{fit.Counts{fit.SelectorFails: 1, fit.Unclear: 1}, names.EventSelectorFails, "", ""},
	} {
		assert.Equal(t, test.want, test.nodes.Event(true))
		assert.Equal(t, test.uncertain, test.nodes.Event(false))
		if test.note != "" {
			assert.Equal(t, test.note, fit.Note("p", []fit.Ask{{Text: "1 × x"}}, test.nodes))
		}
	}
}

// shared is what the controller judges for the pod.
func (w *world) shared() *fit.Demand {
	w.t.Helper()
	d := fit.DemandOf(fit.Input{Pod: w.in.Pod, Claims: w.in.Claims, Templates: w.in.Templates, Classes: w.in.Classes})
	require.Empty(w.t, d.Missing)
	require.Empty(w.t, d.Invalid(w.in.Classes))
	ours, certain, err := d.Narrow(w.t.Context(), w.in.Objects)
	require.NoError(w.t, err)
	require.True(w.t, ours)
	require.True(w.t, certain)
	return d
}

// verdict is the verdict about a node as the controller reads it.
func (w *world) verdict(ctx context.Context, name string, d *fit.Demand) fit.Verdict {
	o := w.in.Objects
	o.Slices = nil
	for _, s := range w.in.Slices {
		if *s.Spec.NodeName == name {
			o.Slices = append(o.Slices, s)
		}
	}
	o.Claims = nil
	for _, c := range w.in.Claims {
		if c.Status.Allocation != nil {
			o.Claims = append(o.Claims, c)
		}
	}
	return fit.NewNodeModel(o).Verdict(ctx, name, d)
}

// One node at a time gives the same answer as all of them together.
func TestNodeModel(t *testing.T) {
	w := newWorld(t).node("node-a", "H100-80GB", 1).node("node-b", "L4-24GB", 1).node("node-c", "H100-80GB", 1)
	w.hold("node-a", "team-b", "train", wholeGPU, 1)
	w.pod(request("gpu", small))
	nodes := fit.Counts{}
	for _, name := range []string{"node-a", "node-b", "node-c", "node-x"} {
		nodes[w.verdict(t.Context(), name, w.shared())]++
	}
	require.Equal(t, fit.Counts{fit.Full: 1, fit.Lacking: 1, fit.Fits: 1, fit.Unusable: 1}, nodes)
}

// lackingEverywhere has nodes without the requested device. The pod can run on the first of them only.
func lackingEverywhere(t *testing.T) *world {
	w := twoNodes(t).node("node-c", "H100-80GB", 1)
	pod := w.pod(request("gpu", "gpu-mig-1g-35gb.tranche.dev"))
	pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	w.in.Nodes[0].Labels["disk"], w.in.Nodes[2].Labels["disk"] = "ssd", "ssd"
	w.in.Nodes[2].Spec.Unschedulable = true
	return w
}

// A node that the pod cannot use is closed to it only if the node has the devices, held or not. Events and
// explanations agree.
func TestExcludedOrLacking(t *testing.T) {
	elsewhere := map[string]string{"disk": "ssd"}
	for name, test := range map[string]struct {
		world  func(*testing.T) *world
		want   map[string]fit.Verdict
		answer string
	}{
		"nowhere": {lackingEverywhere, map[string]fit.Verdict{"node-a": fit.Lacking, "node-b": fit.Lacking, "node-c": fit.Lacking}, names.EventNoSuchDevice},
		"on closed nodes": {func(t *testing.T) *world {
			w := twoNodes(t).node("node-c", "H100-80GB", 1).hold("node-c", "team-b", "train", wholeGPU, 1)
			w.pod(request("gpu", small)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded, "node-b": fit.Lacking, "node-c": fit.Excluded}, names.EventNodesExcluded},
		"not so many": {func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 2)
			w.pod(allocator.Request("gpu", wholeGPU, 3)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Lacking}, names.EventNoSuchDevice},
		"only one of two": {func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.pod(request("have", small), request("lack", "gpu-mig-1g-35gb.tranche.dev")).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Lacking}, names.EventNoSuchDevice},
		"the second choice": {func(t *testing.T) *world {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.pod(anyOf("gpu", "gpu-mig-1g-35gb.tranche.dev", small)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded}, names.EventNodesExcluded},
		"withheld GPUs may have it": {func(t *testing.T) *world {
			w, n := newWorld(t), 0
			w.node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld, n = n == 1, n+1 })
			w.pod(allocator.Request("gpu", wholeGPU, 2)).Spec.NodeSelector = elsewhere
			return w
		}, map[string]fit.Verdict{"node-a": fit.Excluded}, names.EventNodesExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			w := test.world(t)
			e := w.explain()
			explained, judged := map[string]fit.Verdict{}, map[string]fit.Verdict{}
			for _, n := range e.Nodes {
				explained[n.Name], judged[n.Name] = n.Verdict, w.verdict(t.Context(), n.Name, w.shared())
			}
			assert.Equal(t, test.want, explained)
			assert.Equal(t, test.want, judged)
			assert.Equal(t, test.answer, e.Answer)
		})
	}
}

// An allocator that gives up, and a context that has ended, are no answers. A selector that fails is one.
func TestUnclearVerdicts(t *testing.T) {
	w := newWorld(t).node("node-a", "H100-80GB", 8)
	many := allocator.Request("gpu", small, 33) // more than a claim can have
	w.pod(many)
	assert.Equal(t, fit.Unclear, w.verdict(t.Context(), "node-a", w.shared()))

	w.claim().Spec.Devices.Requests = []resourceapi.DeviceRequest{request("gpu", small)}
	selector := &w.claim().Spec.Devices.Requests[0].Exactly.Selectors
	*selector = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.tranche.dev"].nothing == "x"`}}}
	shared := w.shared()
	assert.Equal(t, fit.SelectorFails, w.verdict(t.Context(), "node-a", shared))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, fit.Unclear, w.verdict(ctx, "node-a", shared))
	_, _, err := shared.Narrow(ctx, w.in.Objects)
	require.ErrorIs(t, err, context.Canceled)
}

// Pods with the same demand have the same key, whatever they and their claims are called.
func TestKey(t *testing.T) {
	key := func(change func(*corev1.Pod, *resourceapi.ResourceClaim)) string {
		w := newWorld(t).node("node-a", "H100-80GB", 1)
		w.pod(request("gpu", small))
		change(w.in.Pod, w.claim())
		key, err := w.shared().Key(w.in.Classes)
		require.NoError(t, err)
		return key
	}
	same := key(func(*corev1.Pod, *resourceapi.ResourceClaim) {})
	assert.Equal(t, same, key(func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		c.Name, p.Status.ResourceClaimStatuses[0].ResourceClaimName = "other", new("other")
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		c.Spec.Devices.Config = make([]resourceapi.DeviceClaimConfiguration, 1)
	}))
	for _, change := range []func(*corev1.Pod, *resourceapi.ResourceClaim){
		func(p *corev1.Pod, _ *resourceapi.ResourceClaim) { p.Spec.NodeSelector = map[string]string{"a": "b"} },
		func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		},
		func(_ *corev1.Pod, c *resourceapi.ResourceClaim) { c.Spec.Devices.Requests[0].Exactly.Count = 2 },
	} {
		assert.NotEqual(t, same, key(change))
	}
}

// A pod that asks only for devices of another driver is not explained. If they may be ours, only what
// follows from ours is an answer.
func TestAnotherDriver(t *testing.T) {
	with := func(selector string) *world {
		w := newWorld(t).node("node-a", "H100-80GB", 1)
		w.in.Classes = append(w.in.Classes, resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}},
		}})
		w.in.Nodes = append(w.in.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-node"}})
		w.in.Slices = append(w.in.Slices, resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "nic-slice"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "nic.example.com", NodeName: new("cpu-node"), Pool: resourceapi.ResourcePool{Name: "cpu-node", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "nic-0"}},
		}})
		return w
	}
	w := with(`device.driver == "nic.example.com"`)
	w.pod(request("nic", "nic"))
	e := w.explain()
	assert.Equal(t, why.OtherDriver, e.State)
	assert.Equal(t, "team-a/pod has no node yet. It asks for devices of another driver, which is not explained here.", e.Summary)
	assert.Empty(t, e.Answer)
	assert.Empty(t, e.Remedies)

	w = with(`device.driver != "other.example.com"`)
	w.pod(allocator.Request("nic", "nic", 30))
	e = w.explain()
	assert.Equal(t, why.NoRoom, e.State)
	assert.Contains(t, e.Summary, "Whether devices of another driver can serve it is not explained here.")
	assert.Empty(t, e.Answer)
	w = with(`device.driver != "other.example.com"`).hold("node-a", "team-b", "train", wholeGPU, 1)
	w.pod(request("nic", "nic"))
	assert.Equal(t, names.EventDevicesHeld, w.explain().Answer)
}

// GPUs that are withheld may have what is asked for: nobody needs another node for that.
func TestWithheldGPUsAreNoLack(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.node("node-a", "H100-80GB", 2, func(g *publish.GPU) { g.Withheld, n = n == 1, n+1 })
	w.pod(allocator.Request("gpu", wholeGPU, 2))
	e := w.explain()
	assert.Equal(t, why.NoRoom, e.State)
	assert.Equal(t, names.EventGPUsUnusable, e.Answer)
	assert.Equal(t, fit.Unusable, e.Nodes[0].Verdict)
	for _, r := range e.Remedies {
		assert.NotContains(t, r.Text, "add a node")
	}
}

// An old event, or one that was followed by that devices are free, is no answer.
func TestOldEventsAreNoAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		age, free time.Duration
		want      why.State
	}{
		"young": {age: 59 * time.Minute, want: why.NoRoom},
		"old":   {age: 61 * time.Minute, want: why.Unknown},
		"over":  {age: 20 * time.Minute, free: 10 * time.Minute, want: why.Unknown},
		"again": {age: 20 * time.Minute, free: 30 * time.Minute, want: why.NoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.pod(request("gpu", small))
			w.hide(why.ResourceClaims)
			say := func(reason string, age time.Duration) {
				e := warning("Pod", "pod", reason, names.ControllerName, "Waits.")
				e.InvolvedObject.UID, e.LastTimestamp = w.in.Pod.UID, metav1.NewTime(now.Add(-age))
				w.in.Events = append(w.in.Events, e)
			}
			say(names.EventDevicesHeld, test.age)
			if test.free > 0 {
				say(names.EventDevicesFree, test.free)
			}
			assert.Equal(t, test.want, w.explain().State)
		})
	}
}

// A cordoned node has a field, a taint, or both, and a pod may tolerate it, as the scheduler sees it.
func TestCordonedNode(t *testing.T) {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	for name, spec := range map[string]corev1.NodeSpec{
		"the field": {Unschedulable: true}, "the taint": {Taints: []corev1.Taint{taint}}, "both": {Unschedulable: true, Taints: []corev1.Taint{taint}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).node("node-a", "H100-80GB", 1)
			w.in.Nodes[0].Spec = spec
			pod := w.pod(request("gpu", small))
			e := w.explain()
			assert.Equal(t, names.EventNodesExcluded, e.Answer)
			require.Len(t, e.Nodes, 1)
			assert.Equal(t, []string{"the node is cordoned."}, e.Nodes[0].Reasons)
			pod.Spec.Tolerations = []corev1.Toleration{{Key: taint.Key, Operator: corev1.TolerationOpExists}}
			assert.Equal(t, why.RoomNow, w.explain().State)
		})
	}
}
