package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const kaiMemoryNamespace = "demo-translate-kai-memory"

// createKAIPods creates the pods of KAI's documentation.
func (s *suite) createKAIPods() {
	folder := filepath.Join(repository, "demo", "translate-kai")
	s.t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "-f", folder) })
	s.kubectl("apply", "-f", folder)
	for _, file := range []string{"gpu-sharing", "gpu-sharing-non-default-container", "gpu-sharing-init-container"} {
		s.kubectl("-n", "demo-translate-kai", "apply", "--validate=strict", "-f", filepath.Join(folder, "pods", file+".yaml"))
	}
	s.kubectl("-n", kaiMemoryNamespace, "apply", "--validate=strict", "-f", filepath.Join(folder, "pods", "gpu-memory.yaml"))
}

// The container that the annotations name has what they ask for, and no other.
func checkTranslateKAI(s *suite, pods map[string]*corev1.Pod) {
	memory := s.demoPods(kaiMemoryNamespace)["gpu-sharing"]
	s.requireSeesShare(memory, "gpu-workload")
	assert.Equal(s.t, "0=2000M", s.env(memory, "gpu-workload")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	half := pods["gpu-sharing"]
	s.requireSeesShare(half, "gpu-workload")
	assert.Equal(s.t, "0.50", s.env(half, "gpu-workload")["GPU_PORTION"])
	second := pods["gpu-sharing-non-default"]
	s.requireSeesShare(second, "gpu-workload")
	assert.Empty(s.t, s.seen(second, "sidecar"))
	assert.Empty(s.t, s.seen(second, "another-sidecar"))
	begun := pods["gpu-sharing-init-container"]
	assert.Contains(s.t, s.kubectl("-n", begun.Namespace, "logs", begun.Name, "-c", "gpu-init"), "GPU_PORTION=0.50")
	assert.Empty(s.t, s.seen(begun, "main-app"))
	for _, pod := range []*corev1.Pod{memory, half, second, begun} {
		assert.Equal(s.t, corev1.DefaultSchedulerName, pod.Spec.SchedulerName)
	}
}

// HAMi's limits are shares of GPUs of both vendors.
func checkTranslateHAMi(s *suite, pods map[string]*corev1.Pod) {
	s.requireSeesShare(pods["some-memory"], "main")
	env := s.env(pods["some-memory"], "main")
	assert.Equal(s.t, "0=3000M", env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	assert.Equal(s.t, "30", env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
	assert.Equal(s.t, nodeC, pods["amd-memory"].Spec.NodeName)
	memory := s.allocated(pods["amd-memory"], "").ConsumedCapacity[names.CapacityMemory]
	assert.EqualValues(s.t, 96000*gpu.MiB, memory.Value())
}

func checkTranslateNos(s *suite, pods map[string]*corev1.Pod) {
	s.requireSeesShare(pods["slice"], "main")
	assert.Equal(s.t, "0=10000M", s.env(pods["slice"], "main")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
}

// annotatedPod makes a pod that asks for a part of a GPU in KAI's way.
func (s *suite) annotatedPod(name string, annotations map[string]string) error {
	_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: "busybox:1.35", Command: []string{"sleep", "1000000"}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// A pod keeps its GPU when its namespace is not translated any more; the next runs without one
// and is told. A template that somebody deletes is there again for the next pod.
func TestTranslatedPodsKeepTheirGPUs(t *testing.T) {
	s := start(t)
	half := map[string]string{"gpu-fraction": "0.5"}
	s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"=kai")
	// The admission plugin sees the label a little later.
	s.eventually("an amount that no GPU has is refused", func() (bool, string) {
		err := s.annotatedPod("refused", map[string]string{"gpu-fraction": "NaN"})
		if err == nil {
			s.delete("refused")
			return false, "the pod was created"
		}
		return apierrors.IsInvalid(err), err.Error()
	})
	require.NoError(t, s.annotatedPod("first", half))
	pod := s.waitRunning("first")
	s.requireSeesShare(pod, "main")
	templates := s.client.ResourceV1().ResourceClaimTemplates(s.namespace)
	require.NoError(t, templates.Delete(s.ctx, "tranche-fraction-500", metav1.DeleteOptions{}))
	require.NoError(t, s.annotatedPod("second", half))
	s.requireSeesShare(s.waitRunning("second"), "main")

	s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"-")
	s.eventually("pods are not translated any more", func() (bool, string) {
		require.NoError(t, s.annotatedPod("third", half))
		if claims := s.pod("third").Spec.ResourceClaims; len(claims) > 0 {
			s.delete("third")
			return false, "it has a claim"
		}
		return true, ""
	})
	s.waitPodEvent("third", names.EventAnnotationIgnored, "does not have the label tranche.dev/translate=kai")
	s.requireSeesShare(s.pod("first"), "main")
	assert.Equal(t, pod.UID, s.pod("first").UID)
}
