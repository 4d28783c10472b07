package karpenter

import (
	"os"
	"testing"

	"github.com/aws/karpenter-provider-aws/pkg/providers/drametadata"
	"github.com/aws/karpenter-provider-aws/pkg/providers/nvidiadra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/autoscalers/nodes"
)

// Of the instance types of a cloud, from cheap to expensive, the first that has the devices.
func TestInstanceTypesOfClouds(t *testing.T) {
	eight := nodes.Claim(namespace, "", whole).Spec
	eight.Devices.Requests[0].Exactly.Count = 8
	large := *eight.DeepCopy()
	large.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.capacity["gpu.tranche.dev"].memory.compareTo(quantity("70Gi")) >= 0`,
	}}}
	claims := map[string]resourceapi.ResourceClaimSpec{
		"1g.10gb": nodes.Claim(namespace, "", smallest).Spec, "share": nodes.Claim(namespace, "", share).Spec,
		"eight GPUs": eight, "eight of 70 GiB": large,
	}
	for cloud, test := range map[string]struct {
		types []string
		want  map[string]string
	}{
		"AWS": {
			[]string{"g4dn.xlarge", "g6.xlarge", "g5.xlarge", "g6e.xlarge", "g4dn.metal", "p5.4xlarge", "g5.48xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge"},
			map[string]string{"1g.10gb": "p5.4xlarge", "share": "g4dn.xlarge", "eight GPUs": "g4dn.metal", "eight of 70 GiB": "p4de.24xlarge"},
		},
		"Google Cloud": {
			[]string{"g2-standard-4", "a2-highgpu-1g", "a2-ultragpu-1g", "g2-standard-96", "a3-highgpu-1g", "a2-highgpu-8g", "a3-highgpu-8g", "a4-highgpu-8g"},
			map[string]string{"1g.10gb": "a3-highgpu-1g", "share": "g2-standard-4", "eight GPUs": "g2-standard-96", "eight of 70 GiB": "a3-highgpu-8g"},
		},
		"Azure": {
			[]string{"Standard_NC4as_T4_v3", "Standard_NC24ads_A100_v4", "Standard_NC40ads_H100_v5", "Standard_ND96isr_MI300X_v5", "Standard_ND96isr_H100_v5"},
			map[string]string{"1g.10gb": "Standard_ND96isr_H100_v5", "share": "Standard_NC4as_T4_v3", "eight GPUs": "Standard_ND96isr_MI300X_v5", "eight of 70 GiB": "Standard_ND96isr_MI300X_v5"},
		},
	} {
		for claim, want := range test.want {
			c := newCluster(t, test.types, supportDRA)
			c.podWith(claims[claim], nil)
			results := c.schedule()
			for _, err := range results.PodErrors {
				require.NoError(t, err, "%s: %s", cloud, claim)
			}
			assert.Equal(t, []string{want}, modelsOf(results), "%s: %s", cloud, claim)
		}
	}
}

// The catalog has what AWS's provider read from instances.
func TestCatalogOfAWS(t *testing.T) {
	var catalog struct {
		GPUs []struct {
			Model  string         `json:"model"`
			Source string         `json:"source"`
			Count  map[string]int `json:"count"`
		} `json:"gpus"`
	}
	var table struct {
		Models map[string]struct {
			ProductName string `json:"productName"`
			MemoryMiB   int64  `json:"memoryMiB"`
		} `json:"models"`
	}
	for file, into := range map[string]any{"instancetypes.yaml": &catalog, "nvidia.yaml": &table} {
		data, err := os.ReadFile("../../../pkg/publish/models/" + file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(data, into))
	}
	compared := 0
	for _, row := range catalog.GPUs {
		for name, count := range row.Count {
			read := drametadata.GPUMetadataByInstanceType[name]
			if row.Source != "AWS" || read == nil {
				continue
			}
			compared++
			model := table.Models[row.Model]
			assert.Equal(t, read.Count, count, name)
			assert.Equal(t, *read.Devices[0].Attributes["productName"].StringValue, model.ProductName, name)
			memory := read.Devices[0].Capacity["memory"].Value
			assert.InEpsilon(t, memory.Value(), model.MemoryMiB<<20, 0.025, name)
		}
	}
	assert.Greater(t, compared, 40)
}

// AWS's templates have the whole GPUs of NVIDIA's driver, and nothing of ours.
func TestTemplatesOfAWS(t *testing.T) {
	for class, added := range map[string]int{"gpu.nvidia.com": 1, "mig.nvidia.com": 0, whole: 0, smallest: 0} {
		c := newCluster(t, []string{"p5.48xlarge"}, supportDRA)
		for name, resources := range nvidiadra.NewDefaultProvider().ResolveDynamicResources(c.ctx, c.cloud.types, nil) {
			require.Equal(t, c.cloud.types[0].Name, name)
			c.cloud.types[0].DynamicResources = resources
		}
		for name, kind := range map[string]string{"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig"} {
			theirs := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
			theirs.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "` + kind + `"`,
			}}}
			c.create(theirs)
		}
		c.pod(class)
		assert.Len(t, c.schedule().NewNodeClaims, added, class)
	}
}
