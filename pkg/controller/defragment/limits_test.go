package defragment

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// freezeCache makes the cache keep the GPUNodes that it has now.
func (w *world) freezeCache() {
	w.t.Helper()
	var list v1beta1.GPUNodeList
	require.NoError(w.t, w.api.List(w.t.Context(), &list))
	w.cached = &list
}

// A second attempt does not begin because the cache does not have the first one yet.
func TestOneAttemptWithALateCache(t *testing.T) {
	w := newWorld(t)
	w.pod(small, "node-0")
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	w.pod(large, "")
	w.freezeCache()
	require.True(t, w.pass(time.Minute))
	require.NotNil(t, w.attempt("node-1"))
	w.pin(w.pod(large, ""), "node-0")
	assert.False(t, w.pass(2*time.Minute))
	assert.Nil(t, w.attempt("node-0"))
}

// The hourly limit counts evictions that the cache does not have yet.
func TestHourlyLimitWithALateCache(t *testing.T) {
	w := newWorld(t)
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	w.pod(large, "")
	w.freezeCache()
	w.change("node-0", func(a *v1beta1.Defragmentation) {
		ended := metav1.NewMicroTime(w.clock.Now())
		a.ID, a.State, a.EndTime, a.EvictionTimes = "old", v1beta1.DefragmentationSucceeded, &ended, []metav1.MicroTime{ended, ended, ended}
	})
	assert.False(t, w.pass(time.Minute))
	assert.Nil(t, w.attempt("node-1"))
}

// An attempt that cannot be ended does not keep room from other pods: a compromised node could change its
// GPUNode all the time.
func TestAttemptThatCannotBeEnded(t *testing.T) {
	w, _ := scattered(t)
	w.node("node-2")
	w.fail = func(node string) error {
		if node == "node-1" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "gpunodes"}, node, nil)
		}
		return nil
	}
	w.pod(small, "node-2")
	other := w.podIn("team-b", large)
	w.clock.SetTime(w.clock.Now().Add(attemptTimeout))
	busy, err := w.d.Step(t.Context())
	require.NoError(t, err)
	require.True(t, busy)
	a := w.attempt("node-2")
	require.NotNil(t, a)
	assert.Nil(t, w.attempt("node-1").EndTime)
	assert.NotEqual(t, "node-1", a.Moves[0].ToNodeName, "a node with an attempt is not used")
	assert.Equal(t, other, a.Pod.Name, "pods of the namespace of the other attempt are left alone for a while")

	w.fail = nil
	require.True(t, w.pass(time.Second))
	assert.NotNil(t, w.attempt("node-1").EndTime)
}

// Pods that wait for something else do not use up the limit of pods for which plans are made.
func TestPodsWithoutDevicesAreSkipped(t *testing.T) {
	w := newWorld(t)
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	for range 2 * maxWaitingPods {
		pod := w.get(w.pod(large, ""))
		pod.Spec.ResourceClaims = nil
		require.NoError(t, w.api.Update(t.Context(), pod))
	}
	waiting := w.pod(large, "")
	require.True(t, w.pass(time.Minute))
	for _, node := range []string{"node-0", "node-1"} {
		if a := w.attempt(node); a != nil {
			assert.Equal(t, waiting, a.Pod.Name)
		}
	}

	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
	assert.False(t, mayRequestDevices(pod))
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: {}}
	assert.False(t, mayRequestDevices(pod))
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": {}}
	assert.True(t, mayRequestDevices(pod))
}

// The scheduler makes room for a pod by preemption: nobody is moved for it as well.
func TestPodsWithANominatedNodeAreSkipped(t *testing.T) {
	w := newWorld(t)
	pod := w.get(w.scatter())
	pod.Status.NominatedNodeName = "node-0"
	require.NoError(t, w.api.Status().Update(t.Context(), pod))
	w.pass(2 * time.Minute)
	assert.Nil(t, w.attempt("node-0"))
	assert.Nil(t, w.attempt("node-1"))

	pod.Status.NominatedNodeName = ""
	require.NoError(t, w.api.Status().Update(t.Context(), pod))
	require.True(t, w.pass(2*time.Minute))
	assert.NotNil(t, w.attempt("node-1"))
}

