package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/golden"
)

const migConfig = `apiVersion: v1
kind: ConfigMap
metadata: {name: mig-parted-config, namespace: gpu-operator}
data:
  config.yaml: |
    version: v1
    mig-configs:
      All_1g.5gb:
        - devices: all
          mig-enabled: true
          mig-devices:
            "1g.5gb": 7
      parts-of-parts:
        - devices: all
          mig-enabled: true
          mig-devices:
            "1c.3g.20gb": 6
---
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {nvidia.com/mig.config: All_1g.5gb}}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {name: team-a, namespace: team-a}
`

func TestConvert(t *testing.T) {
	dcmFile := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(dcmFile, []byte(`{"gpu-config-profiles": {"cpx_nps1_all": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS1"}]}}}`), 0o600))
	var out strings.Builder
	err := convert(strings.NewReader(migConfig), &out, []string{"-", dcmFile})
	require.EqualError(t, err, `standard input: ConfigMap gpu-operator/mig-parted-config, key config.yaml: mig-configs.parts-of-parts[0].mig-devices.1c.3g.20gb: `+
		"is a compute instance, a part of a partition, and those are not created: write 3g.20gb, and share the partition with sharing.partitions of the PartitionProfile (line 17)")
	got := strings.ReplaceAll(out.String(), dcmFile, "config.json")
	golden.Equal(t, "testdata/converted.yaml", got)
	for _, document := range strings.Split(got, "---\n")[1:] {
		_, err := profile.Parse("f", []byte(document))
		require.NoError(t, err)
	}
}

// Two objects that name one template get it once.
func TestConvertPods(t *testing.T) {
	const pods = `apiVersion: apps/v1
kind: Deployment
metadata: {name: "a\nkind: Secret", namespace: team}
spec: {template: {metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: main, image: none}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: team}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpumem-percentage: 50}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: c, namespace: team}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpumem: 0}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: d}
`
	var out strings.Builder
	err := convert(strings.NewReader(pods), &out, []string{"-"})
	require.EqualError(t, err, "standard input: Pod team/c: spec: container main: nvidia.com/gpumem is 0, and it must be a whole number of MiB from 1 to 1048576 (line 14)\n"+
		"standard input: Service d: is of no known project; there are ConfigMap, Node, KaiwoNode, PartitioningProfile, PartitioningPlan, ElasticQuota, CompositeElasticQuota, ResourceClaim, ResourceClaimTemplate, DeviceClass, ComputeDomain, and objects with pods; "+
		"in values of Helm charts, of subcharts, and in objects that have them (HelmRelease, Application), files are below migManager.config.data, devicePlugin.config.data and config.map")
	assert.Equal(t, `# standard input: Deployment team/a
# kind: Secret (KAI)
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: tranche-fraction-500
  namespace: team
spec:
  metadata: {}
  spec:
    devices:
      requests:
      - exactly:
          allocationMode: ExactCount
          capacity:
            requests:
              fraction: "0.5"
          count: 1
          deviceClassName: gpu-fraction-share-nvidia.tranche.dev
        name: gpu
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "a\nkind: Secret", namespace: team}
spec: {template: {metadata: {}, spec: {containers: [{name: main, image: none, resources: {claims: [{name: tranche}]}}], resourceClaims: [{name: tranche, resourceClaimTemplateName: tranche-fraction-500}]}}}
# standard input: Pod team/b (HAMi)
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: team}
spec: {containers: [{name: main, resources: {claims: [{name: tranche-0}]}}], resourceClaims: [{name: tranche-0, resourceClaimTemplateName: tranche-fraction-500}]}
`, out.String())
}

func TestConvertRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	const shared = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"
	for name, tt := range map[string]struct {
		files []string
		want  string
		code  int
	}{
		"no file":         {nil, "name a file to convert: -f FILE", exitError},
		"a missing one":   {[]string{filepath.Join(dir, "none")}, "read " + filepath.Join(dir, "none"), exitError},
		"nobody's":        {[]string{file("a.yaml", "a: b\n")}, "is of no known project", exitNegative},
		"one name twice":  {[]string{file("slice_10.yaml", shared), file("Slice-10.yaml", strings.Replace(shared, "2", "3", 1))}, "both become the PartitionProfile slice-10", exitNegative},
		"without its GPU": {[]string{file("b.yaml", "kind: Pod\nspec: {containers: [{name: a, resources: {limits: {nvidia.com/gpumem: 0}}}]}")}, "nvidia.com/gpumem is 0", exitNegative},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := convert(strings.NewReader(""), &out, tt.files)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, exitCode(err))
			assert.Empty(t, out.String())
		})
	}
}

// Text of a file cannot leave the comment, nor control the terminal.
func TestComment(t *testing.T) {
	var b strings.Builder
	comment(&b, "a\nkind: Pod\r\x1b[2J\u2028x")
	assert.Equal(t, "# a\n# kind: Pod[2Jx\n", b.String())
}

// A claim template for NVIDIA's DRA driver and its pod, as kubectl get writes them.
func TestConvertNVIDIADRA(t *testing.T) {
	const list = `apiVersion: v1
kind: List
items:
- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {name: single-gpu}
  spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
`
	var out strings.Builder
	require.NoError(t, convert(strings.NewReader(list), &out, []string{"-"}))
	assert.Equal(t, `# standard input: DeviceClass gpu.nvidia.com (NVIDIA's DRA driver)
# class gpu-nvidia.tranche.dev of Tranche's chart is in its place: nothing is to be created
# standard input: ResourceClaimTemplate single-gpu (NVIDIA's DRA driver)
# a spec cannot be changed: delete the ResourceClaimTemplate that exists, and create this one
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: single-gpu
spec:
  metadata: {}
  spec:
    devices:
      requests:
      - exactly:
          deviceClassName: gpu-nvidia.tranche.dev
        name: gpu
`, out.String())
}
