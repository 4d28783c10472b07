package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
)

// Nodes have GPU memory and compute, also after a kubelet has set them to zero. Pods of a labeled
// namespace request what their claims take at least.
func TestGPUResources(t *testing.T) {
	s := start(t)
	nodeHas := func(what string) {
		t.Helper()
		s.eventually(what, func() (bool, string) {
			n, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeA, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			memory, compute := n.Status.Allocatable[names.ResourceGPUMemory], n.Status.Allocatable[names.ResourceGPUCompute]
			return memory.Value() > 600<<30 && compute.Value() == 8000 && n.Status.Capacity.Name(names.ResourceGPUCompute, resource.DecimalSI).Value() == 8000,
				fmt.Sprint(n.Status.Allocatable)
		})
	}
	nodeHas("the node has GPU memory and compute")
	zero := `{"status":{"capacity":{"tranche.dev/gpu-memory":"0","tranche.dev/gpu-compute":"0"},"allocatable":{"tranche.dev/gpu-memory":"0","tranche.dev/gpu-compute":"0"}}}`
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, nodeA, types.MergePatchType, []byte(zero), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	nodeHas("the node has them again")

	s.kubectl("label", "namespace", s.namespace, names.LabelRequestGPUResources+"="+names.ValueTrue)
	s.template("two", devices(request(class1g10gb, ""), func() resourceapi.DeviceRequest {
		r := request(class1g10gb, "")
		r.Name = "other"
		return r
	}()))
	extended := func(name string) *corev1.Pod {
		pod := newPod(name)
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("2")}
		return pod
	}
	s.eventually("pods get requests", func() (bool, string) {
		pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, newPod("probe", fromTemplate("two")), dryCreate)
		if err != nil {
			return false, err.Error()
		}
		return len(pod.Spec.Containers[0].Resources.Requests) > 0, fmt.Sprint(pod.Spec.Containers[0].Resources)
	})

	want := corev1.ResourceList{names.ResourceGPUMemory: resource.MustParse("19456Mi"), names.ResourceGPUCompute: resource.MustParse("284")}
	s.create(newPod("claims", fromTemplate("two")))
	s.create(extended("extended"))
	for _, name := range []string{"claims", "extended"} {
		pod := s.waitRunning(name)
		for key, amount := range want {
			has := pod.Spec.Containers[0].Resources.Requests[key]
			assert.Zero(t, has.Cmp(amount), "%s requests %s of %s", name, has.String(), key)
		}
	}
	own := newPod("own", fromTemplate("two"))
	own.Spec.Containers[0].Resources.Limits = corev1.ResourceList{names.ResourceGPUCompute: resource.MustParse("7")}
	s.create(own)
	compute := s.waitRunning("own").Spec.Containers[0].Resources.Limits[names.ResourceGPUCompute]
	assert.EqualValues(t, 7, compute.Value(), "what a pod requests itself stays if it is less")
	refused := func(message string, amount string) {
		t.Helper()
		own.Spec.Containers[0].Resources.Limits[names.ResourceGPUCompute] = resource.MustParse(amount)
		s.eventually("the pod is refused", func() (bool, string) {
			_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, own, dryCreate)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), message), fmt.Sprint(err)
		})
	}
	own.Name = "greedy"
	refused("no pod may request more of them than its claims take", "285")

	s.kubectl("label", "namespace", s.namespace, names.LabelRequestGPUResources+"-")
	s.eventually("the map is gone", func() (bool, string) {
		out := s.kubectl("get", "gpuresourcemaps", "-n", s.namespace, "-o", "name")
		return out == "", out
	})
	refused("pods of this namespace must not request them", "1")
}

// The API server follows the map after the policy was gone, as after helm uninstall and install.
func TestGPUResourcesAfterThePolicyWasGone(t *testing.T) {
	s := start(t)
	s.kubectl("label", "namespace", s.namespace, names.LabelRequestGPUResources+"="+names.ValueTrue)
	requests := func(what, template, compute string) {
		t.Helper()
		s.eventually(what, func() (bool, string) {
			pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, newPod("probe", fromTemplate(template)), dryCreate)
			if err != nil {
				return false, err.Error()
			}
			has := pod.Spec.Containers[0].Resources.Requests[names.ResourceGPUCompute]
			return has.String() == compute, has.String()
		})
	}
	s.template("changes", devices(request(class1g10gb, "")))
	requests("a pod requests compute", "changes", "142")
	s.set("gpuResources.podRequests.enabled=false")
	requests("without the policy, it requests none", "changes", "0")
	s.set("gpuResources.podRequests.enabled=true")
	requests("it requests compute again", "changes", "142")
	require.NoError(t, s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Delete(s.ctx, "changes", metav1.DeleteOptions{}))
	s.template("changes", devices(request(class3g40gb, "")))
	requests("it requests another amount", "changes", "428")
}
