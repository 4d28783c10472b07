package translate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/golden"
)

// The chart's policies refuse the same keys with the same words.
func TestTheChartRefusesTheSame(t *testing.T) {
	const file = "../../../deployments/helm/tranche/files/translate.yaml"
	want, err := yaml.Marshal(map[string][]Refusal{"limits": RefusedLimits, "annotations": RefusedAnnotations})
	require.NoError(t, err)
	golden.Equal(t, file, string(want))
}

func TestKnown(t *testing.T) {
	for key, want := range map[string]bool{
		"nvidia.com/gpu": true, "gpu.nvidia.com/a": true, "runai/queue": true, "scheduling.volcano.sh/queue-name": true,
		"org.instaslice/17b63565": true, "nos.nebuly.ai/gpu-partitioning": true,
		"cpu": false, "nvidia.com": false, "notnvidia.com/gpu": false, "nvidia.com.example.com/gpu": false, "": false,
	} {
		assert.Equal(t, want, Known(key), key)
	}
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
		for _, r := range RefusedLimits {
			if r.of.MatchString(key) {
				n++
			}
		}
		assert.Equal(t, want, n, key)
	}
	key, refusal := AsksFor(map[string]string{"gpu-memory": "1", "nvidia.com/container.trainer.gpu-memory.limit": "8Gi"})
	assert.Equal(t, "nvidia.com/container.trainer.gpu-memory.limit", key)
	assert.Contains(t, refusal, key+" asks for a share in the way of KAI 0.18 and Run:ai 3.0")
	key, refusal = AsksFor(map[string]string{"gpu-memory": "1", "nvidia.com/gpu.memory": "1"})
	assert.Equal(t, "gpu-memory", key)
	assert.Empty(t, refusal)
	key, _ = AsksFor(map[string]string{"mps": "true"})
	assert.Empty(t, key)
}
