package uninstall

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
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
	client := kubefake.New(append(objects, set)...)
	if obedient != nil {
		onDelete(client, obedient)
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
		DaemonSet: "tranche-kubelet-plugin", Controller: "tranche-controller", Scheduler: "tranche-scheduler",
		Deadline: impatient, Out: &bytes.Buffer{}, Look: 10 * time.Millisecond,
	}
}

// onDelete has something happen when the DaemonSet is deleted.
func onDelete(client *fake.Clientset, happens func(*fake.Clientset)) {
	clientfake.React(&client.Fake, "delete", "daemonsets", func(k8stesting.Action) (bool, runtime.Object, error) {
		happens(client)
		return false, nil, nil
	})
}

// withdraw works on the tracker: the client is locked while it reacts.
func withdraw(client *fake.Clientset) {
	for _, node := range []string{"node-a", "node-b"} {
		_ = client.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), "", node+"-slice")
	}
}

// hasPlugins reports whether the DaemonSet is there.
func hasPlugins(t *testing.T, client *fake.Clientset) bool {
	t.Helper()
	list, err := client.AppsV1().DaemonSets("gpus").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return len(list.Items) > 0
}

func TestNothingHeld(t *testing.T) {
	client, out, err := run(t, false, withdraw, slice("node-a"), slice("node-b"),
		node("node-a", corev1.ConditionTrue), plugin("node-a", corev1.ConditionTrue),
		claimOf("team", "other", "gpu.nvidia.com", "x", "pod"), claimOf("team", "unused", names.DriverName, "x"))
	require.NoError(t, err)
	assert.Contains(t, out, "No plugin runs any more, and the nodes are clean.\n")
	assert.False(t, hasPlugins(t, client))
	for _, a := range client.Actions() {
		if d, ok := a.(k8stesting.DeleteAction); ok && a.GetResource().Resource == "daemonsets" {
			assert.Equal(t, metav1.DeletePropagationForeground, *d.GetDeleteOptions().PropagationPolicy, "the plugins see that it is being deleted")
		}
	}
}

func TestTellsWhatItWaitsFor(t *testing.T) {
	client := kubefake.New(slice("node-a"), node("node-a", corev1.ConditionTrue))
	var told string
	c := configOf(t, client, noDefinitions())
	c.Progress = func(format string, args ...any) { told = fmt.Sprintf(format, args...) }
	require.Error(t, c.removePlugins(t.Context()))
	assert.Equal(t, "Waiting until these are gone: node-a-slice.", told)
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
		"helm -n gpus rollback tranche 7\n", "helm -n gpus upgrade tranche CHART --reset-then-reuse-values --set uninstall.force=true",
	} {
		assert.Contains(t, err.Error(), part)
	}
	for _, a := range client.Actions() {
		assert.Contains(t, []string{"list", "get"}, a.GetVerb(), "nothing is changed")
	}

	client, out, err := run(t, true, withdraw, slice("node-a"), held)
	require.NoError(t, err)
	assert.Contains(t, out, "uninstall.force is set, so Tranche is uninstalled although GPUs are held:\n  pod team/a (claim claim) holds")
	assert.False(t, hasPlugins(t, client))
}

// Of many claims that hold GPUs some are named, in the order of their names, with commands that end the holders.
func TestManyHolders(t *testing.T) {
	claims := []resourceapi.ResourceClaim{*claimOf("team", "group", names.DriverName, "gpu-a"), *claimOf("a", "other", names.DriverName, "gpu-b", "pod")}
	claims[0].Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "workers"}}
	for i := range most + 1 {
		claims = append(claims, *claimOf("team", fmt.Sprintf("c-%02d", most-i), names.DriverName, "gpu", fmt.Sprintf("pod-%02d", most-i)))
	}
	holders := findHolders(claims)
	said := describe(holders)
	assert.True(t, strings.HasPrefix(said, "  pod a/pod (claim other) holds\n      gpu-b on node node-a\n  pod team/pod-00 (claim c-00) holds\n      gpu on node node-a\n"), said)
	assert.True(t, strings.HasSuffix(said, "  pod team/pod-48 (claim c-48) holds\n      gpu on node node-a\n  … and 3 more claims\n"), said)
	assert.NotContains(t, describe(holders[:most]), "more claims")
	ends := strings.Split(commands(holders), "\n")
	assert.Equal(t, []string{"      kubectl -n a delete pod pod", "      kubectl -n team delete podgroup.scheduling.k8s.io workers", ""}, []string{ends[0], ends[2], ends[3]})
	assert.True(t, strings.HasPrefix(ends[1], "      kubectl -n team delete pod pod-00 pod-01 "), ends[1])
	assert.True(t, strings.HasSuffix(ends[1], " pod-49 …"), ends[1])
	assert.NotContains(t, commands(holders[:most]), "…")
}

// A pod may get a GPU after the first look and before the plugin of its node ends.
func TestHeldMeanwhile(t *testing.T) {
	_, _, err := run(t, false, func(c *fake.Clientset) {
		withdraw(c)
		_ = c.Tracker().Add(claimOf("team", "late", names.DriverName, "gpu-0000-1b-00-0", "pod"))
	}, slice("node-a"))
	require.ErrorContains(t, err, "cannot terminate until Tranche is installed again")
	require.ErrorContains(t, err, "pod team/pod (claim late)")
}

