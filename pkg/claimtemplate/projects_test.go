package claimtemplate

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestKnown(t *testing.T) {
	for key, want := range map[string]bool{
		"nvidia.com/gpu": true, "gpu.nvidia.com/a": true, "runai/queue": true, "scheduling.volcano.sh/queue-name": true,
		"org.instaslice/17b63565": true, "nos.nebuly.ai/gpu-partitioning": true,
		"cpu": false, "nvidia.com": false, "notnvidia.com/gpu": false, "nvidia.com.example.com/gpu": false, "": false,
	} {
		assert.Equal(t, want, Known(key), key)
	}
}

// refused are the keys that the chart's policies refuse.
func refused(t *testing.T) (all map[string][]struct{ Pattern, Except, Text string }) {
	data, err := os.ReadFile("../../deployments/helm/tranche/files/translate.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, &all))
	return all
}

// A key that is refused is refused once, and only that.
func TestRefusedKeys(t *testing.T) {
	for key, want := range map[string]int{
		"nvidia.com/mig-1c.3g.20gb": 1, "nvidia.com/mig-1c.3g.20gb.me": 1, "nvidia.com/mig-1g.5gb.shared": 1, "amd.com/cpx_nps4": 1,
		"hami.io/gpu": 1, "hami.io/gpumem-percentage": 1, "volcano.sh/vgpu-number": 1, "volcano.sh/gpu-memory": 1,
		"org.instaslice/17b63565": 1, "org.instaslice/mig-1g.5gb": 1, "nvidia.com/accelerator-memory": 1,
		"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 0, "nvidia.com/mig-1g.5gb.me": 0, "nvidia.com/gpu.shared": 0, "nvidia.com/hostdev": 0,
		"amd.com/gpu": 0, "amd.com/gpu_vf": 0, "amd.com/gpumem": 0, "volcano.sh/other": 0,
	} {
		n := 0
		for _, r := range refused(t)["limits"] {
			if regexp.MustCompile(r.Pattern).MatchString(key) {
				n++
			}
		}
		assert.Equal(t, want, n, key)
	}
	annotations := refused(t)["annotations"]
	for key, want := range map[string]int{
		"nvidia.com/container.a.gpus.devices": 1, "nvidia.com/container.a.gpu-compute.portion": 1, "nvidia.com/container.gpu-memory.request": 1,
		"kai.scheduler/container.a.gpu-memory.portion.limit": 1, "gpu-fraction.limit": 1,
		"nvidia.com/container.a.gpu-memory.request": 0, "nvidia.com/container.a.gpu-memory.limit": 0, "nvidia.com/container.a.gpu-compute.mode": 0,
		"gpu-fraction": 0, "gpu-memory.limit": 0,
	} {
		n := 0
		for _, r := range annotations {
			if regexp.MustCompile(r.Pattern).MatchString(key) && (r.Except == "" || !regexp.MustCompile(r.Except).MatchString(key)) {
				n++
			}
		}
		assert.Equal(t, want, n, key)
	}
}

func TestAsksFor(t *testing.T) {
	const limit = "nvidia.com/container.trainer.gpu-memory.limit"
	assert.Equal(t, limit, AsksFor(map[string]string{limit: "8Gi", "other": ""}))
	assert.Equal(t, "gpu-memory", AsksFor(map[string]string{"gpu-memory": "1", limit: "8Gi"}))
	assert.Empty(t, AsksFor(map[string]string{"mps": "true", "nvidia.com/container.trainer.gpu-compute.mode": "sm-sharing", "nvidia.com/gpu.memory": "1"}))
}

// The annotations are no request where KAI's schedulers read them, or the pod has claims.
func TestIgnoredRequests(t *testing.T) {
	asks := metav1.ObjectMeta{Annotations: map[string]string{"gpu-fraction": "0.5"}}
	for scheduler, want := range map[string]string{"": "gpu-fraction", "default-scheduler": "gpu-fraction", "hami-scheduler": "gpu-fraction", "kai-scheduler": "", "runai-scheduler": ""} {
		assert.Equal(t, want, Ignored(&corev1.Pod{ObjectMeta: asks, Spec: corev1.PodSpec{SchedulerName: scheduler}}), scheduler)
	}
	assert.Empty(t, Ignored(&corev1.Pod{ObjectMeta: asks, Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}}))
	assert.Empty(t, Ignored(&corev1.Pod{}))
}
