package convert

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/test/golden"
)

func TestPods(t *testing.T) {
	golden.Files(t, "testdata/pods/*.yaml", func(t *testing.T, _ string, data []byte) string {
		o, err := Pods(data, 0)
		require.NoError(t, err)
		var b strings.Builder
		b.WriteString("# " + o.Names() + "\n")
		for _, note := range o.Notes {
			b.WriteString("# " + note + "\n")
		}
		for _, made := range o.Templates {
			text, err := yaml.Marshal(made)
			require.NoError(t, err)
			b.WriteString("---\n" + string(text))
		}
		b.WriteString("---\n" + string(o.YAML))
		return b.String()
	})
}

func TestPodsRefused(t *testing.T) {
	pod := func(metadata, spec string) string {
		return "kind: Job\nspec:\n  template:\n    metadata: " + metadata + "\n    spec: " + spec + "\n"
	}
	limits := func(limits string) string {
		return pod("{}", "{containers: [{name: main, resources: {limits: "+limits+"}}]}")
	}
	for name, test := range map[string]struct{ in, want string }{
		"no quantity":   {limits("{nvidia.com/gpumem: much}"), "spec.template.spec: it is not a pod: "},
		"two ways":      {limits("{nvidia.com/gpumem: 1, nvidia.com/gpu-10gb: 1}"), "spec.template.spec: the pod requests GPUs in the formats of HAMi and nos: keep one, since a namespace has one (line 5)"},
		"more requests": {pod("{}", "{containers: [{name: main, resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 1}}}]}"), "container main: nvidia.com/gpu is in requests, and the API server refuses it without the same in limits"},
		"17 GPUs":       {limits("{nvidia.com/gpu: 17}"), "container main: nvidia.com/gpu is 17, and it must be from 1 to 16 (line 5)"},
		"less than 0":   {limits("{nvidia.com/mig-1g.5gb: -1}"), "container main: nvidia.com/mig-1g.5gb is -1, and it must be from 1 to 16"},
		"a part":        {limits("{nvidia.com/gpu: 500m}"), "container main: nvidia.com/gpu is 500m, and it must be from 1 to 16"},
		"fraction":      {pod(`{annotations: {gpu-fraction: "2"}}`, "{containers: [{name: main}]}"), "annotation gpu-fraction is '2', and it must be above 0"},
		"no string":     {pod("{annotations: {gpu-fraction: 0.5}}", "{containers: [{name: main}]}"), "it is not a pod: "},
		"a key twice":   {pod("{}", "{containers: [], containers: [{name: main}]}"), "it is not a pod: "},
		"no container":  {pod(`{annotations: {gpu-fraction: "0.5"}}`, "{containers: [null]}"), "containers[0] has no name: set one"},
		"not YAML":      {"a: [", "yaml"},
		"two counts":    {limits("{nvidia.com/gpu: 1, nvidia.com/vgpu: 2, nvidia.com/gpumem: 1}"), "container main: nvidia.com/gpu and nvidia.com/vgpu exclude each other: remove one"},
		"hami.io":       {pod("{}", "{schedulerName: hami-scheduler, containers: [{name: one, resources: {limits: {hami.io/gpu: 1}}}]}"), "container one: hami.io/gpu is not translated: write nvidia.com/gpu"},
		"Volcano":       {limits("{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000}"), "volcano.sh/vgpu-memory is not translated: write nvidia.com/gpu"},
		"compute":       {limits("{nvidia.com/gpu: 1, nvidia.com/mig-1c.3g.20gb: 1}"), "nvidia.com/mig-1c.3g.20gb is a compute instance"},
		"a replica":     {limits("{nvidia.com/mig-1g.5gb.shared: 1}"), "nvidia.com/mig-1g.5gb.shared is a replica of a partition"},
		"AMD's mode":    {limits("{amd.com/cpx_nps4: 1}"), "amd.com/cpx_nps4 is a partition, and those have no resource name: ask for one by a claim"},
		"InstaSlice":    {limits("{nvidia.com/mig-1g.5gb: 2, org.instaslice/17b63565: 1}"), "org.instaslice/17b63565 was written by InstaSlice's webhook: remove it"},
		"its gate":      {pod("{}", "{schedulingGates: [{name: org.instaslice/accelarator}], containers: [{name: main}]}"), "schedulingGates: org.instaslice/accelarator: the pod waits until"}, //nolint:misspell // it is spelled so
		"its finalizer": {pod("{finalizers: [org.instaslice/accelarator]}", "{containers: [{name: main}]}"), "finalizers: org.instaslice/accelarator: the pod cannot be deleted until"},         //nolint:misspell // it is spelled so
		"a low limit":   {pod("{annotations: {nvidia.com/container.main.gpu-memory.request: 8Gi, nvidia.com/container.main.gpu-memory.limit: 4Gi}}", "{schedulerName: kai-scheduler, containers: [{name: main}]}"), "annotation nvidia.com/container.main.gpu-memory.limit is '4Gi', which is less than nvidia.com/container.main.gpu-memory.request '8Gi': raise it, or remove one"},
		"KAI's binder":  {pod("{annotations: {nvidia.com/container.main.gpus.devices: GPU-1}}", "{containers: [{name: main}]}"), "annotation nvidia.com/container.main.gpus.devices has no counterpart: remove it, or write a claim (line 4)"},
		"claim's name":  {pod(`{annotations: {gpu-fraction: "0.5"}}`, "{schedulerName: kai-scheduler, resourceClaims: [{name: tranche, resourceClaimTemplateName: a}], containers: [{name: main}]}"), "the pod has a claim of its own with the name tranche, which the claim for its annotations gets: give it another name"},
		"a list":        {"- a", "it must be an object: keys with values"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Pods([]byte(test.in), 0)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "template tranche-", "the name of an amount that is refused")
			assert.Nil(t, o)
		})
	}
	o, err := Pods([]byte("kind: Service\nspec: {ports: []}\n"), 0)
	require.NoError(t, err)
	assert.Nil(t, o, "it has no pods")
}