// Nodes whose plugin does not answer are named, with what may be wrong, before anything is changed.
func TestSilent(t *testing.T) {
	ending := plugin("ending", corev1.ConditionFalse)
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x"}
	objects := []runtime.Object{
		slice("down"), slice("bare"), slice("crashing"), slice("works"), slice("ending"), slice("gone"),
		node("down", corev1.ConditionUnknown), node("bare", corev1.ConditionTrue), node("crashing", corev1.ConditionTrue),
		node("works", corev1.ConditionTrue), node("ending", corev1.ConditionTrue), node("without-gpus", corev1.ConditionTrue),
		plugin("down", corev1.ConditionFalse), plugin("crashing", corev1.ConditionFalse), plugin("works", corev1.ConditionTrue), ending,
		plugin("without-gpus", corev1.ConditionFalse),
	}
	client, _, err := run(t, false, nil, objects...)
	for _, part := range []string{
		"nothing was changed", "node down: it is not ready", "node bare: no plugin runs there",
		"node crashing: its plugin does not work: kubectl -n gpus logs plugin-crashing --previous", "--set uninstall.force=true",
	} {
		require.ErrorContains(t, err, part)
	}
	for _, node := range []string{"works", "ending", "gone", "without-gpus"} {
		require.NotContains(t, err.Error(), "node "+node, "its GPUs will be withdrawn")
	}
	assert.True(t, hasPlugins(t, client))

	client, out, err := run(t, true, nil, objects...)
	require.NoError(t, err)
	assert.Contains(t, out, "although the plugins of these nodes do not answer:\n")
	assert.Contains(t, out, "node down: it is not ready")
	left, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
}

// So are those whose plugin does not finish in time.
func TestLate(t *testing.T) {
	ending := plugin("hangs", corev1.ConditionTrue)
	ending.Labels[instance] = "tranche"
	objects := []runtime.Object{
		slice("hangs"), slice("stuck"), slice("gone"), node("hangs", corev1.ConditionTrue), node("stuck", corev1.ConditionTrue),
		ending, plugin("stuck", corev1.ConditionTrue),
	}
	end := func(c *fake.Clientset) {
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		_ = c.Tracker().Delete(pods, "gpus", "plugin-stuck")
		deleted := ending.DeepCopy()
		deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x"}
		_ = c.Tracker().Update(pods, deleted, "gpus")
	}
	_, _, err := run(t, false, end, objects...)
	for _, part := range []string{
		"within 300ms", "node gone: it is gone", "node stuck: its plugin could not release everything",
		"node hangs: its plugin has not ended yet: kubectl -n gpus logs plugin-hangs", "uninstall again", "helm -n gpus rollback tranche 7",
	} {
		require.ErrorContains(t, err, part)
	}
	client, out, err := run(t, true, end, objects...)
	require.NoError(t, err)
	assert.Contains(t, out, "node stuck: its plugin")
	assert.Contains(t, out, "not all nodes are clean")
	left, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
}

// One that is interrupted can be repeated, by hand also when the plugins are gone already.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ours := clientfake.New(gpuNode("node-a", v1beta1.Idle))
	client := kubefake.New(append(leftovers(), installed("gpus", "tranche-kubelet-plugin"), slice("node-a"), plugin("node-a", corev1.ConditionTrue))...)
	onDelete(client, func(*fake.Clientset) { cancel() })
	c := configOf(t, client, ours)
	c.Deadline, c.Look = 0, 0 // there is no limit, and the pace is the usual one
	require.ErrorIs(t, Run(ctx, c), context.Canceled)

	byHand := Config{Client: client, Ours: ours, Objects: c.Objects, Deadline: impatient, Out: &bytes.Buffer{}}
	require.ErrorIs(t, Run(t.Context(), byHand), errNoPlugins)
	withdraw(client)
	require.NoError(t, Run(t.Context(), byHand))
	left, err := ours.GPUNodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
	require.NoError(t, Run(t.Context(), c))
}

// As many nodes are described as fit a message, and not one less.
func TestManyNodesThatDoNotAnswer(t *testing.T) {
	for _, count := range []int{most, most + 1} {
		var objects []runtime.Object
		for i := range count {
			name := fmt.Sprintf("node-%02d", i)
			objects = append(objects, slice(name), node(name, corev1.ConditionFalse), plugin(name, corev1.ConditionFalse))
		}
		client := kubefake.New(objects...)
		c := &Config{Client: client, Namespace: "gpus", DaemonSet: "plugins", Ours: clientfake.New(), Objects: metadataOf(t, client, clientfake.New())}
		reasons, left, err := c.unfinished(t.Context(), false)
		require.NoError(t, err)
		assert.Len(t, left, count)
		assert.Equal(t, most, strings.Count(reasons, "  node node-"))
		assert.Equal(t, count > most, strings.Contains(reasons, "and more nodes"), count)
	}
}
