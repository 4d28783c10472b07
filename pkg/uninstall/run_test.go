package uninstall

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/clientfake"
)

func slice(node string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-slice", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: node}}},
		Spec:       resourceapi.ResourceSliceSpec{Driver: names.DriverName, NodeName: ptr.To(node)},
	}
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
	}}
}

func plugin(node string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "plugin-" + node, Labels: map[string]string{"app.kubernetes.io/component": "kubelet-plugin"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func claimOf(namespace, name, driver, device string, pods ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
		{Driver: driver, Pool: names.PoolName("node-a"), Device: device},
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod})
	}
	return c
}

// impatient is how long a test waits for what does not come.
const impatient = 300 * time.Millisecond

// run runs the hook on a cluster, with plugins that withdraw what they publish
// if obedient.
func run(t *testing.T, force bool, obedient func(*fake.Clientset), objects ...runtime.Object) (*fake.Clientset, string, error) {
	t.Helper()
	return runWith(t, force, obedient, noDefinitions(), objects...)
}

func runWith(t *testing.T, force bool, obedient func(*fake.Clientset), ours *clientfake.Client, objects ...runtime.Object) (*fake.Clientset, string, error) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "tranche-kubelet-plugin", UID: "set"}}
	client := fake.NewClientset(append(objects, set)...)
	client.PrependReactor("list", "pods", podsOfNode(client))
	if obedient != nil {
		onOrder(client, obedient)
	}
	var out bytes.Buffer
	c := configOf(t, client, ours)
	c.Force, c.Out = force, &out
	err := Run(t.Context(), c)
	return client, out.String(), err
}

// configOf is the configuration of the chart's Job, in a hurry.
func configOf(t *testing.T, client *fake.Clientset, ours *clientfake.Client) Config {
	t.Helper()
	return Config{
		Client: client, Ours: ours, Objects: metadataOf(t, client, ours), Namespace: "gpus", Release: "tranche", Revision: 7,
		ConfigMap: "tranche-uninstall", DaemonSet: "tranche-kubelet-plugin", Controller: "tranche-controller", Scheduler: "tranche-scheduler",
		Deadline: impatient, Out: &bytes.Buffer{}, Look: 10 * time.Millisecond, Settle: 50 * time.Millisecond,
	}
}

// onOrder has something happen when the plugins are told to withdraw.
func onOrder(client *fake.Clientset, happens func(*fake.Clientset)) {
	for _, verb := range []string{"create", "update"} {
		client.PrependReactor(verb, "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
			happens(client)
			return false, nil, nil
		})
	}
}

// podsOfNode lists the pods of the node that is asked for, as an API server does.
func podsOfNode(client *fake.Clientset) k8stesting.ReactionFunc {
	return func(a k8stesting.Action) (bool, runtime.Object, error) {
		name, ok := a.(k8stesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
		if !ok {
			return false, nil, nil
		}
		all, err := client.Tracker().List(a.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		list := all.(*corev1.PodList)
		list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != name })
		return true, list, nil
	}
}

// withdraw works on the tracker: the client is locked while it reacts.
func withdraw(client *fake.Clientset) {
	for _, node := range []string{"node-a", "node-b"} {
		_ = client.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), "", node+"-slice")
	}
}

func orderOn(t *testing.T, client *fake.Clientset) (names.UninstallRequest, *corev1.ConfigMap) {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("gpus").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	if len(list.Items) == 0 {
		return names.UninstallRequest{}, nil
	}
	return names.ReadUninstallRequest(list.Items[0].Data), &list.Items[0]
}

func TestNothingHeld(t *testing.T) {
	client, out, err := run(t, false, withdraw, slice("node-a"), slice("node-b"),
		claimOf("team", "other", "gpu.nvidia.com", "x", "pod"), claimOf("team", "unused", names.DriverName, "x"))
	require.NoError(t, err)
	assert.Contains(t, out, "Nothing is published any more")
	order, configMap := orderOn(t, client)
	assert.True(t, order.Active, "it stands until the plugins have ended")
	require.Len(t, configMap.OwnerReferences, 1)
	assert.Equal(t, "set", string(configMap.OwnerReferences[0].UID), "it goes with the plugins")
}

func TestTellsWhatItWaitsFor(t *testing.T) {
	client := fake.NewClientset(slice("node-a"))
	var told string
	c := configOf(t, client, noDefinitions())
	c.Progress = func(format string, args ...any) { told = fmt.Sprintf(format, args...) }
	require.Error(t, c.withdraw(t.Context(), &orderGiver{Config: &c}))
	assert.Equal(t, "Waiting until the plugins have withdrawn the GPUs; ResourceSlice node-a-slice is left, for one.", told)
}