// Room is made for pods for which the scheduler has found no node.
func TestUnschedulable(t *testing.T) {
	for name, test := range map[string]struct {
		condition corev1.PodCondition
		want      bool
	}{
		"no node":           {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}, true},
		"gated":             {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}, false},
		"a node":            {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: corev1.PodReasonUnschedulable}, false},
		"another condition": {corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}, false},
	} {
		_, waits := unschedulableSince(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{test.condition}}})
		assert.Equal(t, test.want, waits, name)
	}
}

func TestAvailableNodes(t *testing.T) {
	now := time.Unix(2e9, 0)
	at := func(ago time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(now.Add(-ago))) }
	for name, test := range map[string]struct {
		state   v1beta1.State
		attempt *v1beta1.Defragmentation
		want    bool
	}{
		"new":                   {"", nil, true},
		"failed switch":         {v1beta1.Failed, nil, true},
		"switching":             {v1beta1.Draining, nil, false},
		"succeeded":             {v1beta1.Idle, &v1beta1.Defragmentation{State: v1beta1.DefragmentationSucceeded, EndTime: at(0)}, true},
		"aborted recently":      {v1beta1.Idle, &v1beta1.Defragmentation{State: v1beta1.DefragmentationAborted, EndTime: at(time.Minute)}, false},
		"aborted long ago":      {v1beta1.Idle, &v1beta1.Defragmentation{State: v1beta1.DefragmentationAborted, EndTime: at(time.Hour)}, true},
		"aborted in vain":       {v1beta1.Idle, &v1beta1.Defragmentation{State: v1beta1.DefragmentationAborted, EndTime: at(11 * time.Minute), Moves: []v1beta1.DefragmentationMove{{}, {EvictionTime: at(0)}}}, false},
		"aborted before it":     {v1beta1.Idle, &v1beta1.Defragmentation{State: v1beta1.DefragmentationAborted, EndTime: at(11 * time.Minute), Moves: []v1beta1.DefragmentationMove{{}}}, true},
		"with an attempt":       {v1beta1.Idle, &v1beta1.Defragmentation{DeadlineTime: *at(-time.Minute)}, false},
		"with one of yesterday": {v1beta1.Idle, &v1beta1.Defragmentation{DeadlineTime: *at(24 * time.Hour)}, false},
	} {
		node := &v1beta1.GPUNode{Status: v1beta1.GPUNodeStatus{State: test.state, Defragmentation: test.attempt}}
		assert.Equal(t, test.want, isAvailable(node, now), name)
	}
}

// A plan that a GPUNode cannot hold does not keep room from other pods.
func TestPlanThatIsInvalid(t *testing.T) {
	w := newWorld(t)
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	w.pod(large, "")
	second := w.pod(large, "")
	w.fail = func(node string) error {
		w.fail = nil
		return apierrors.NewInvalid(schema.GroupKind{Kind: "GPUNode"}, node, nil)
	}
	require.True(t, w.pass(time.Minute))
	attempts := []*v1beta1.Defragmentation{w.attempt("node-0"), w.attempt("node-1")}
	for _, a := range attempts {
		if a != nil {
			assert.Equal(t, second, a.Pod.Name)
		}
	}
}

// A search reads a limited number of devices, and the next one continues with the next nodes.
func TestSearchContinuesWithTheNextNodes(t *testing.T) {
	w := newWorld(t)
	w.node("node-2")
	w.create(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-without-a-node"}})
	for i := range 3 {
		w.pod(large, fmt.Sprint("node-", i))
	}
	w.pod(large, "")
	w.d.maxDevices = 1
	var searched []string
	for range 4 {
		require.False(t, w.pass(time.Minute))
		searched = append(searched, w.d.lastNode)
	}
	assert.Equal(t, []string{"node-0", "node-1", "node-2", "node-0"}, searched)
	require.False(t, w.pass(searchInterval-time.Second))
	assert.Equal(t, "node-0", w.d.lastNode, "it is not searched all the time")
	assert.NotContains(t, w.listed, "*v1.PodList  ", "all pods are read only for a plan")
}

// Of claims, only those are kept that a plan needs.
func TestNeededClaims(t *testing.T) {
	w := newWorld(t)
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	waiting := w.pod(large, "")
	w.pod(large, "")
	w.create(&resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "nic"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "nic.example.com", Pool: "node-0", Device: "nic"}},
		}}},
	})
	in, err := w.d.readForSearch(t.Context(), []string{"node-0"}, []*corev1.Pod{w.get(waiting)})
	require.NoError(t, err)
	var claims []string
	for _, c := range in.Claims {
		claims = append(claims, c.Name)
	}
	assert.ElementsMatch(t, []string{"pod-0", waiting}, claims)

	in.Slices = append(in.Slices, resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: "nic.example.com", Pool: resourceapi.ResourcePool{Name: "node-0"}}})
	needed := neededBy(in, nil)
	var nic resourceapi.ResourceClaim
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: team, Name: "nic"}, &nic))
	assert.True(t, needed.claim(&nic))
	nic.Status.Allocation.Devices.Results[0].Driver = names.DriverName
	assert.True(t, needed.claim(&nic))
	nic.Status.Allocation.Devices.Results[0].Pool = "node-1"
	assert.False(t, needed.claim(&nic))
}

