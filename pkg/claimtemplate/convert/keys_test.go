package convert

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
)

// plainKey is a key that YAML writes as it is.
var plainKey = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

// podWith is a pod with a key at a place. Beside it, the pod can ask for a GPU.
func podWith(t *testing.T, place, key, text string, number int8, asks bool) []byte {
	t.Helper()
	limits, requests, metadata := map[string]any{}, map[string]any{}, map[string]map[string]string{"labels": {}, "annotations": {}}
	if asks {
		limits["nvidia.com/gpumem"] = 1000
	}
	switch place {
	case "limits":
		limits[key] = number
	case "requests":
		requests[key] = number
	case "both":
		limits[key], requests[key] = number, number
	default:
		metadata[place][key] = text
	}
	data, err := yaml.Marshal(map[string]any{"kind": "Pod", "metadata": metadata, "spec": map[string]any{"containers": []any{
		map[string]any{"name": "main", "resources": map[string]any{"limits": limits, "requests": requests}},
	}}})
	require.NoError(t, err)
	return data
}

// A key of a known project becomes a claim, or is in a note, or in an error.
func FuzzNoKeyIsLost(f *testing.F) {
	for _, key := range []string{
		"nvidia.com/gpu", "nvidia.com/vgpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority",
		"nvidia.com/gpu.shared", "nvidia.com/gpu-10gb", "nvidia.com/gpu-0gb", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.shared", "nvidia.com/mig-1c.3g.20gb",
		"nvidia.com/hostdev", "nvidia.com/accelerator-memory", "amd.com/gpu", "amd.com/vgpu", "amd.com/gpumem", "amd.com/gpumem-percentage", "amd.com/cpx_nps4",
		"hami.io/gpu", "4pd.io/vgpu", "volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "org.instaslice/17b63565", "nos.nebuly.com/gpu-memory",
	} {
		for _, place := range []string{"limits", "requests", "both"} {
			f.Add(place, key, "", int8(1), false)
		}
		f.Add("limits", key, "", int8(0), true)
		f.Add("limits", key, "", int8(2), true)
	}
	for _, key := range []string{
		"nvidia.com/container.main.gpu-memory.request", "nvidia.com/container.main.gpu-memory.limit", "nvidia.com/container.main.gpu-compute.mode",
		"nvidia.com/container.main.gpus.devices", "nvidia.com/gpu.memory", "nvidia.com/vgpu-mode", "nvidia.com/numa-bind", "nvidia.com/use-gputype",
		"nvidia.com/nouse-gpuuuid", "amd.com/use-gpu-uuid", "amd.com/gpu-index", "kai.scheduler/gpu-compute-sharing-mode", "kai.scheduler/queue", "runai/queue",
		"hami.io/vgpu-node", "hami.io/gpu-scheduler-policy", "volcano.sh/vgpu-mode", "scheduling.run.ai/a", "nos.nebuly.com/capacity",
	} {
		for _, text := range []string{"", "mig", "true", "a100", "sm-sharing"} {
			f.Add("annotations", key, text, int8(0), true)
			f.Add("annotations", key, text, int8(0), false)
		}
		f.Add("labels", key, "a", int8(0), true)
	}
	f.Fuzz(func(t *testing.T, place, key, text string, number int8, asks bool) {
		switch place {
		case "limits", "requests", "both", "labels", "annotations":
		default:
			return
		}
		if !claimtemplate.Known(key) || !plainKey.MatchString(key) {
			return
		}
		o, err := Pods(podWith(t, place, key, text, number, asks), 0)
		domain, _, _ := strings.Cut(key, "/")
		switch {
		case err != nil && strings.Contains(err.Error(), "in the formats of"): // of two projects
		case err != nil:
			require.ErrorContains(t, err, domain)
		case bytes.Contains(o.YAML, []byte(key+":")):
			require.Contains(t, strings.Join(o.Notes, "\n"), key)
		default:
			require.NotEmpty(t, o.Templates)
		}
	})
}

// A selection of any length is in a template of a name that does not carry it.
func TestManyUUIDs(t *testing.T) {
	uuids := func(n int) string {
		return strings.TrimSuffix(strings.Repeat("GPU-03f69c50-207a-2038-9b45-23cac89cb67d,", n), ",")
	}
	for n, want := range map[int]string{
		1: "tranche-memory-1000mi.uuid-gpu-03f69c50-207a-2038-9b45-23cac89cb67d", 4: "selected-memory-1000mi-[0-9a-f]{8}", 150: "selected-memory-1000mi-[0-9a-f]{8}",
	} {
		o, err := Pods(podWith(t, "annotations", "nvidia.com/use-gpuuuid", uuids(n), 0, true), 0)
		require.NoError(t, err)
		require.Len(t, o.Templates, 1)
		assert.Regexp(t, "^"+want+"$", o.Templates[0].Name)
		assert.Contains(t, string(o.YAML), "resourceClaimTemplateName: "+o.Templates[0].Name)
		selectors := o.Templates[0].Spec.Spec.Devices.Requests[0].Exactly.Selectors
		require.Len(t, selectors, 1)
		compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(selectors[0].CEL.Expression, dracel.Options{})
		require.Nil(t, compiled.Error)
		assert.LessOrEqual(t, compiled.MaxCost, uint64(resourceapi.CELSelectorExpressionMaxCost))
		assert.Equal(t, n, strings.Count(selectors[0].CEL.Expression, "03f69c50"))
	}
	both := "metadata: {annotations: {nvidia.com/use-gpuuuid: '" + uuids(6) + "', amd.com/use-gpu-uuid: b}}\nspec: {containers: [{name: a, resources: {limits: {nvidia.com/gpumem: 1000, amd.com/gpumem: 1000}}}]}"
	o, err := Pods([]byte(both), 0)
	require.NoError(t, err)
	require.Len(t, o.Templates, 2)
	assert.Regexp(t, "^selected-memory-1000mi-[0-9a-f]{8} tranche-amd-memory-1000mi.uuid-b$", o.Templates[0].Name+" "+o.Templates[1].Name)
	_, err = Pods(podWith(t, "annotations", "nvidia.com/use-gpuuuid", uuids(200), 0, true), 0)
	require.ErrorContains(t, err, "the annotations of nvidia.com select more GPUs than a claim can: a selector has at most 10240 characters")
	for value, want := range map[string]string{
		strings.Repeat("z", 205):                 "at most 63",
		strings.Repeat("a100,", 50) + "b!":       "select a type or UUID by 'b!'",
		strings.Repeat("a", 64) + "," + uuids(6): "at most 63",
	} {
		_, err := Pods(podWith(t, "annotations", "nvidia.com/use-gputype", value, 0, true), 0)
		require.ErrorContains(t, err, want)
	}
	o, err = Pods(podWith(t, "annotations", "nvidia.com/use-gputype", strings.Repeat(" ,", 150), 0, true), 0)
	require.NoError(t, err)
	assert.Equal(t, "tranche-memory-1000mi", o.Templates[0].Name)
}
