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
	s.hasGPUResources("the node has GPU memory and compute")
	zero := `{"status":{"capacity":{"tranche.dev/gpu-memory":"0","tranche.dev/gpu-compute":"0"},"allocatable":{"tranche.dev/gpu-memory":"0","tranche.dev/gpu-compute":"0"}}}`
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, nodeA, types.MergePatchType, []byte(zero), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	s.hasGPUResources("the node has them again")

	s.requestGPUResources()
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
	s.podsRequest("pods get requests", "two", "284")

	whole := newPod("whole")
	whole.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, whole, dryCreate)
	require.NoError(t, err)
	gpus := pod.Spec.Containers[0].Resources.Requests[names.ResourceGPUCompute]
	assert.EqualValues(t, 2000, gpus.Value(), "no node follows a profile that gives less than a GPU")

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

// A quota and a LimitRange count what the policy adds, and refuse the pod that would exceed them.
func TestGPUResourcesInAQuota(t *testing.T) {
	s := start(t)
	s.requestGPUResources()
	s.template("small", devices(request(class1g10gb, "")))
	s.podsRequest("pods request compute", "small", "142")
	const quota, counted = "compute", corev1.ResourceName("requests." + names.ResourceGPUCompute)
	_, err := s.client.CoreV1().ResourceQuotas(s.namespace).Create(s.ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quota}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("300")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.waitQuota(s.namespace, quota, counted, 0)
	s.create(newPod("by-claim", fromTemplate("small")))
	extended := newPod("by-resource")
	extended.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1")}
	s.create(extended)
	s.waitQuota(s.namespace, quota, counted, 284)
	_, err = s.client.CoreV1().Pods(s.namespace).Create(s.ctx, newPod("third", fromTemplate("small")), metav1.CreateOptions{})
	require.ErrorContains(t, err, "exceeded quota: compute, requested: requests.tranche.dev/gpu-compute=142, used: requests.tranche.dev/gpu-compute=284")
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePod, Max: corev1.ResourceList{names.ResourceGPUCompute: resource.MustParse("100")},
	}}}}
	_, err = s.client.CoreV1().LimitRanges(s.namespace).Create(s.ctx, limits, metav1.CreateOptions{})
	require.NoError(t, err)
	s.eventually("the LimitRange refuses the pod", func() (bool, string) {
		_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, newPod("large", fromTemplate("small")), dryCreate)
		return err != nil && strings.Contains(err.Error(), "maximum tranche.dev/gpu-compute usage per Pod is 100, but limit is 142"), fmt.Sprint(err)
	})
	s.waitRunning("by-claim")
	require.NoError(t, s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, "by-claim", metav1.DeleteOptions{}))
	s.waitQuota(s.namespace, quota, counted, 142)
}

// The API server follows the map after the policy was gone, as after helm uninstall and install.
func TestGPUResourcesAfterThePolicyWasGone(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	s.requestGPUResources()
	s.template("changes", devices(request(class1g10gb, "")))
	s.podsRequest("a pod requests compute", "changes", "142")
	s.set("gpuResources.podRequests.enabled=false")
	s.podsRequest("without the policy, it requests none", "changes", "0")
	s.set("gpuResources.podRequests.enabled=true")
	s.podsRequest("it requests compute again", "changes", "142")
	require.NoError(t, s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Delete(s.ctx, "changes", metav1.DeleteOptions{}))
	s.template("changes", devices(request(class3g40gb, "")))
	s.podsRequest("it requests another amount", "changes", "428")
}

// requestGPUResources lets the pods of the test's namespace request GPU memory and compute.
func (s *suite) requestGPUResources() {
	s.t.Helper()
	s.kubectl("label", "namespace", s.namespace, names.LabelRequestGPUResources+"="+names.ValueTrue)
}

// podsRequest waits until a new pod with a template requests so much compute.
func (s *suite) podsRequest(what, template, compute string) {
	s.t.Helper()
	s.eventually(what, func() (bool, string) {
		pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, newPod("probe", fromTemplate(template)), dryCreate)
		if err != nil {
			return false, err.Error()
		}
		has := pod.Spec.Containers[0].Resources.Requests[names.ResourceGPUCompute]
		return has.String() == compute, has.String()
	})
}

// hasGPUResources waits until node-a has the GPU memory and compute of its eight GPUs.
func (s *suite) hasGPUResources(what string) {
	s.t.Helper()
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
