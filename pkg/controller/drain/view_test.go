package drain

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/calls"
)

// serving is a drainer whose API server and cache have these objects.
func serving(c *calls.Calls, cached []client.Object, objects ...client.Object) *Drainer {
	build := func(objects []client.Object) client.WithWatch {
		return c.Client(fake.NewClientBuilder().WithObjects(objects...).
			WithIndex(&resourceapi.ResourceClaim{}, NodeIndex, NodesOf).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build())
	}
	return &Drainer{Client: build(cached), Reader: build(objects), Clock: clocktesting.NewFakePassiveClock(noon), Count: func(string) {}}
}

// podWith is a pod on a node that uses claims.
func podWith(name, node string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{NodeName: node}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
	}
	return pod
}

// claimOf is a claim that has devices of node-a and is reserved for pods.
func claimOf(name string, devices []string, pods ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}
	for _, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Driver: names.DriverName, Pool: names.PoolName("node-a"), Device: d,
		})
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID("uid-" + p)})
	}
	return c
}

const part, other = gpuA + "-mig-1g-10gb-0", "gpu-0000-02-00-0"

// Who holds devices of the GPUs that change, by the cache, and by the API server where the cache is late.
func TestHolders(t *testing.T) {
	var c calls.Calls
	ended := podWith("ended", "node-a", "late")
	ended.Status.Phase = corev1.PodSucceeded
	leaving := podWith("leaving", "node-a", "of-two")
	leaving.DeletionTimestamp, leaving.DeletionGracePeriodSeconds, leaving.Finalizers = ptr.To(metav1.NewTime(noon)), ptr.To[int64](7), []string{"f"}
	slow := podWith("slow", "node-a", "of-two")
	slow.Spec.TerminationGracePeriodSeconds = ptr.To[int64](9)
	// The cache has "late" without its devices, and "new" not at all.
	late, of := claimOf("late", []string{part}), claimOf("of-two", []string{part, other, part}, "slow", "leaving", "was-here", "comes")
	late.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "late", UID: "uid-late"}}
	of.Status.ReservedFor = append(of.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "train", UID: "g"},
		resourceapi.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "pods", Name: "slow", UID: "uid-slow"})
	of.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "slow", UID: "uid-slow"}}
	taken := claimOf("new", []string{part})
	taken.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "first", UID: "uid-first"}}
	replaced := podWith("was-here", "node-a")
	replaced.UID = "another"
	unallocated := late.DeepCopy()
	unallocated.Status.Allocation = nil
	elsewhere := claimOf("elsewhere", []string{part})
	elsewhere.Status.Allocation.Devices.Results[0].Pool = names.PoolName("node-b")
	monitor := claimOf("monitor", []string{gpuA + "-monitor"}, "slow")
	monitor.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	d := serving(&c, []client.Object{unallocated, of, elsewhere, monitor, claimOf("stale", nil), claimOf("keeps", []string{gpuA + "-kept"}, "slow"), claimOf("not-changed", []string{other}, "slow")},
		late, taken, elsewhere, podWith("late", "node-a", "late"), ended, leaving, slow, replaced, podWith("comes", ""),
		podWith("has-new", "node-a", "new", "elsewhere", "deleted", "stale"), podWith("on-b", "node-b", "of-two"))
	d.refusals.note("uid-slow", "a budget", noon, 0)
	holders, err := d.On("node-a").Holders(t.Context(), []string{gpuA}, map[string]bool{gpuA + "-kept": true})
	require.NoError(t, err)
	found := map[string]Holder{}
	var keys []string
	for _, h := range holders {
		found[h.key()] = h
		keys = append(keys, h.key())
	}
	assert.Equal(t, []string{
		"podgroups team/train team/of-two", "pods team/slow team/of-two", "team/comes team/of-two", "team/has-new team/new", "team/late team/late", "team/leaving team/of-two", "team/slow team/monitor", "team/slow team/of-two",
	}, keys)
	assert.Equal(t, []string{part}, found["team/comes team/of-two"].Devices, "each once, and of these GPUs")
	assert.Equal(t, "podgroups team/train", found["podgroups team/train team/of-two"].Other)
	assert.False(t, found["team/late team/late"].Outlives, "it was made for the pod")
	assert.True(t, found["team/slow team/of-two"].Outlives, "it is reserved for others, too")
	assert.True(t, found["team/has-new team/new"].Outlives, "it was made for another pod")
	assert.Equal(t, "a budget", found["team/slow team/of-two"].Pod.Refused)
	assert.Equal(t, []bool{true, false}, []bool{found["team/slow team/monitor"].Admin, found["team/slow team/of-two"].Admin})
	assert.EqualValues(t, 9, found["team/slow team/of-two"].Pod.Grace)
	leaver := found["team/leaving team/of-two"].Pod
	assert.True(t, leaver.Ending.Equal(noon))
	assert.EqualValues(t, 7, leaver.Grace)
	assert.Equal(t, []string{"f"}, leaver.Finalizers)

	for what, message := range map[string]string{
		"list *v1.PodList": "list the pods of node node-a: ", "list *v1.ResourceClaimList": "list the ResourceClaims that have devices of node node-a: ",
		"get *v1.Pod": "read pod team/was-here, which holds a GPU: ", "get *v1.ResourceClaim": "of a pod on node node-a: ",
	} {
		c.Failing = what
		_, err := d.On("node-a").Holders(t.Context(), []string{gpuA}, nil)
		require.ErrorContains(t, err, message+calls.Err.Error())
	}
	c.Failing = "list *v1.PodList"
	_, err = serving(&c, nil).On("node-a").Holders(t.Context(), []string{gpuA}, nil)
	require.Error(t, err, "the cache may lack all claims")
}

