package controller

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

func TestWhatWakesWhom(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	r := w.r
	node := func(name string, change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, c := range change {
			c(n)
		}
		return n
	}
	claim := &resourceapi.ResourceClaim{}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: names.DriverName, Pool: "node-a", Device: gpuA}, {Driver: names.DriverName, Pool: "node-b", Device: gpuA}, {Driver: "other", Pool: "node-c"},
	}}}
	ctx := t.Context()
	assert.Len(t, r.requestsForNode(ctx, node("node-a")), 1)
	assert.Empty(t, r.requestsForNode(ctx, node("cpu-only")))
	assert.Len(t, r.requestsForNode(ctx, node("cpu-only", func(n *corev1.Node) { n.Labels = map[string]string{DefaultPauseLabels[0]: names.PausedValue} })), 1)
	assert.Empty(t, r.requestsForNode(ctx, claim))
	assert.Len(t, r.requestsForProfile(ctx, nil), 1)
	assert.Empty(t, r.requestsForClaim(ctx, claim), "no node waits for it")
	g := w.gpuNode("node-a")
	g.Status.State, g.Status.Switch = v1beta1.Draining, &v1beta1.Switch{GPUs: []string{gpuA}}
	g.Status.Switch.To.Source, g.Status.Switch.From.Source = v1beta1.FromSpec, v1beta1.FromSpec
	require.NoError(t, w.api.Status().Update(ctx, g))
	assert.Equal(t, "node-a", r.requestsForClaim(ctx, claim)[0].Name)
	assert.Len(t, r.requestsForClaim(ctx, claim), 1)
}

func TestTheCachesKeepLittle(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", ResourceVersion: "1", Labels: map[string]string{names.LabelProfile: "cpx", "kubernetes.io/hostname": "a"},
		Annotations: map[string]string{"much": "text"},
	}}
	n.Spec.Taints, n.Spec.Unschedulable = []corev1.Taint{{Key: "a"}}, true
	n.Status.Images = make([]corev1.ContainerImage, 50)
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("4")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}, {Type: corev1.NodeDiskPressure}}
	got, err := trimNode(n)
	require.NoError(t, err)
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: n.Labels}}
	want.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	want.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")} // device plugins
	want.Spec.Taints, want.Spec.Unschedulable = n.Spec.Taints, true
	assert.Equal(t, want, got)
	same, err := trimNode("a tombstone")
	require.NoError(t, err)
	assert.Equal(t, "a tombstone", same)
}

// Nodes report their status every few minutes. That changes no decision.
func TestWhatMattersToPlans(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: map[string]string{"pool": "a"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		change(n)
		return n
	}
	before := node(func(*corev1.Node) {})
	assert.False(t, matters(before, node(func(n *corev1.Node) { n.ResourceVersion = "2" })))
	assert.True(t, matters(before, node(func(n *corev1.Node) { n.Labels["pool"] = "b" })))
	assert.True(t, matters(before, node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })))
	gpuNode := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	assert.False(t, matters(gpuNode, gpuNode))
	assert.True(t, matters(gpuNode, &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}}))
}

// What the program asks itself for waits until the controller has started, and then has its priority.
func TestRequestsOfTheProgram(t *testing.T) {
	var q requests
	q.Add(priorityqueue.AddOpts{}, requestFor("node-a"))
	items := priorityqueue.New[reconcile.Request]("test")
	defer items.ShutDown()
	require.NoError(t, q.Source().Start(t.Context(), items))
	assert.Zero(t, items.Len(), "the controller begins with everything")
	q.decide()
	q.wake("node-a")
	got, priority, _ := items.GetWithPriority()
	assert.Equal(t, requestFor("node-a"), got)
	assert.Equal(t, handler.LowPriority, priority)

	plain := workqueue.NewTypedRateLimitingQueue(retries())
	defer plain.ShutDown()
	require.NoError(t, q.Source().Start(t.Context(), plain))
	q.wake("node-b")
	now, _ := plain.Get()
	assert.Equal(t, requestFor("node-b"), now)
}

// Objects that are there at the start wake nobody: all nodes are reconciled then.
func TestObjectsThatComeLater(t *testing.T) {
	var asked []string
	of := afterStart(func(_ context.Context, o client.Object) []reconcile.Request {
		asked = append(asked, o.GetName())
		return nil
	})
	named := func(name string) client.Object {
		return &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	of.Create(t.Context(), event.CreateEvent{Object: named("a"), IsInInitialList: true}, nil)
	of.Create(t.Context(), event.CreateEvent{Object: named("b")}, nil)
	of.Update(t.Context(), event.UpdateEvent{ObjectOld: named("c"), ObjectNew: named("c")}, nil)
	of.Delete(t.Context(), event.DeleteEvent{Object: named("d")}, nil)
	assert.Equal(t, []string{"b", "c", "d"}, slices.Compact(asked))
}
