package uninstall

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// noDefinitions is an API server that does not know what our objects are.
func noDefinitions() *clientfake.Client {
	api := clientfake.New()
	clientfake.React(&api.Fake, "list", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	return api
}

func gpuNode(name string, state v1beta1.State) *v1beta1.GPUNode {
	return &v1beta1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1beta1.GPUNodeStatus{State: state, Switch: &v1beta1.Switch{To: v1beta1.ProfileSnapshot{ProfileName: "cpx"}}},
	}
}

func markedNode(name string, labels map[string]string, taints ...string) *corev1.Node {
	n := node(name, corev1.ConditionTrue)
	n.Labels = labels
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "x", Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func deploymentOf(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(replicas)},
	}
}

// deployments are those that are there.
func deployments(t *testing.T, client *fake.Clientset) int {
	t.Helper()
	list, err := client.AppsV1().Deployments("gpus").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return len(list.Items)
}

func leftovers() []runtime.Object {
	return []runtime.Object{
		deploymentOf("tranche-controller", 2),
		deploymentOf("tranche-scheduler", 3),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "tranche-controller"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "tranche-scheduler"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "of-somebody"}},
		markedNode("node-a", map[string]string{"zone": "1", names.LabelProfile: "cpx", "nvidia.com/gpu.deploy.dcgm": names.PausedValue, "nvidia.com/gpu.deploy.nvsm": "false"},
			"example.com/dedicated", names.TaintNodeSwitching),
		markedNode("node-b", map[string]string{"zone": "2"}, "node.kubernetes.io/unschedulable"),
		markedNode("node-c", map[string]string{"our.own/label-of-old": names.PausedValue}),
	}
}

func TestLeftoversAreTakenAway(t *testing.T) {
	nodes := clientfake.New(gpuNode("node-a", v1beta1.Draining), gpuNode("node-b", v1beta1.Idle),
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromChart}}},
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "mig-parted.all-1g.10gb", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromConfigMap}}},
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "of-a-person"}},
		&v1beta1.GPUResourceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: names.GPUResourceMapName}})
	client, out, err := runWith(t, false, withdraw, nodes, leftovers()...)
	require.NoError(t, err)
	assert.Zero(t, deployments(t, client), "they would put back what is taken away")

	a, err := client.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.Taint{{Key: "example.com/dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}, a.Spec.Taints)
	assert.Equal(t, map[string]string{"zone": "1", names.LabelProfile: "cpx", "nvidia.com/gpu.deploy.dcgm": "true", "nvidia.com/gpu.deploy.nvsm": "false"}, a.Labels)
	leases, err := client.CoordinationV1().Leases("gpus").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, leases.Items, 1)
	assert.Equal(t, "of-somebody", leases.Items[0].Name)
	c, err := client.CoreV1().Nodes().Get(t.Context(), "node-c", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"our.own/label-of-old": "true"}, c.Labels)

	left, err := nodes.GPUNodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, left.Items)
	profiles, err := nodes.PartitionProfiles().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, profiles.Items, 1)
	assert.Equal(t, "of-a-person", profiles.Items[0].Name)
	maps, err := nodes.Tracker.List(mapsKind, mapsKind.GroupVersion().WithKind(v1beta1.MapKind), "")
	require.NoError(t, err)
	assert.Empty(t, maps.(*v1beta1.GPUResourceMapList).Items)
	for _, part := range []string{"Node node-a has neither", "GPUNodes are deleted: 2"} {
		assert.Contains(t, out, part)
	}
	assert.NotContains(t, out, "node-b", "nothing of ours was on it")
	for _, action := range client.Actions() {
		if patch, ok := action.(k8stesting.PatchAction); ok && patch.GetResource().Resource == "nodes" {
			assert.NotEqual(t, "node-b", patch.GetName())
			assert.Contains(t, string(patch.GetPatch()), "resourceVersion", "a taint that comes meanwhile must survive")
		}
	}
}

// Where there is nothing of the controller, and nothing that knows of it, there is
// nothing to do.
func TestNoController(t *testing.T) {
	client := kubefake.New(node("node-a", corev1.ConditionTrue))
	c := &Config{Client: client, Ours: noDefinitions(), Objects: metadataOf(t, client, noDefinitions()), Out: &strings.Builder{}}
	require.NoError(t, c.clear(t.Context()))
	for _, action := range client.Actions() {
		assert.Contains(t, []string{"list", "get"}, action.GetVerb())
	}
}

