package defrag_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/test/allocator"
)

func priority(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

// scattered has two nodes with one H100 each, with a small pod on both, and a pod that waits for a
// whole GPU.
func scattered(t *testing.T, change ...func(*corev1.Pod)) (f *fleet, waiting string) {
	f = newFleet(t, 1, 1)
	f.run("node-0", one, change...)
	f.run("node-0", one, change...)
	f.run("node-1", one, change...)
	return f, f.add(seven, 1, priority(5))
}

func TestPlan(t *testing.T) {
	f, waiting := scattered(t)
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	assert.Equal(t, "node-1", plan.Node, "where one pod moves, and not two")
	require.Len(t, plan.Moves, 1)
	m := plan.Moves[0]
	assert.Equal(t, "pod-2", m.Pod.Name)
	assert.Equal(t, f.pods["pod-2"].UID, m.UID)
	assert.Equal(t, f.devices("pod-2"), m.From)
	assert.Equal(t, "node-0", m.Node)
	require.Len(t, m.To, 1)
	assert.NotContains(t, append(f.devices("pod-0"), f.devices("pod-1")...), m.To[0])
	overlapping := f.planner(defrag.Options{}).Overlapping(plan)
	assert.Contains(t, overlapping, m.From[0])
	assert.NotContains(t, overlapping, plan.Devices[0])
	assert.NotContains(t, overlapping, m.To[0])
	assert.Nil(t, f.planner(defrag.Options{}).Overlapping(&defrag.Plan{Node: "node-9"}))
}

// A pod may move to another GPU of the same node.
func TestPlanOnOneNode(t *testing.T) {
	f := newFleet(t, 2)
	for range 8 {
		f.run("node-0", one)
	}
	f.remove("pod-0", "pod-1")
	plan, refusal := f.plan(f.add(seven, 1, priority(5)), defrag.Options{})
	require.Nil(t, refusal)
	require.Len(t, plan.Moves, 1)
	assert.Equal(t, "pod-7", plan.Moves[0].Pod.Name)
	assert.Equal(t, "node-0", plan.Moves[0].Node)
}

// A moved pod that stays on the node, on another GPU, still uses the CPU that it requests there.
func TestPlanOnOneNodeCountsCPU(t *testing.T) {
	f := newFleet(t, 2)
	for range 8 {
		f.run("node-0", one, request(corev1.ResourceCPU, "5"))
	}
	f.remove("pod-0", "pod-1")
	// 34 of 64 CPUs are free, 39 without the moved pod.
	_, refusal := f.plan(f.add(seven, 1, priority(5), request(corev1.ResourceCPU, "36")), defrag.Options{})
	require.NotNil(t, refusal)
	assert.Equal(t, defrag.NoPlace, refusal.Reason, refusal)
	_, refusal = f.plan(f.add(seven, 1, priority(5), request(corev1.ResourceCPU, "34")), defrag.Options{})
	require.Nil(t, refusal)
}

// A claim may be created later, from its template.
func TestPlanForTemplates(t *testing.T) {
	f, waiting := scattered(t)
	f.pods[waiting].Status.ResourceClaimStatuses = nil
	_, refusal := f.plan(waiting, defrag.Options{})
	assert.Nil(t, refusal)
	f.in.Templates = f.in.Templates[:1]
	_, refusal = f.plan(waiting, defrag.Options{})
	assert.Equal(t, defrag.ClaimMissing, refusal.Reason)
}

// Several devices need several GPUs, of which those with the fewest pods are freed.
func TestPlanForSeveralDevices(t *testing.T) {
	f := newFleet(t, 3, 1)
	for range 7 {
		f.run("node-0", one)
	}
	f.run("node-0", seven)
	f.run("node-0", two)
	f.remove("pod-7")
	f.run("node-0", two)
	waiting := f.add(seven, 2, priority(5))
	for _, requests := range [][]resourceapi.DeviceRequest{{allocator.Request("gpu", seven, 2)}, {allocator.Request("a", seven, 1), allocator.Request("b", seven, 1)}} {
		f.claims[waiting].Spec.Devices.Requests = requests
		plan, refusal := f.plan(waiting, defrag.Options{})
		require.Nil(t, refusal)
		assert.Equal(t, "node-0", plan.Node)
		assert.Len(t, plan.Devices, 2)
		require.Len(t, plan.Moves, 2)
		assert.Equal(t, []string{"pod-8", "pod-9"}, []string{plan.Moves[0].Pod.Name, plan.Moves[1].Pod.Name})
		assert.Equal(t, "node-1", plan.Moves[0].Node)
	}
}

// Of the pods of a GPU, those stay that need not move.
func TestPlanOfFewestPods(t *testing.T) {
	f := newFleet(t, 1, 1, 1)
	for range 7 {
		f.run("node-0", one)
	}
	for _, node := range []string{"node-1", "node-2"} {
		f.run(node, three, func(p *corev1.Pod) { p.OwnerReferences = nil })
	}
	waiting := f.add(three, 1, priority(5))
	f.claims[waiting].Spec.Devices.Requests = append(f.claims[waiting].Spec.Devices.Requests, allocator.Request("other", two, 1))
	plan, refusal := f.plan(waiting, defrag.Options{MaxPods: 5})
	require.Nil(t, refusal)
	assert.Len(t, plan.Moves, 5)
	_, refusal = f.plan(waiting, defrag.Options{MaxPods: 4})
	require.NotNil(t, refusal)
	assert.Equal(t, defrag.TooMany, refusal.Reason, refusal)
}

// The largest pod moves first, and pods go where the most is allocated, so that other nodes stay empty.
func TestPlanOfSeveralMoves(t *testing.T) {
	f := newFleet(t, 1, 1, 1)
	for _, node := range []string{"node-0", "node-0", "node-0", "node-1", "node-2", "node-2", "node-2", "node-2"} {
		f.run(node, one)
	}
	f.run("node-1", two)
	plan, refusal := f.plan(f.add(seven, 1, priority(5)), defrag.Options{})
	require.Nil(t, refusal)
	require.Len(t, plan.Moves, 2)
	assert.Equal(t, []string{"pod-8", "pod-3"}, []string{plan.Moves[0].Pod.Name, plan.Moves[1].Pod.Name})
	assert.Equal(t, "node-2", plan.Moves[1].Node)
	assert.NotEqual(t, plan.Moves[0].To, plan.Moves[1].To)
}

// Devices of other drivers that claims hold are not free, be they those of the node or of all nodes.
func TestPlanWithOtherDrivers(t *testing.T) {
	for name, spec := range map[string]resourceapi.ResourceSliceSpec{"of the node": {NodeName: ptr.To("node-1")}, "of all nodes": {AllNodes: ptr.To(true)}} {
		f, waiting := scattered(t)
		spec.Driver, spec.Pool, spec.Devices = "nic.example.com", resourceapi.ResourcePool{Name: "nics", ResourceSliceCount: 1}, []resourceapi.Device{{Name: "nic"}}
		f.slices = append(f.slices, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "nics"}, Spec: spec})
		f.in.Classes = append(f.in.Classes, resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.DeviceClassSpec{Selectors: selector(`device.driver == "nic.example.com"`)}})
		f.claims[waiting].Spec.Devices.Requests = append(f.claims[waiting].Spec.Devices.Requests, allocator.Request("nic", "nic", 1))
		_, refusal := f.plan(waiting, defrag.Options{})
		require.Nil(t, refusal, name)
		f.claims[f.add("nic", 1)].Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Driver: spec.Driver, Pool: "nics", Device: "nic"}},
		}}
		_, refusal = f.plan(waiting, defrag.Options{})
		require.NotNil(t, refusal, name)
		assert.Equal(t, defrag.NoNode, refusal.Reason, refusal)
	}
}

