package uninstall

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

// installed is the DaemonSet of an installation.
func installed(namespace, name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "set",
		Labels: map[string]string{partOf: "tranche", component: componentName, instance: "mine"}}}
}

// byHand is what a person runs, who knows no names.
func byHand(t *testing.T, client *fake.Clientset, out *bytes.Buffer) Config {
	t.Helper()
	return Config{Client: client, Ours: noDefinitions(), Objects: metadataOf(t, client, noDefinitions()), Deadline: impatient, Out: out, Look: 10 * time.Millisecond}
}

func TestFind(t *testing.T) {
	other := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "other"}}
	c := byHand(t, kubefake.New(installed("gpus", "acme-gpu-kubelet-plugin"), other), nil)
	found, err := c.Find(t.Context(), "")
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, []string{"gpus", "mine", "acme-gpu-kubelet-plugin", "acme-gpu-controller", "acme-gpu-scheduler"},
		[]string{c.Namespace, c.Release, c.DaemonSet, c.Controller, c.Scheduler})

	found, err = c.Find(t.Context(), "elsewhere")
	require.NoError(t, err)
	assert.False(t, found)

	c = byHand(t, kubefake.New(installed("a", "x-kubelet-plugin"), installed("b", "x-kubelet-plugin")), nil)
	_, err = c.Find(t.Context(), "")
	require.ErrorContains(t, err, "a/x-kubelet-plugin, b/x-kubelet-plugin; choose one by --namespace")
}

func TestRemove(t *testing.T) {
	client := kubefake.New(append(leftovers(), installed("gpus", "tranche-kubelet-plugin"), slice("node-a"), slice("node-b"), plugin("node-a", corev1.ConditionTrue), plugin("node-b", corev1.ConditionTrue))...)
	onDelete(client, withdraw)
	var out bytes.Buffer
	c := byHand(t, client, &out)
	_, err := c.Find(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, Run(t.Context(), c))
	assert.Contains(t, out.String(), "No plugin runs any more, and the nodes are clean. Remove the remaining objects with the tool that installed them.\n")
	_, err = client.AppsV1().DaemonSets("gpus").Get(t.Context(), "tranche-kubelet-plugin", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	deployments, err := client.AppsV1().Deployments("gpus").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, deployments.Items)
}

// A tool that keeps the objects as they were in its source is named.
func TestRemoveIsUndone(t *testing.T) {
	client := kubefake.New(installed("gpus", "tranche-kubelet-plugin"))
	clientfake.React(&client.Fake, "delete", "daemonsets", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	c := byHand(t, client, &bytes.Buffer{})
	_, err := c.Find(t.Context(), "")
	require.NoError(t, err)
	require.ErrorContains(t, Run(t.Context(), c), "DaemonSet gpus/tranche-kubelet-plugin was created again: turn off the tool")

	pod := plugin("node-a", corev1.ConditionTrue)
	pod.Labels[instance] = "mine"
	require.NoError(t, client.Tracker().Add(pod))
	require.NoError(t, client.Tracker().Add(node("node-a", corev1.ConditionTrue)))
	require.ErrorContains(t, Run(t.Context(), c), "node node-a: its plugin is not being deleted")
}

// A person has nothing to undo.
func TestAdviceWithoutHelm(t *testing.T) {
	var out bytes.Buffer
	c := byHand(t, kubefake.New(installed("gpus", "tranche-kubelet-plugin"), claimOf("team", "claim", names.DriverName, "gpu-0000-1b-00-0", "a")), &out)
	err := Run(t.Context(), c)
	require.ErrorContains(t, err, "pod team/a (claim claim) holds")
	require.ErrorContains(t, err, ": --force")
	assert.NotContains(t, err.Error(), "helm")
	c.Force = true
	require.NoError(t, Run(t.Context(), c))
	assert.Contains(t, out.String(), "--force is set, so Tranche is uninstalled although GPUs are held:\n  pod team/a (claim claim) holds\n")
}

func object(version, kind, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{partOf: "tranche"}},
	}
}

