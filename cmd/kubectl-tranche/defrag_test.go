package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/scenes"
)

// defragCluster has two nodes with an H100 each, with a small pod on both. One pod waits for a 7g, one for
// a node that there is not, and one for no GPU.
func defragCluster(t *testing.T) []runtime.Object {
	t.Helper()
	classes, err := allocator.Classes("../../deployments/helm/testdata/defaults.yaml")
	require.NoError(t, err)
	out := []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{names.LabelDefragmentation: names.ValueTrue}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "other"}, Status: corev1.PodStatus{Phase: corev1.PodPending}},
	}
	for _, c := range classes {
		out = append(out, c)
	}
	for _, class := range []string{"gpu-mig-1g-10gb.tranche.dev", "gpu-mig-7g-80gb.tranche.dev"} {
		out = append(out, &resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: class},
			Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: allocator.Claim("", allocator.Request("gpu", class, 1)).Spec},
		})
	}
	for i := range 2 {
		node := fmt.Sprintf("node-%d", i)
		out = append(out, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}},
		})
		for _, s := range scenes.H100(node, 0) {
			out = append(out, &s)
		}
		pod, claim := userOf(fmt.Sprintf("small-%d", i), "gpu-mig-1g-10gb.tranche.dev"), scenes.Claim("team-a", "", node, 0, scenes.MIG(0, "1g.10gb", i))
		pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
		claim.Name, claim.OwnerReferences = pod.Name+"-gpu", []metav1.OwnerReference{{Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}}
		claim.Status.ReservedFor[0] = resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
		out = append(out, pod, &claim)
	}
	big, far := userOf("big", "gpu-mig-7g-80gb.tranche.dev"), userOf("far", "gpu-mig-7g-80gb.tranche.dev")
	big.Spec.Priority, far.Spec.Priority = ptr.To(int32(5)), ptr.To(int32(5))
	far.Spec.NodeSelector = map[string]string{"zone": "z"}
	big.Status.ResourceClaimStatuses, far.Status.ResourceClaimStatuses = nil, nil
	return append(out, big, far)
}

// userOf is a pod of a ReplicaSet with a claim of a class.
func userOf(name, class string) *corev1.Pod {
	pod := podIn("team-a", name)
	pod.UID = types.UID("uid-" + name)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", Controller: ptr.To(true)}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &class}}
	pod.Status.Phase = corev1.PodPending
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To(name + "-gpu")}}
	return pod
}

func newDefragRun(t *testing.T, out *bytes.Buffer) (*defragRun, *fake.Clientset) {
	kube := kubefake.New(defragCluster(t)...)
	return &defragRun{
		session: newSession(out, picture.Screen{Width: 100}, connection{read.Clients{Kubernetes: kube}}), flags: defragFlags{maxPods: 4},
	}, kube
}

func TestDefragDryRun(t *testing.T) {
	for file, output := range map[string]string{"defrag.txt": "", "defrag.json": "json", "defrag.yaml": "yaml"} {
		var out bytes.Buffer
		r, kube := newDefragRun(t, &out)
		r.output = output
		require.NoError(t, r.run(t.Context()))
		golden.Equal(t, "testdata/"+file, out.String())
		for _, a := range kube.Actions() {
			assert.Equal(t, "list", a.GetVerb(), "nothing is changed")
		}
	}
}

func TestDefragOfOnePod(t *testing.T) {
	var out bytes.Buffer
	r, _ := newDefragRun(t, &out)
	r.pod = "other"
	require.NoError(t, r.run(t.Context()))
	assert.Contains(t, out.String(), "team-a/other: no plan (NoDevices)")
	r.pod = "nobody"
	require.EqualError(t, r.run(t.Context()), "pod nobody does not exist in namespace team-a")
	out.Reset()
	r.pod, r.namespace = "", "team-b"
	require.NoError(t, r.run(t.Context()))
	assert.Equal(t, "No pod waits for a GPU.\n", out.String())
}

func TestDefragWithoutRights(t *testing.T) {
	var out bytes.Buffer
	r, kube := newDefragRun(t, &out)
	for _, resource := range []string{"namespaces", "jobs", "persistentvolumes"} {
		forbid(kube, resource, "")
	}
	require.NoError(t, r.run(t.Context()))
	assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), "Note: Plans do not move pods that only the label of their namespace allows to move; plans do not move pods of Jobs; "+
		"plans do not move pods with bound volumes (you are not allowed to list namespaces, jobs.batch, persistentvolumes).")
	assert.Contains(t, out.String(), "team-a/big: no plan (NotMovable).")
	forbid(kube, "poddisruptionbudgets", "")
	require.EqualError(t, r.run(t.Context()), "plans need objects of the whole cluster, and you are not allowed to list poddisruptionbudgets; ask a cluster administrator to run this command")
}

func TestFlagsOfDefrag(t *testing.T) {
	for want, args := range map[string][]string{
		"--max-pods is 0, it must be at least 1":                  {"defrag", "--max-pods", "0"},
		"a pod name and --all-namespaces cannot be used together": {"defrag", "-A", "pod"},
		`unsupported output format "xml": use json or yaml`:       {"defrag", "-o", "xml"},
	} {
		_, err := run(t, args...)
		assert.EqualError(t, err, want, args)
	}
}