func TestNoPlugins(t *testing.T) {
	_, _, err := run(t, false, nil)
	require.NoError(t, err, "nothing is published, so there is nothing to wait for")
}

func TestHeld(t *testing.T) {
	held := claimOf("team", "claim", names.DriverName, "gpu-0000-1b-00-0-mig-1g-10gb-6", "a", "b")
	client, _, err := run(t, false, withdraw, slice("node-a"), held, claimOf("team", "second", names.DriverName, "gpu-0000-43-00-0", "a"))
	require.Error(t, err)
	for _, part := range []string{
		"Tranche is not uninstalled", "pod team/a (claim claim) holds", "pod team/b (claim claim) holds",
		"gpu-0000-1b-00-0-mig-1g-10gb-6 on node node-a", "kubectl -n team delete pod a b\n",
		"helm -n gpus rollback tranche 7\n", "helm -n gpus upgrade tranche CHART --reuse-values --set uninstall.force=true",
	} {
		assert.Contains(t, err.Error(), part)
	}
	order, configMap := orderOn(t, client)
	assert.False(t, order.Active)
	assert.Nil(t, configMap, "the plugins were not even told")

	client, out, err := run(t, true, withdraw, slice("node-a"), held)
	require.NoError(t, err)
	assert.Contains(t, out, "pod team/a (claim claim) holds")
	order, _ = orderOn(t, client)
	assert.True(t, order.Active && order.Force)
}

// A pod may get a GPU after the first look and before the plugins see the order.
func TestHeldMeanwhile(t *testing.T) {
	done := false
	client, _, err := run(t, false, func(c *fake.Clientset) {
		withdraw(c)
		if !done {
			done = true
			_ = c.Tracker().Add(claimOf("team", "late", names.DriverName, "gpu-0000-1b-00-0", "pod"))
		}
	}, slice("node-a"))
	require.ErrorContains(t, err, "pod team/pod (claim late)")
	order, configMap := orderOn(t, client)
	require.NotNil(t, configMap)
	assert.False(t, order.Active, "the plugins go back to work")
}

// Nodes that do not answer are named, with what may be wrong.
func TestLate(t *testing.T) {
	objects := []runtime.Object{
		slice("down"), slice("bare"), slice("crashing"), slice("stuck"), slice("gone"),
		node("down", corev1.ConditionUnknown), node("bare", corev1.ConditionTrue), node("crashing", corev1.ConditionTrue), node("stuck", corev1.ConditionTrue),
		plugin("down", corev1.ConditionTrue), plugin("crashing", corev1.ConditionFalse), plugin("stuck", corev1.ConditionTrue),
	}
	client, _, err := run(t, false, nil, objects...)
	for _, part := range []string{
		"within 300ms", "node down: it is not ready", "node bare: no plugin runs there", "node gone: it is gone",
		"node crashing: its plugin does not work: kubectl -n gpus logs plugin-crashing --previous",
		"node stuck: its plugin could not release everything: kubectl -n gpus logs plugin-stuck",
		"--set uninstall.force=true",
	} {
		require.ErrorContains(t, err, part)
	}
	order, _ := orderOn(t, client)
	assert.False(t, order.Active, "the plugins go back to work")

	client, out, err := run(t, true, nil, objects...)
	require.NoError(t, err)
	assert.Contains(t, out, "node down: it is not ready")
	left, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
}

// One that is ended before its time takes its order back.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(slice("node-a"), node("node-a", corev1.ConditionTrue))
	onOrder(client, func(*fake.Clientset) { cancel() })
	c := configOf(t, client, noDefinitions())
	c.Deadline, c.Look = time.Minute, 0 // the pace is the usual one
	require.Error(t, Run(ctx, c))
	order, configMap := orderOn(t, client)
	require.NotNil(t, configMap)
	assert.False(t, order.Active)
}

// An API server answers a change of the scale with a Scale, not with the Deployment.
func TestScale(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "PATCH /apis/apps/v1/namespaces/gpus/deployments/tranche-controller/scale", r.Method+" "+r.URL.Path)
		assert.Equal(t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		assert.JSONEq(t, `{"spec":{"replicas":0}}`, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, err = io.WriteString(w, `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"tranche-controller"},"spec":{},"status":{"replicas":2}}`)
		assert.NoError(t, err)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	c := &Config{Client: client, Namespace: "gpus"}
	require.NoError(t, c.scale(t.Context(), "tranche-controller", 0))
}