// What a pod cannot get, another pod with the same class and other selectors may get.
func TestPlansOfOnePlanner(t *testing.T) {
	f, waiting := scattered(t)
	other := f.add(seven, 1, priority(5))
	f.claims[other].Spec.Devices.Requests[0].Exactly.Selectors = selector("false")
	p := f.planner(defrag.Options{})
	_, err := p.Plan(t.Context(), f.pods[other])
	require.Error(t, err)
	_, err = p.Plan(t.Context(), f.pods[waiting])
	require.NoError(t, err)
}

func selector(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

// Where the room is on the last of many nodes, it is found.
func TestManyNodes(t *testing.T) {
	f := newFleet(t, append(make([]int, 0, 300), repeat(1, 300)...)...)
	for i := range f.in.Nodes {
		if f.in.Nodes[i].Name != "node-99" { // the last by name
			f.run(f.in.Nodes[i].Name, seven, func(p *corev1.Pod) { p.OwnerReferences = nil })
		}
	}
	f.run("node-99", one)
	f.in.Nodes[0].Spec.Unschedulable = false
	f.remove("pod-0") // the room for it, on node-0
	f.run("node-0", one)
	waiting := f.add(seven, 1, priority(5), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-99"} })
	plan, refusal := f.plan(waiting, defrag.Options{Timeout: time.Minute})
	require.Nil(t, refusal)
	assert.Equal(t, "node-0", plan.Moves[0].Node)
}

func repeat(n, times int) (out []int) {
	for range times {
		out = append(out, n)
	}
	return out
}

func TestPlannerNeedsEverything(t *testing.T) {
	f, _ := scattered(t)
	for _, lacks := range []func(*defrag.Input){
		func(in *defrag.Input) { in.Partial = true }, func(in *defrag.Input) { in.Slices = nil }, func(in *defrag.Input) { in.Classes = nil }, func(in *defrag.Input) { in.Nodes = nil },
	} {
		in := f.input()
		lacks(in)
		_, err := defrag.New(in, defrag.Options{})
		assert.EqualError(t, err, "a plan needs the ResourceClaims, ResourceSlices, DeviceClasses and nodes of the whole cluster")
	}
}

// The advice is the plan, with the names of devices.
func TestAdvise(t *testing.T) {
	f, waiting := scattered(t)
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	advice, err := f.planner(defrag.Options{}).Advise(t.Context(), f.pods[waiting])
	require.NoError(t, err)
	m := plan.Moves[0]
	assert.Equal(t, defrag.PodAdvice{
		Pod: v1beta1.PodReference{Namespace: team, Name: waiting, UID: f.pods[waiting].UID}, NodeName: plan.Node, Devices: defrag.Names(plan.Devices),
		Moves: []defrag.MoveAdvice{{
			PodReference: v1beta1.PodReference{Namespace: team, Name: m.Pod.Name, UID: m.UID}, FromDevices: defrag.Names(m.From), ToNodeName: m.Node, ToDevices: defrag.Names(m.To),
		}},
	}, advice)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.planner(defrag.Options{}).Advise(ctx, f.pods[waiting])
	require.ErrorIs(t, err, context.Canceled)
}

// Which pods are read because they can keep others off nodes.
func TestKeepsPodsAway(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase, terms int) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: make([]corev1.PodAffinityTerm, terms),
		}}}, Status: corev1.PodStatus{Phase: phase}}
	}
	assert.True(t, defrag.KeepsPodsAway(pod("node-0", corev1.PodRunning, 1)))
	for _, p := range []*corev1.Pod{pod("", corev1.PodPending, 1), pod("node-0", corev1.PodSucceeded, 1), pod("node-0", corev1.PodRunning, 0), {Spec: corev1.PodSpec{NodeName: "node-0"}}} {
		assert.False(t, defrag.KeepsPodsAway(p))
	}
}

