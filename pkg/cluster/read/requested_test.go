package read

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

func TestRequested(t *testing.T) {
	compute := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{names.ResourceGPUCompute: resource.MustParse(amount)}
	}
	const lacks = "how much of the node's GPU memory and compute pods request is not shown"
	for name, test := range map[string]struct {
		has       corev1.ResourceList
		forbidden string
		want      string
		unread    string
	}{
		"both are read":                         {has: compute("8k"), want: "0.142 of 8 GPUs"},
		"no pods may be read":                   {has: compute("8k"), forbidden: "pods", unread: "you are not allowed to list pods: " + lacks},
		"no nodes":                              {has: compute("8k"), forbidden: "nodes", unread: "you are not allowed to list nodes: " + lacks},
		"without resources, pods do not matter": {forbidden: "pods"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kubefake.New(
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Allocatable: test.has}},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "pod"}, Spec: corev1.PodSpec{
					NodeName: "node-a", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: compute("142")}}},
				}})
			clientfake.React(&k.Fake, "list", test.forbidden, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: test.forbidden}, "", errors.New("no"))
			})
			got, unread := Clients{Kubernetes: k}.Requested(t.Context(), "node-a")
			assert.Equal(t, test.want, got.String())
			text := ""
			if unread.Message != "" {
				text = unread.Message + ": " + unread.Consequence
			}
			assert.Equal(t, test.unread, text)
		})
	}
	got, unread := Clients{Kubernetes: kubefake.New()}.Requested(t.Context(), "node-a")
	assert.Empty(t, got.String()+unread.Message, "there is no such node")
}