// Only pods of DaemonSets in the namespaces of the configuration are waited for.
func TestMonitoring(t *testing.T) {
	var c calls.Calls
	watching := func(name, namespace, kind, label string) *corev1.Pod {
		pod := podWith(name, "node-a")
		pod.Namespace, pod.Spec.NodeSelector = namespace, map[string]string{label: "true", "arch": "amd64"}
		if kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "x", Controller: ptr.To(true)}}
		}
		return pod
	}
	over := watching("over", "gpu", "DaemonSet", "dcgm")
	over.Status.Phase = corev1.PodFailed
	d := serving(&c, nil, watching("g", "gpu", "DaemonSet", "dcgm"), watching("h", "gpu", "DaemonSet", "nfd"), watching("b", "gpu", "DaemonSet", "dcgm"), watching("a", "gpu", "DaemonSet", "dcgm"), watching("c", "team", "DaemonSet", "dcgm"),
		watching("d", "gpu", "ReplicaSet", "dcgm"), watching("e", "gpu", "", "dcgm"), watching("f", "gpu", "DaemonSet", "other"), over)
	left, err := d.On("node-a").Monitoring(t.Context(), map[string]string{"dcgm": "true", "nfd": "true"}, []string{"gpu"})
	require.NoError(t, err)
	assert.Equal(t, []string{"gpu/a", "gpu/b", "gpu/g", "gpu/h"}, left)
	c.Failing = "list *v1.PodList"
	left, err = d.On("node-a").Monitoring(t.Context(), nil, []string{"gpu"})
	require.NoError(t, err, "nothing is paused")
	assert.Empty(t, left)
	_, err = d.On("node-a").Monitoring(t.Context(), map[string]string{"dcgm": "true"}, []string{"gpu"})
	require.Error(t, err)
}

// Whether a pod that could not be evicted still cannot.
func TestStillBlocks(t *testing.T) {
	ending, over := podWith("web", "node-a"), podWith("web", "node-a")
	ending.DeletionTimestamp, ending.Finalizers = ptr.To(metav1.NewTime(noon)), []string{"f"}
	over.Status.Phase = corev1.PodFailed
	again := podWith("web", "node-a")
	again.UID = "another"
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		fails   string
		answer  error
		message string
		err     string
	}{
		"gone":              {},
		"another":           {pod: again, answer: budget("no")},
		"unread":            {pod: ending, fails: "get *v1.Pod", err: "read pod team/web, which could not be evicted: " + calls.Err.Error()},
		"it may now":        {pod: podWith("web", "node-a")},
		"it still may not":  {pod: podWith("web", "node-a"), answer: budget("no"), message: "no"},
		"nobody answers":    {pod: podWith("web", "node-a"), answer: errors.New("away"), err: "dry-run the eviction of pod team/web, which holds a GPU that changes: away"},
		"its name is taken": {pod: podWith("web", "node-a"), answer: apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("uid"))},
		"it ends":           {pod: ending, message: "it is ending, and has not ended yet"},
		"it has ended":      {pod: over, answer: budget("no")},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if tt.pod != nil {
				objects = append(objects, tt.pod)
			}
			d := serving(&calls.Calls{Failing: tt.fails}, nil, objects...)
			d.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, eviction client.Object, opts ...client.SubResourceCreateOption) error {
					assert.Equal(t, []string{metav1.DryRunAll}, (&client.SubResourceCreateOptions{}).ApplyOptions(opts).DryRun, "it only asks")
					assert.Equal(t, []string{metav1.DryRunAll}, eviction.(*policyv1.Eviction).DeleteOptions.DryRun)
					return tt.answer
				},
			})
			b := &v1beta1.Blocker{Kind: v1beta1.BlockerPod, Namespace: "team", Name: "web", UID: "uid-web", Message: "before"}
			still, err := d.StillBlocks(t.Context(), b, false)
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			if tt.message == "" {
				assert.Nil(t, still)
				return
			}
			want := *b
			want.Message = tt.message
			assert.Equal(t, &want, still)
			assert.Equal(t, "before", b.Message)
		})
	}
}