// What no move can help is impossible, and the reason is that of kubectl tranche why.
func TestImpossible(t *testing.T) {
	for name, test := range map[string]struct {
		class  string
		count  int64
		change func(*corev1.Pod)
		want   string
	}{
		"more GPUs than a node has": {whole, 9, func(*corev1.Pod) {}, "it asks for 9 devices at once, and the largest node has 1"},
		"more CPUs than a node has": {whole, 1, request(corev1.ResourceCPU, "500"), "the nodes with such devices do not admit the pod: the pod asks for more cpu (500) than the largest of them has (64)"},
		"no such node": {whole, 1, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"x": "y"} },
			"the nodes with such devices do not admit the pod: the pod asks for nodes with the label x=y"},
		"two large partitions of one GPU": {"gpu-mig-4g-40gb.tranche.dev", 2, func(*corev1.Pod) {}, "it asks for 2 devices at once, and the largest node has 1"},
		"another class":                   {"gpu-amd.tranche.dev", 1, func(*corev1.Pod) {}, "no device of class gpu-amd.tranche.dev; found: 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb, whole NVIDIA GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := scattered(t)
			waiting := f.pods[f.add(test.class, test.count, test.change)]
			advice, err := f.planner(defrag.Options{}).Advise(t.Context(), waiting)
			require.NoError(t, err)
			assert.Equal(t, &defrag.Refusal{Reason: defrag.Impossible, Message: "No move makes room for pod team-a/" + waiting.Name + ": " + test.want + "."}, advice.Refusal)
		})
	}
	f, waiting := scattered(t, func(p *corev1.Pod) { p.OwnerReferences = nil })
	advice, err := f.planner(defrag.Options{}).Advise(t.Context(), f.pods[waiting])
	require.NoError(t, err)
	assert.Equal(t, defrag.NotMovable, advice.Refusal.Reason, "it would fit if others moved")
	f.pods[waiting].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue"}}
	advice, err = f.planner(defrag.Options{}).Advise(t.Context(), f.pods[waiting])
	require.NoError(t, err)
	assert.Equal(t, defrag.NotWaiting, advice.Refusal.Reason)
}

// A move for which the allocator takes too long is no place that does not exist: there may be a plan.
func TestAMoveThatCannotBeSearchedInTime(t *testing.T) {
	const cpx = "gpu-xcp-cpx.tranche.dev"
	f := newFleetOf(t, "MI300X", 1, 8)
	f.run("node-0", cpx)
	// The replacement asks for more pieces of one GPU than it has, which the allocator tries for each
	// choice of four others.
	devices := &f.in.Templates[0].Spec.Spec.Devices
	many := *devices.Requests[0].DeepCopy()
	many.Name, many.Exactly.Count, devices.Requests[0].Exactly.Count = "many", 9, 4
	devices.Requests = append(devices.Requests, many)
	devices.Constraints = []resourceapi.DeviceConstraint{{
		Requests: []string{"many"}, MatchAttribute: ptr.To(resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID")),
	}}
	waiting := f.add("gpu-amd.tranche.dev", 1, priority(5), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-0"} })
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.NotNil(t, refusal, "%+v", plan)
	assert.Equal(t, defrag.OutOfTime, refusal.Reason, refusal)
}