// Each problem has the line of the annotation or limit that it names.
func TestProblemsHaveLines(t *testing.T) {
	const object = `kind: Job
spec:
  template:
    metadata:
      annotations:
        team: a
        nvidia.com/use-gputype: a/b
    spec:
      containers:
      - name: first
        resources:
          limits:
            nvidia.com/gpumem: 1
      - name: main
        resources:
          limits:
            nvidia.com/gpu: 1
            nvidia.com/gpumem: 0
            nvidia.com/gpumem-percentage: 200
      - name: last
        resources:
          limits:
            nvidia.com/gpumem: 1
`
	_, err := Pods([]byte(object), 0)
	require.ErrorContains(t, err, "container main: nvidia.com/gpumem is 0, and it must be a whole number of MiB from 1 to 1048576 (line 18)")
	require.ErrorContains(t, err, "container main: nvidia.com/gpumem-percentage is 200, and it must be a whole number from 1 to 100 (line 19)")
	_, err = Pods([]byte("metadata:\n  name: a\n  annotations:\n    gpu-fraction: \"2\"\nspec:\n  containers:\n  - name: main\n"), 10)
	require.ErrorContains(t, err, "as in 0.5 (line 14)")
	_, err = Pods([]byte("a: &a {}\nmetadata:\n  annotations: {gpu-fraction: \"2\"}\nspec:\n  containers: [{name: main, resources: *a}]\n"), 0)
	require.ErrorContains(t, err, "gpu-fraction")
	assert.NotContains(t, err.Error(), "(line", "an alias is expanded")
}

// What was converted has nothing left to convert but what a project leaves to a device plugin.
func FuzzPods(f *testing.F) {
	golden.Seeds(f, "testdata/pods/*.yaml")
	f.Add([]byte("a: &a {spec: {containers: []}}\nb: *a\nspec: {containers: [], initContainers: null, resourceClaims: null}\n"))
	f.Add([]byte("spec: {containers: [{resources: {limits: {nvidia.com/gpu-1gb: 1}, claims: null, requests: {}}}]}\nstatus: {spec: {containers: 1}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Pods(data, 0)
		if err != nil || o == nil || len(o.Templates) == 0 {
			return
		}
		again, err := Pods(o.YAML, 0)
		if err != nil {
			require.NotEqual(t, []claimtemplate.Project{claimtemplate.Plain}, o.Projects, "%v: %s", err, o.YAML)
			return
		}
		for _, p := range o.Projects {
			if p != claimtemplate.Plain {
				require.NotContains(t, again.Projects, p, string(o.YAML))
			}
		}
	})
}

// A pod with claims is not told that it asks for no GPU.
func TestPodsWithClaims(t *testing.T) {
	for spec, want := range map[string]string{
		"{containers: [{name: c, resources: {claims: [{name: gpu}]}}], resourceClaims: [{name: gpu, resourceClaimTemplateName: single-gpu}]}": "the pods have claims, which keep their names",
		"{containers: [{name: c}]}": "the pods request no GPU",
	} {
		o, err := Pods([]byte("kind: Pod\nspec: "+spec+"\n"), 0)
		require.NoError(t, err)
		require.Len(t, o.Notes, 1)
		assert.Contains(t, o.Notes[0], want)
	}
}