func TestCheck(t *testing.T) {
	other := object("v1", "ConfigMap", "of-somebody")
	other.Labels = nil
	made := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "tranche-fraction-500", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}}}
	ofSomebody := made.DeepCopy()
	ofSomebody.Name = "of-somebody"
	client := kubefake.New(append(leftovers(), installed("gpus", "tranche-kubelet-plugin"), slice("node-a"), plugin("node-a", corev1.ConditionTrue), made, ofSomebody)...)
	ours := clientfake.New(gpuNode("node-a", v1beta1.Draining),
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromChart}}},
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "mig-parted.all-1g.10gb", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromConfigMap}}},
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "of-a-person"}},
		&v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: "of-a-person"}})
	definition := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "gpunodes.tranche.dev")
	definition.Annotations = map[string]string{keepAnnotation: "keep"}
	objects := metadataOf(t, client, ours, other, definition,
		object("resource.k8s.io/v1", "DeviceClass", "a"), object("resource.k8s.io/v1", "DeviceClass", "b"))
	clientfake.React(&objects.Fake, "list", "podmonitors", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "podmonitors"}, "")
	})
	var out bytes.Buffer
	c := byHand(t, client, &out)
	c.Ours, c.Objects = ours, objects
	_, err := c.Find(t.Context(), "")
	require.NoError(t, err)
	client.ClearActions()
	report, err := Check(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, `In the cluster:
  resourceslices: 1
  gpunodes: 1
  partitionprofiles of your own (kept): 1
  partitionprofiles of the chart: 1
  partitionprofiles of other projects' configurations: 1
  partitionplans (kept): 1
  deviceclasses: 2 (a, b)
  customresourcedefinitions (kept): 1 (gpunodes.tranche.dev)
  resourceclaimtemplates that the controller created: 1 (tranche-fraction-500)
  nodes with taints or paused monitoring pods: 2 (node-a, node-c)
No pod holds a GPU and no GPU is being changed: release mine in gpus can be uninstalled.
`, report.String())
	assert.Empty(t, out.String())
	assert.Contains(t, report.Found, Found{Resource: "partitionprofiles.tranche.dev", CreatedFrom: names.CreatedFromChart, Count: 1})

	var answer error
	clientfake.React(&objects.Fake, "list", definitions, func(k8stesting.Action) (bool, runtime.Object, error) {
		if answer != nil {
			return true, nil, answer
		}
		l := &metav1.List{}
		l.Items = append(l.Items, runtime.RawExtension{Object: object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "gpunodes.tranche.dev")})
		return true, l, answer
	})
	report, err = Check(t.Context(), c)
	require.NoError(t, err)
	assert.NotContains(t, report.String(), "(kept", "the chart has crds.keep=false")
	answer = apierrors.NewForbidden(schema.GroupResource{Resource: definitions}, "", errors.New("no"))
	report, err = Check(t.Context(), c)
	require.NoError(t, err)
	assert.Contains(t, report.String(), "partitionplans (kept, unless crds.keep=false): 1")
	assert.Contains(t, report.String(), "Note: Which customresourcedefinitions there are is not known (")
	require.Len(t, report.Unread, 1)
	assert.Equal(t, "customresourcedefinitions.apiextensions.k8s.io", report.Unread[0].Resource)

	c.Force = true // a check tells what is in the way, whatever is forced
	require.NoError(t, client.Tracker().Add(claimOf("team", "claim", names.DriverName, "gpu-0000-1b-00-0", "a")))
	report, err = Check(t.Context(), c)
	require.ErrorContains(t, err, "pod team/a (claim claim) holds")
	require.ErrorIs(t, err, ErrRefused)
	assert.Equal(t, err.Error(), report.Refusal)
	assert.NotContains(t, report.String(), "can be uninstalled")
	for _, action := range client.Actions() {
		assert.Contains(t, []string{"list", "get"}, action.GetVerb(), "a check changes nothing")
	}

	report, err = Check(t.Context(), byHand(t, kubefake.New(), &out))
	require.NoError(t, err)
	assert.Equal(t, "Nothing of Tranche is in the cluster.\n", report.String())
}
