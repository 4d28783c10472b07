package claimtemplate

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
func refused(t *testing.T) (all map[string][]struct{ Pattern, Text string }) {
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
	require.Len(t, annotations, 1)
	assert.Equal(t, kai018.pattern.String(), annotations[0].Pattern)
	assert.Equal(t, kai018.text, annotations[0].Text)
	key, refusal := AsksFor(map[string]string{"gpu-memory": "1", "nvidia.com/container.trainer.gpu-memory.limit": "8Gi"})
	assert.Equal(t, "nvidia.com/container.trainer.gpu-memory.limit", key)
	assert.Contains(t, refusal, key+" asks for a share in the way of KAI 0.18 and Run:ai 3.0")
	key, refusal = AsksFor(map[string]string{"gpu-memory": "1", "nvidia.com/gpu.memory": "1"})
	assert.Equal(t, "gpu-memory", key)
	assert.Empty(t, refusal)
	key, _ = AsksFor(map[string]string{"mps": "true"})
	assert.Empty(t, key)
}