// A plan needs what the scheduler looks at.
func TestTrimmedPods(t *testing.T) {
	resources := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": {}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			NodeName:       "node-0",
			Containers:     []corev1.Container{{Name: "main", Resources: resources, Ports: []corev1.ContainerPort{{HostPort: 80}}}},
			InitContainers: []corev1.Container{{Name: "beside", Resources: resources, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
		},
		Status: corev1.PodStatus{
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", Resources: &resources, AllocatedResources: resources.Requests}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "beside", Resources: &resources}},
		},
	}
	full := pod.DeepCopy()
	full.Annotations, full.ManagedFields = map[string]string{"much": "text"}, []metav1.ManagedFieldsEntry{{}}
	full.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}}
	full.Status.ContainerStatuses[0].ImageID = "image"
	full.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	full.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{}}
	assert.Equal(t, pod, trimPod(full))
}

func TestEachPage(t *testing.T) {
	w := newWorld(t)
	reader := interceptor.NewClient(w.api, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			assert.EqualValues(t, pageSize, o.Limit)
			if o.Namespace != team {
				return assert.AnError
			}
			n, _ := strconv.Atoi(o.Continue)
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n), ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
			list.(*corev1.PodList).Items = []corev1.Pod{pod}
			if n == 0 {
				list.SetContinue(strconv.Itoa(n + 1))
			}
			return nil
		},
	})
	var names []string
	require.NoError(t, each(t.Context(), reader, &corev1.PodList{}, func(pod *corev1.Pod) {
		names = append(names, pod.Name)
		assert.Empty(t, pod.ManagedFields)
	}, client.InNamespace(team)))
	assert.Equal(t, []string{"0", "1"}, names)
	require.ErrorIs(t, each(t.Context(), reader, &corev1.PodList{}, func(*corev1.Pod) {}), assert.AnError)
}

// Only Jobs whose pods may be moved are read.
func TestJobs(t *testing.T) {
	w := newWorld(t)
	pod := func(job, label string, status corev1.PodStatus) corev1.Pod {
		w.create(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: job}})
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, Controller: ptr.To(true)}}}, Status: status}
		if label != "" {
			p.Labels = map[string]string{names.LabelDefragmentation: label}
		}
		return p
	}
	extended := corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}}
	in := &defrag.Input{Pods: []corev1.Pod{
		pod("no-claims", "", corev1.PodStatus{}), pod("extended", "", extended), pod("forbidden", "never", extended), pod("allowed", names.ValueTrue, corev1.PodStatus{}), pod("gone", names.ValueTrue, extended),
	}}
	in.Pods[3].Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	require.NoError(t, w.api.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "gone"}}))
	read := func() (names []string) {
		in.Jobs = nil
		require.NoError(t, w.d.readJobs(t.Context(), in))
		for _, j := range in.Jobs {
			names = append(names, j.Name)
		}
		return names
	}
	assert.Equal(t, []string{"allowed"}, read())
	in.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: map[string]string{names.LabelDefragmentation: names.ValueTrue}}}}
	assert.Equal(t, []string{"extended", "allowed"}, read())
	w.calls.Failing = "get *v1.Job"
	require.ErrorContains(t, w.d.readJobs(t.Context(), in), "read Job team-a/extended: ")
}
