package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/nodes"
)

// published is a node with its slices, and the chart's classes.
func published(t *testing.T) (string, []*resourceapi.ResourceSlice, []*resourceapi.DeviceClass) {
	t.Helper()
	inv, err := models.LoadInventory(inventory)
	require.NoError(t, err)
	hardware, err := nodes.NVIDIAGPUs(t.Context(), inv, "node", t.TempDir())
	require.NoError(t, err)
	names, slices, err := publish(1, hardware)
	require.NoError(t, err)
	classes, err := allocator.Classes("../../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	return names[0], slices[names[0]], classes
}

// Claims take the first GPU, or with firstAvailable the one that is marked.
func TestClaims(t *testing.T) {
	node, slices, classes := published(t)
	g := gpusOf(slices)
	require.Len(t, sets.New(mapValues(g)...), 8)
	fifth := slices[5]
	for name, test := range map[string]struct {
		ask    ask
		marked bool
		want   string
	}{
		"any":                 {byClaim, true, slices[1].Name},
		"used first, none is": {byUsedFirst, false, slices[1].Name},
		"used first":          {byUsedFirst, true, fifth.Name},
	} {
		t.Run(name, func(t *testing.T) {
			mark(fifth, test.marked)
			pod := newPod("pod")
			grant, err := allocator.New(classes, slices).Allocate(t.Context(), node, test.ask(pod))
			require.NoError(t, err)
			require.NotNil(t, grant)
			claim := grant.Claim.DeepCopy()
			claim.Status.Allocation = &grant.Result
			waiting := allocator.Claim("waiting")
			assert.Equal(t, sets.New(test.want), g.used([]*resourceapi.ResourceClaim{waiting, claim}))
			assert.Equal(t, claim.Name, *pod.Spec.ResourceClaims[0].ResourceClaimName)
			assert.Equal(t, pod.Spec.ResourceClaims[0].Name, pod.Spec.Containers[0].Resources.Claims[0].Name)
		})
	}
}

// GPUs are marked while claims hold devices of them.
func TestMarks(t *testing.T) {
	node, slices, classes := published(t)
	c := &controlplane.Cluster{Core: fake.NewClientset()}
	require.NoError(t, c.CreateSlices(t.Context(), slices))
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	m := &marks{core: c.Core, gpus: gpusOf(slices), claims: resourcelisters.NewResourceClaimLister(claims), marked: sets.New[string]()}
	marked := func(want ...string) {
		m.write(t.Context())
		require.NoError(t, m.await(t.Context(), sets.New(want...)))
		all, err := c.Core.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		var names []string
		for _, slice := range all.Items {
			if len(slice.Spec.Devices) > 0 && slice.Spec.Devices[0].Attributes[usedAttribute].BoolValue != nil {
				names = append(names, slice.Name)
			}
		}
		assert.ElementsMatch(t, want, names)
	}
	marked()
	grant, err := allocator.New(classes, slices).Allocate(t.Context(), node, byClaim(newPod("pod")))
	require.NoError(t, err)
	grant.Claim.Status.Allocation = &grant.Result
	require.NoError(t, claims.Add(grant.Claim))
	marked(slices[1].Name)
	require.NoError(t, claims.Delete(grant.Claim))
	marked()
}

// Pods and their claims leave, also claims that a finalizer protects.
func TestDeletePods(t *testing.T) {
	c := &controlplane.Cluster{Core: fake.NewClientset()}
	require.NoError(t, createPod(t.Context(), c, "pod", byClaim))
	claims := c.Core.ResourceV1().ResourceClaims(corev1.NamespaceDefault)
	claim, err := claims.Get(t.Context(), "pod", metav1.GetOptions{})
	require.NoError(t, err)
	claim.Finalizers = []string{resourceapi.Finalizer}
	_, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, deletePods(t.Context(), c))
	left, err := claims.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
	pods, err := c.Core.CoreV1().Pods(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, pods.Items)
}

// The extended resource is the class's.
func TestExtendedResource(t *testing.T) {
	_, _, classes := published(t)
	pod := newPod("pod")
	assert.Nil(t, byExtendedResource(pod))
	for _, c := range classes {
		if c.Name == class {
			require.NotNil(t, c.Spec.ExtendedResourceName)
			assert.Contains(t, pod.Spec.Containers[0].Resources.Limits, corev1.ResourceName(*c.Spec.ExtendedResourceName))
			return
		}
	}
	assert.Fail(t, "the chart has no class "+class)
}

func TestForAllPods(t *testing.T) {
	configuration, err := forAllPods("profiles: [{schedulerName: other, plugins: {}}]")
	require.NoError(t, err)
	assert.Equal(t, []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName, "plugins": map[string]any{}}}, configuration["profiles"])
	for _, bad := range []string{"", "profiles: []", "profiles: [{}, {}]", "profiles: [1]", "["} {
		_, err := forAllPods(bad)
		require.Error(t, err, bad)
	}
	_, err = mostAllocated(t.Context(), nil)
	require.NoError(t, err)
}

func TestReport(t *testing.T) {
	chosen := []way{{name: "a"}, {name: "b"}}
	text := report(chosen, map[string][]filled{
		"a": {{gpus: 30, nodes: 5, cpu: 40 * time.Millisecond}, {gpus: 29, nodes: 5, cpu: 38 * time.Millisecond}},
		"b": {{gpus: 100, nodes: 100, cpu: time.Second, sliceWrites: 0.15}},
	})
	assert.Contains(t, text, "| a | 29–30 | 5 | 38–40 ms | 0.00 |\n| b | 100 | 100 | 1000 ms | 0.15 |\n")
}

func mapValues(g gpus) (all []string) {
	for _, name := range g {
		all = append(all, name)
	}
	return all
}
