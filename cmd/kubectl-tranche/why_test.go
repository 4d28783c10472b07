package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func whyFake() *fake.Clientset {
	return kubefake.New(slice("a", "node-a"), claimIn("default", "one"), claimIn("team-a", "two"), podIn("team-a", "p"), podIn("team-a", "p-1"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}})
}

func reading(client *fake.Clientset) *whyReader {
	return &whyReader{connection: connection{read.Clients{Kubernetes: client, Ours: clientfake.New()}}, namespace: "team-a", now: time.Unix(0, 0), raw: notServed}
}

// notServed is an API server without Kueue and JobSet.
func notServed(context.Context, string) ([]byte, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
}

func TestWhyReadsEverything(t *testing.T) {
	in, err := reading(whyFake()).read(t.Context(), "p")
	require.NoError(t, err)
	assert.Equal(t, "p", in.Pod.Name)
	assert.Len(t, in.Claims, 2)
	assert.Len(t, in.Slices, 1)
	assert.Len(t, in.Nodes, 1)
	assert.Len(t, in.Events, 1)
	assert.NotNil(t, in.Templates, "none is not the same as unreadable")
	assert.False(t, in.Partial)
	assert.Empty(t, in.Unread)
}

// What decides whether the controller creates a template is read if one is missing.
func TestWhyReadsWhatIsTranslated(t *testing.T) {
	client := whyFake()
	pod := podIn("team-a", "half")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("tranche-fraction-500")}}
	binding := func(name, project string) *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{names.LabelTranslate: project}}},
		}}
	}
	for _, o := range []runtime.Object{
		pod, binding("a", "kai"), binding("b", ""), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
	} {
		require.NoError(t, client.Tracker().Add(o))
	}
	in, err := reading(client).read(t.Context(), "half")
	require.NoError(t, err)
	assert.Equal(t, []string{"kai"}, in.Translated)
	assert.NotNil(t, in.Namespace)
	assert.Empty(t, in.Unread)

	forbid(client, "validatingadmissionpolicybindings", "")
	clientfake.React(&client.Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no right")
	})
	in, err = reading(client).read(t.Context(), "half")
	require.NoError(t, err)
	assert.Nil(t, in.Translated)
	assert.Nil(t, in.Namespace)
	assert.Len(t, in.Unread, 2)
}

// Pods of all nodes are many: they are read once, if a pod requests GPU memory or compute.
func TestWhyReadsRequests(t *testing.T) {
	client := whyFake()
	for _, pod := range []string{"requests", "requests-too"} {
		p := podIn("team-a", pod)
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{names.ResourceGPUCompute: resource.MustParse("142")}}}}
		require.NoError(t, client.Tracker().Add(p))
	}
	lists := 0
	clientfake.React(&client.Fake, "list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		return false, nil, nil
	})
	r := reading(client)
	for _, pod := range []string{"p", "requests", "requests-too"} {
		in, err := r.read(t.Context(), pod)
		require.NoError(t, err)
		assert.Equal(t, pod == "p", in.Requesting == nil, pod)
	}
	assert.Equal(t, 1, lists)

	forbid(client, "pods", "")
	in, err := reading(client).read(t.Context(), "requests")
	require.NoError(t, err)
	assert.Equal(t, []text.Unread{why.Denied(why.ResourceRequests, "")}, in.Unread)
}

func TestWhyWithoutRights(t *testing.T) {
	client := whyFake()
	for _, resource := range []string{"resourceslices", "deviceclasses", "devicetaintrules", "nodes", "resourceclaims"} {
		forbid(client, resource, "")
	}
	forbid(client, "resourceclaimtemplates", "team-a")
	forbid(client, "events", "", "team-a")
	in, err := reading(client).read(t.Context(), "p")
	require.NoError(t, err)
	assert.True(t, in.Partial)
	assert.Len(t, in.Claims, 1, "those of the pod's namespace")
	assert.Len(t, in.Unread, 8)
	assert.Contains(t, in.Unread, why.Denied(why.ResourceNodes, "team-a"))
	assert.Equal(t, why.NoDevices, why.Explain(t.Context(), in).State)

	forbid(client, "resourceclaims", "", "team-a")
	in, err = reading(client).read(t.Context(), "p")
	require.NoError(t, err)
	assert.Contains(t, in.Unread, why.Denied(why.ResourceOwnClaims, "team-a"))
}

