package waiting

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestChanges(t *testing.T) {
	hash := func(change func(*corev1.Pod)) uint64 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"}}
		change(p)
		return hashOf(p)
	}
	same := hash(func(*corev1.Pod) {})
	assert.Equal(t, same, hash(func(p *corev1.Pod) { p.ResourceVersion = "2" }))
	assert.NotEqual(t, same, hash(func(p *corev1.Pod) {
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
	}))

	var c changes
	of := func(o client.Object) changeSet { c.add(o); return c.take() }
	onNode := func(name string) map[string]bool { return map[string]bool{name: true} }
	assert.Equal(t, changeSet{nodes: onNode("a")}, of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	assert.Equal(t, changeSet{nodes: onNode("node-0")}, of(taint("node-0")))
	slice := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "node-0"}}}}
	assert.Equal(t, changeSet{nodes: onNode("node-0")}, of(slice))
	assert.Equal(t, changeSet{allNodes: true}, of(&resourceapi.DeviceTaintRule{}))
	assert.Equal(t, changeSet{allNodes: true, allPods: true}, of(&resourceapi.DeviceClass{}))

	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}
	ready := n.DeepCopy()
	ready.ResourceVersion, ready.Status.Conditions = "2", []corev1.NodeCondition{{Type: corev1.NodeReady}}
	h := c.handler()
	h.OnAdd(n, true)
	h.OnUpdate(n, ready)
	assert.Equal(t, changeSet{}, c.take())
	h.OnAdd(n, false)
	assert.Equal(t, changeSet{nodes: onNode("n")}, c.take())
	for _, change := range []corev1.NodeSpec{{Taints: []corev1.Taint{{Key: "a"}}}, {Unschedulable: true}} {
		ready.Spec = change
		h.OnUpdate(n, ready)
		assert.Equal(t, changeSet{nodes: onNode("n")}, c.take())
	}
	moved := taint("node-1")
	h.OnUpdate(taint("node-0"), moved)
	assert.Equal(t, changeSet{}, c.take(), "of the same version")
	moved.ResourceVersion = "2"
	h.OnUpdate(taint("node-0"), moved)
	assert.Equal(t, changeSet{nodes: map[string]bool{"node-0": true, "node-1": true}}, c.take())
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: n})
	assert.Equal(t, changeSet{nodes: onNode("n")}, c.take())
}

// The cache has what decides, and nothing else.
func TestTheCacheKeepsLittle(t *testing.T) {
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "p", UID: "u", ResourceVersion: "1", DeletionTimestamp: ptr.To(metav1.Unix(1e9, 0))},
		Spec: corev1.PodSpec{
			NodeName: "node-0", SchedulingGates: []corev1.PodSchedulingGate{{Name: "a.b/c"}}, NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "a"}},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}},
			Affinity:   &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu"}}, ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"},
		},
	}
	ofTemplate(want)
	want.Spec.InitContainers = []corev1.Container{*want.Spec.Containers[0].DeepCopy()}
	want.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	p := want.DeepCopy()
	p.Labels, p.Annotations = map[string]string{"a": "b"}, map[string]string{"much": "text"}
	p.Spec.Containers[0].Image, p.Spec.Affinity.PodAffinity = "image", &corev1.PodAffinity{}
	p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
	kept, err := trimPod(p)
	require.NoError(t, err)
	require.Equal(t, want, kept)
	p.Spec.ResourceClaims, p.Spec.InitContainers = nil, nil
	p.Spec.Containers[0].Resources.Requests = nil
	kept, err = trimPod(p)
	require.NoError(t, err)
	require.Empty(t, kept.(*corev1.Pod).Spec.Containers)

	s, err := trimSlice(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "s", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p"}, {Kind: "Node", Name: "node-0", UID: "u"}},
	}})
	require.NoError(t, err)
	require.Equal(t, metav1.ObjectMeta{Name: "s", UID: "u", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "node-0"}}}, s.(*metav1.PartialObjectMetadata).ObjectMeta)
	for _, trim := range []func(any) (any, error){trimPod, trimSlice} {
		same, err := trim("a tombstone")
		require.NoError(t, err)
		require.Equal(t, "a tombstone", same)
	}
}