// GPUs that are being changed would be left half changed.
func TestSwitchUnderWay(t *testing.T) {
	for state, refused := range map[v1beta1.State]bool{
		v1beta1.Idle: false, v1beta1.Planning: false, v1beta1.Waiting: false, v1beta1.Tainted: false, v1beta1.Draining: false,
		v1beta1.Applying: true, v1beta1.Rebooting: true, v1beta1.Verifying: false, v1beta1.RollingBack: true, v1beta1.Failed: false,
	} {
		t.Run(string(state), func(t *testing.T) {
			nodes := clientfake.New(gpuNode("node-a", state))
			client, _, err := runWith(t, false, withdraw, nodes, leftovers()...)
			if !refused {
				require.NoError(t, err)
				return
			}
			for _, part := range []string{
				"the GPUs of nodes are being changed", "node node-a: from no profile to cpx, " + string(state), "kubectl get gpunodes --watch",
				"helm -n gpus rollback tranche 7\n", "--set uninstall.force=true",
			} {
				require.ErrorContains(t, err, part)
			}
			assert.Equal(t, 2, deployments(t, client))
			a, err := client.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Len(t, a.Spec.Taints, 2, "nothing was changed")

			_, out, err := runWith(t, true, withdraw, nodes, leftovers()...)
			require.NoError(t, err)
			assert.Contains(t, out, "node node-a: from no profile to cpx")
		})
	}
}

// What cannot be taken away keeps the plugins there, at work: nobody would do it later.
func TestLeftoversStay(t *testing.T) {
	client := kubefake.New(append(leftovers(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "tranche-kubelet-plugin"}})...)
	clientfake.React(&client.Fake, "patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no")
	})
	nodes := clientfake.New(gpuNode("node-a", v1beta1.Idle))
	require.ErrorContains(t, Run(t.Context(), configOf(t, client, nodes)), "node-a")
	assert.True(t, hasPlugins(t, client))
	left, err := nodes.GPUNodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, left.Items, 1, "what people want of a node is not lost")
}

// A kubelet writes its node at the same time.
func TestNodeChangesMeanwhile(t *testing.T) {
	client := kubefake.New(leftovers()...)
	tries := 0
	clientfake.React(&client.Fake, "patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		tries++
		if tries == 1 {
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "node-a", errors.New("changed"))
		}
		return false, nil, nil
	})
	c := &Config{Client: client, Ours: clientfake.New(), Objects: metadataOf(t, client, clientfake.New()), Out: &strings.Builder{}}
	require.NoError(t, c.clear(t.Context()))
	assert.Equal(t, 3, tries, "two nodes, one of them twice")
}

// Pods of the controller that do not end are named, and not waited for for ever.
func TestControllerDoesNotEnd(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "gpus", Name: "tranche-controller-x",
		Labels: map[string]string{"app.kubernetes.io/component": "controller", "app.kubernetes.io/instance": "tranche"},
	}}
	another := pod.DeepCopy()
	another.Name, another.Labels["app.kubernetes.io/instance"] = "another-controller", "other"
	_, out, err := runWith(t, false, withdraw, clientfake.New(), append(leftovers(), pod, another)...)
	require.NoError(t, err)
	assert.Contains(t, out, "Not waiting any longer for pods to end: tranche-controller-x\n")
}

// A cluster's nodes do not fit in one answer.
func TestPages(t *testing.T) {
	var asked []string
	require.NoError(t, pages(t.Context(), func(_ context.Context, next string) (string, error) {
		asked = append(asked, next)
		return map[string]string{"": "a", "a": "b"}[next], nil
	}))
	assert.Equal(t, []string{"", "a", "b"}, asked)
	require.EqualError(t, pages(t.Context(), func(context.Context, string) (string, error) { return "x", errors.New("no") }), "no")
}

func TestTemplatesOfAmountsAreDeleted(t *testing.T) {
	template := func(namespace, name, from string) *resourceapi.ResourceClaimTemplate {
		return &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{names.LabelCreatedFrom: from}}}
	}
	client := kubefake.New(template("a", "tranche-fraction-500", names.CreatedFromAmount), template("b", "tranche-memory-1mi", names.CreatedFromAmount),
		template("a", "tranche-gpu", ""), template("a", "mine", names.CreatedFromAmount))
	c := &Config{Client: client, Objects: metadataOf(t, client, noDefinitions())}
	require.NoError(t, c.deleteTemplates(t.Context()))
	left, err := client.ResourceV1().ResourceClaimTemplates("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, left.Items, 2)
	assert.Equal(t, "mine", left.Items[0].Name)
	assert.Equal(t, "tranche-gpu", left.Items[1].Name)

	clientfake.React(&client.Fake, "list", "resourceclaimtemplates", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	require.ErrorContains(t, c.deleteTemplates(t.Context()), "list resourceclaimtemplates.resource.k8s.io")
}