func TestWhyWithoutThePod(t *testing.T) {
	_, err := reading(whyFake()).read(t.Context(), "nightly")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	in := reading(whyFake()).absent(t.Context(), "p")
	assert.Len(t, in.Pods, 2)
	assert.Len(t, in.Events, 1)
	assert.False(t, in.NoNamespace)
	nowhere := reading(whyFake())
	nowhere.namespace = "team-x"
	e, err := nowhere.explainPod(t.Context(), "p")
	require.NoError(t, err)
	assert.Equal(t, "There is no namespace team-x.", e.Summary)
	_, err = nowhere.explainOwner(t.Context(), target{why.KindJob, "", "nightly"})
	require.ErrorContains(t, err, "there is no namespace team-x")

	client := whyFake()
	clientfake.React(&client.Fake, "get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	_, err = reading(client).read(t.Context(), "p")
	require.EqualError(t, err, "read pod team-a/p: away")
}

func TestWhyCommand(t *testing.T) {
	s := newServer(t, slice("a", "node-a"))
	file := kubeconfig(t, map[string]*server{"one": s})
	base := []string{"--kubeconfig", file, "--context", "one", "-n", "team-a", "why"}

	_, err := run(t, base...)
	require.EqualError(t, err, "name an object: kubectl tranche why POD, TYPE/NAME, TYPE NAME or -f FILE")
	_, err = run(t, append(base, "p", "-o", "xml")...)
	require.EqualError(t, err, `unsupported output format "xml": use wide or json or yaml`)
	_, err = run(t, append(base, "p")...)
	require.ErrorContains(t, err, "you may not get pods in the namespace team-a")

	s.pods = map[string]*corev1.Pod{"p": podIn("team-a", "p")}
	out, err := run(t, append(base, "pod/p")...)
	require.NoError(t, err)
	assert.Contains(t, out, "team-a/p has no node yet, and Tranche is not the cause")
	out, err = run(t, append(base, "p", "-o", "json")...)
	require.NoError(t, err)
	var e why.Explanation
	require.NoError(t, json.Unmarshal([]byte(out), &e))
	assert.Contains(t, out, `"kind": "PodExplanation"`)
	assert.Equal(t, why.NoDevices, e.State)

	s.pods["q"] = podIn("team-a", "q")
	var files []string
	for name, metadata := range map[string]string{"p": "{name: p, namespace: team-a}", "q": "{name: q}"} {
		f := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(f, []byte("apiVersion: v1\nkind: Pod\nmetadata: "+metadata+"\n"), 0o600))
		files = append(files, "-f", f)
	}
	out, err = run(t, append(append(base, "-o", "json"), files...)...)
	require.NoError(t, err)
	var list struct {
		Items []why.Explanation `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list), out)
	require.Len(t, list.Items, 2)
	assert.Equal(t, 3, strings.Count(out, `"apiVersion": "cli.tranche.dev/v1beta1"`), "the list and its items")
	assert.ElementsMatch(t, []string{"p", "q"}, []string{list.Items[0].Pod, list.Items[1].Pod})
	_, err = run(t, append(append(base, "-n", "team-b"), files...)...)
	require.EqualError(t, err, "Pod p is in the namespace team-a by its file, and --namespace says team-b: leave out --namespace")

	out, err = run(t, append(base, "nightly")...)
	require.ErrorIs(t, err, errNotThere)
	assert.Contains(t, out, "There is no pod nightly in the namespace team-a.")
}