// Pods are evicted before monitors, and a refused one is asked again later.
func TestOrderOfEvictions(t *testing.T) {
	var asked []string
	var answer error
	var counted []string
	dry := false
	clock := clocktesting.NewFakePassiveClock(noon)
	d := &Drainer{Clock: clock, Count: func(outcome string) { counted = append(counted, outcome) }, Client: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, pod, eviction client.Object, _ ...client.SubResourceCreateOption) error {
			e := eviction.(*policyv1.Eviction)
			assert.Equal(t, pod.GetUID(), *e.DeleteOptions.Preconditions.UID)
			assert.Equal(t, dry, len(e.DeleteOptions.DryRun) > 0)
			asked = append(asked, pod.GetName())
			return answer
		},
		Delete: func(_ context.Context, _ client.WithWatch, pod client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			assert.Equal(t, pod.GetUID(), *options.Preconditions.UID)
			asked = append(asked, "delete "+pod.GetName())
			if len(options.DryRun) > 0 {
				asked = append(asked, "in a dry run")
			}
			return answer
		},
	})}
	evict := func(force bool, holders ...Holder) []string {
		asked = nil
		_, err := d.Evict(t.Context(), holders, force)
		require.NoError(t, err)
		return asked
	}
	web, monitor := webPod(), webPod()
	monitor.Admin, monitor.Pod = true, &Pod{NamespacedName: types.NamespacedName{Namespace: "gpu", Name: "dcgm"}, UID: "u2"}
	answer = budget("no")
	assert.Equal(t, []string{"web"}, evict(false, monitor, web))
	assert.Equal(t, []string{"dcgm"}, evict(false, monitor))
	assert.Empty(t, evict(false, web), "it was refused just now")
	clock.SetTime(noon.Add(2 * time.Second))
	assert.Equal(t, []string{"web"}, evict(false, web))
	answer = nil
	assert.Equal(t, []string{"delete web"}, evict(true, web), "force does not wait")
	assert.Empty(t, d.refusals.refused("u1"), "it leaves")
	assert.Equal(t, []string{names.EvictionRefused, names.EvictionRefused, names.EvictionRefused, names.EvictionForced}, counted)

	why, err := d.cannotLeave(t.Context(), web.Pod, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"", "delete web", "delete web", "in a dry run"}, append([]string{why}, asked...))
	answer = budget("no")
	why, err = d.Ask(t.Context(), web.Pod, false)
	require.NoError(t, err)
	assert.Equal(t, "no", why)
	answer = errors.New("away")
	_, err = d.Ask(t.Context(), web.Pod, false)
	require.EqualError(t, err, "evict pod team/web: away")
	dry = true
	_, err = d.Blockers(t.Context(), []Holder{web}, false)
	require.ErrorContains(t, err, "away")
}

// What a claim asks for is kept until it has it.
func TestClassesOfAClaim(t *testing.T) {
	c := claimOf("c", nil)
	c.Status.Allocation, c.OwnerReferences = nil, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", UID: "u"}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{
		{Name: "a", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "y"}},
		{Name: "b", FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "z"}, {DeviceClassName: "x"}, {DeviceClassName: "y"}}},
	}
	assert.Equal(t, []string{"x", "y", "z"}, Classes(c))
	assert.True(t, OfPod(c))
	trimmed, err := TrimClaim(c)
	require.NoError(t, err)
	assert.Equal(t, Classes(c), Classes(trimmed.(*resourceapi.ResourceClaim)))
	c.OwnerReferences = nil
	assert.False(t, OfPod(c))
	assert.Empty(t, useOf(c, "node-a", []string{gpuA}, nil).devices)
	both := claimOf("c", []string{gpuA + "-mig-2g-20gb-0", part, gpuA + "-monitor"})
	for i := range both.Status.Allocation.Devices.Results {
		both.Status.Allocation.Devices.Results[i].AdminAccess = ptr.To(true)
	}
	assert.Equal(t, use{claim: both, devices: []string{part, gpuA + "-mig-2g-20gb-0", gpuA + "-monitor"}}, useOf(both, "node-a", []string{gpuA}, nil), "a monitor has no partitions")
	foreign := claimOf("c", []string{part})
	foreign.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	assert.Empty(t, useOf(foreign, "node-a", []string{gpuA}, nil).devices)
}
