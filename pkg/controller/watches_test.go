package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}, {Type: corev1.NodeDiskPressure}}
	got, err := trimNode(n)
	require.NoError(t, err)
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: n.Labels}}
	want.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
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
