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
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/nodes"
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

var smallKind = workload.Kinds[small.Kind]

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
			pod := newPod("pod", small)
			grant, err := allocator.New(classes, slices).Allocate(t.Context(), node, test.ask(pod, smallKind))
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
	c := &controlplane.Cluster{Core: kubefake.New()}
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
	grant, err := allocator.New(classes, slices).Allocate(t.Context(), node, byClaim(newPod("pod", small), smallKind))
	require.NoError(t, err)
	grant.Claim.Status.Allocation = &grant.Result
	require.NoError(t, claims.Add(grant.Claim))
	marked(slices[1].Name)
	require.NoError(t, claims.Delete(grant.Claim))
	marked()
}

// Pods and their claims leave, also claims that a finalizer protects.
func TestDeletePod(t *testing.T) {
	c := &controlplane.Cluster{Core: kubefake.New()}
	require.NoError(t, createPod(t.Context(), c, "pod", small, byClaim))
	claims := c.Core.ResourceV1().ResourceClaims(corev1.NamespaceDefault)
	claim, err := claims.Get(t.Context(), "pod", metav1.GetOptions{})
	require.NoError(t, err)
	claim.Finalizers = []string{resourceapi.Finalizer}
	_, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, deletePod(t.Context(), c, "pod"))
	left, err := claims.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
	pods, err := c.Core.CoreV1().Pods(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, pods.Items)
}

// The extended resources are those of the chart's classes.
func TestExtendedResources(t *testing.T) {
	_, _, classes := published(t)
	known := sets.New[string]()
	for _, c := range classes {
		known.Insert(ptr.Deref(c.Spec.ExtendedResourceName, ""))
	}
	for _, k := range workload.Kinds {
		pod := newPod("pod", small)
		claim := byExtendedResource(pod, k)
		if k.Profile == "" {
			require.NotNil(t, claim, k)
			continue
		}
		assert.Nil(t, claim, k)
		assert.True(t, known.Has(string(extendedResource(k))), k)
		assert.Contains(t, pod.Spec.Containers[0].Resources.Limits, extendedResource(k))
	}
}

// The fleet follows what the scheduler does, by the claims' allocations.
func TestPlayer(t *testing.T) {
	node, slices, classes := published(t)
	l, err := fleet.Published(t.Context(), "../../../"+fleet.Chart, false)
	require.NoError(t, err)
	inv, err := models.LoadInventory(inventory)
	require.NoError(t, err)
	hardware, err := nodes.NVIDIAGPUs(t.Context(), inv, "node", t.TempDir())
	require.NoError(t, err)
	nodes.OnlyOffered(hardware)
	c := &cluster{Cluster: &controlplane.Cluster{Core: kubefake.New()}, hardware: hardware}
	asked := []workload.Claim{{Shape: small}, {Shape: workload.Shape{Kind: 7, Life: 9}}, {Shape: workload.Shape{Kind: 4}, Arrival: 5}}
	claims := fleet.Claims(asked)
	p := newPlayer(c, l, 1, claims, make([]float64, len(workload.Kinds)))
	scheduler := allocator.New(classes, slices)
	for i, claim := range claims {
		name := podName("pod", i)
		p.waiting[name] = claim
		require.NoError(t, createPod(t.Context(), c.Cluster, name, claim.Shape, byClaim))
		if i == 2 {
			break
		}
		object, err := c.Core.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		grant, err := scheduler.Allocate(t.Context(), node, object)
		require.NoError(t, err)
		require.NotNil(t, grant)
		object.Status.Allocation = &grant.Result
		_, err = c.Core.ResourceV1().ResourceClaims("default").Update(t.Context(), object, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, p.start(t.Context(), name, claim, 3, i == 1))
	}
	assert.Equal(t, []int{5, 1}, []int{p.fleet.Used, p.fleet.UsedNodes})
	assert.Equal(t, uint(0b11110), claims[1].Place.GPUs)
	assert.Equal(t, []float64{3, 0, -1}, []float64{claims[0].Started, claims[1].Started, claims[2].Started})
	s := p.sample()
	assert.InDelta(t, 4.125, s.Held, 1e-9)
	assert.InDelta(t, 0.5, s.Waiting.Sum(), 1e-9)
	require.ErrorContains(t, p.start(t.Context(), "pod-00002", claims[2], 3, true), "its claim no devices")
	require.ErrorContains(t, p.start(t.Context(), "pod-00000", claims[2], 3, true), "does not fit")
}

func TestForAllPods(t *testing.T) {
	configuration, err := forAllPods("profiles: [{schedulerName: other, plugins: {}}]")
	require.NoError(t, err)
	assert.Equal(t, []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName, "plugins": map[string]any{}}}, configuration["profiles"])
	for _, bad := range []string{"", "profiles: []", "profiles: [{}, {}]", "profiles: [1]", "["} {
		_, err := forAllPods(bad)
		require.Error(t, err, bad)
	}
	_, err = mostAllocated(extendedResources()...)(t.Context(), nil)
	require.NoError(t, err)
}

func TestReport(t *testing.T) {
	chosen := []policy{{name: "a"}, {name: "b"}}
	text := fillReport(chosen, map[string][]filled{
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
