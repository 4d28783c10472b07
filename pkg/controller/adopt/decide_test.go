package adopt

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/calls"
)

func TestPrecedenceOfLabels(t *testing.T) {
	type labels map[string]string
	byFile := Config{Projects: map[Project]ConfigMap{DeviceConfigManager: dcmConfigs, Kaiwo: dcmConfigs}}
	long := strings.Repeat("f", 50)
	for name, tt := range map[string]struct {
		labels  labels
		spec    v1beta1.GPUNodeSpec
		config  *Config
		planned bool
		there   string // profiles that exist
		want    string // spec.profileName
		from    string
		problem string // reason
		ruler   string
		says    string
		// reports are the labels whose report says that the node follows them.
		reports []string
	}{
		"nobody":                    {},
		"nobody follows":            {labels: labels{mig: "All_1g", dcm: "cpx", nos: "mig", sharing: "four"}, config: &Config{}},
		"ours":                      {labels: labels{ours: "a"}, config: &Config{}, want: "a", from: ours + "=a"},
		"ours, no name":             {labels: labels{ours: "A_b"}, spec: v1beta1.GPUNodeSpec{ProfileName: "x"}, want: "x", problem: names.ReasonProfileNotFound, says: `"A_b" cannot be the name of a PartitionProfile`},
		"mig-parted":                {labels: labels{mig: "All_1g"}, want: "mig-parted.all-1g", from: mig + "=All_1g", reports: []string{mig}},
		"a PartitionProfile":        {labels: labels{dcm: "CPX_nps1"}, there: "cpx-nps1", want: "cpx-nps1", from: dcm + "=CPX_nps1", reports: []string{dcm}},
		"one that does not exist":   {labels: labels{dcm: "cpx"}, want: "cpx", from: dcm + "=cpx", reports: []string{dcm}},
		"Kaiwo":                     {labels: labels{enabled: "true", kaiwo: "cpx"}, want: "cpx", from: kaiwo + "=cpx," + enabled + "=true"},
		"Kaiwo, not enabled":        {labels: labels{kaiwo: "cpx"}},
		"Kaiwo, disabled":           {labels: labels{enabled: "false", kaiwo: "cpx"}, spec: v1beta1.GPUNodeSpec{ProfileName: "spx"}, want: "spx", from: enabled + "=false"},
		"disabled, and ours":        {labels: labels{enabled: "false", ours: "spx"}, want: "spx", from: ours + "=spx"},
		"disabled, and nos":         {labels: labels{enabled: "false", nos: "mig"}, from: enabled + "=false"},
		"nos":                       {labels: labels{nos: "hybrid"}, want: "nos-hybrid", from: nos + "=hybrid"},
		"nos, unknown":              {labels: labels{nos: "other"}, want: "nos-other", from: nos + "=other"},
		"nos, the older":            {labels: labels{older: "mps"}, want: "nos-mps", from: older + "=mps"},
		"both of nos":               {labels: labels{nos: "mig", older: "mps"}, want: "nos-mig", from: nos + "=mig", ruler: names.ReasonLabelsDisagree},
		"ours first":                {labels: labels{ours: "a", mig: "All_1g", dcm: "b"}, want: "a", from: ours + "=a", ruler: names.ReasonLabelsDisagree, says: "the node's label tranche.dev/profile=a has precedence over label nvidia.com/mig.config=All_1g, label dcm.amd.com/gpu-config-profile=b; remove all but one of them"},
		"ours, the same":            {labels: labels{ours: "cpx", dcm: "cpx"}, want: "cpx", from: ours + "=cpx", reports: []string{dcm}},
		"ours, what is made of it":  {labels: labels{ours: "mig-parted.all-1g", mig: "All_1g"}, there: "mig-parted.all-1g", want: "mig-parted.all-1g", from: ours + "=mig-parted.all-1g", reports: []string{mig}},
		"mig-parted before DCM":     {labels: labels{mig: "All_1g", dcm: "b"}, want: "mig-parted.all-1g", from: mig + "=All_1g", ruler: names.ReasonLabelsDisagree, reports: []string{mig}},
		"DCM before Kaiwo":          {labels: labels{dcm: "b", enabled: "true", kaiwo: "cpx"}, want: "b", from: dcm + "=b", ruler: names.ReasonLabelsDisagree, reports: []string{dcm}},
		"Kaiwo, by a file":          {labels: labels{enabled: "true", kaiwo: "mine"}, config: &byFile, want: "kaiwo.mine", from: kaiwo + "=mine," + enabled + "=true"},
		"Kaiwo, not in the file":    {labels: labels{enabled: "true", kaiwo: "cpx"}, config: &byFile, want: "kaiwo.cpx", from: kaiwo + "=cpx," + enabled + "=true"},
		"DCM and Kaiwo, by a file":  {labels: labels{dcm: "mine", enabled: "true", kaiwo: "mine"}, config: &byFile, want: "device-config-manager.mine", from: dcm + "=mine", reports: []string{dcm}},
		"DCM and Kaiwo agree":       {labels: labels{dcm: "cpx", enabled: "true", kaiwo: "cpx"}, want: "cpx", from: dcm + "=cpx", reports: []string{dcm}},
		"a label before the spec":   {labels: labels{mig: "All_1g"}, spec: v1beta1.GPUNodeSpec{ProfileName: "b"}, want: "mig-parted.all-1g", from: mig + "=All_1g", reports: []string{mig}},
		"unknown":                   {labels: labels{mig: "all-9g"}, problem: names.ReasonProfileNotFound, says: "the node's label nvidia.com/mig.config names in key config.yaml of ConfigMap gpu-operator/mig the configuration all-9g, which does not exist; existing profiles: All_1g, all-disabled, bad", reports: []string{mig}},
		"a bad configuration":       {labels: labels{mig: "bad"}, spec: v1beta1.GPUNodeSpec{ProfileName: "x"}, want: "x", problem: names.ReasonConfigMapInvalid, says: "the node's label nvidia.com/mig.config is bad, which cannot be used: ", reports: []string{mig}},
		"taken":                     {labels: labels{mig: "All_1g"}, there: "mig-parted.all-1g", problem: names.ReasonConfigMapInvalid, says: "PartitionProfile mig-parted.all-1g exists without the label tranche.dev/created-from=ConfigMap", reports: []string{mig}},
		"shared":                    {labels: labels{sharing: "four"}, want: "device-plugin.four", from: sharing + "=four"},
		"shared, .yaml":             {labels: labels{sharing: "four.yaml"}, want: "device-plugin.four", from: sharing + "=four"},
		"shared, unknown":           {labels: labels{sharing: "five"}, problem: names.ReasonConfigMapInvalid, says: `is "five", which does not exist; existing ones: bad, four, none`},
		"shared, bad":               {labels: labels{sharing: "bad"}, problem: names.ReasonConfigMapInvalid, says: "ConfigMap gpu-operator/slices key bad"},
		"shared, a long name":       {labels: labels{sharing: long, mig: "All_1g"}, config: &Config{Projects: map[Project]ConfigMap{MIGParted: migConfigs, DevicePlugin: {Name: "long"}}}, problem: names.ReasonConfigMapInvalid, says: "is too long for the name of a PartitionProfile", reports: []string{mig}},
		"shared, no ConfigMap":      {labels: labels{sharing: "four"}, config: &Config{Projects: map[Project]ConfigMap{DevicePlugin: {Name: "gone"}}}, problem: names.ReasonConfigMapInvalid, says: "ConfigMap /gone does not exist"},
		"shared, empty ConfigMap":   {labels: labels{sharing: "four"}, config: &Config{Projects: map[Project]ConfigMap{DevicePlugin: {Name: "empty"}}}},
		"shared, and a spec":        {labels: labels{sharing: "four"}, spec: v1beta1.GPUNodeSpec{ProfileName: "b"}, want: "b"},
		"shared, and a plan":        {labels: labels{sharing: "four"}, planned: true},
		"shared, and ours":          {labels: labels{sharing: "four", ours: "a"}, want: "a", from: ours + "=a"},
		"shared, and mig-parted":    {labels: labels{sharing: "four", mig: "All_1g"}, want: "mig-parted.all-1g.device-plugin.four", from: mig + "=All_1g," + sharing + "=four", reports: []string{mig}},
		"shared, and Kaiwo":         {labels: labels{sharing: "four", enabled: "true", kaiwo: "cpx"}, want: "cpx", from: kaiwo + "=cpx," + enabled + "=true"},
		"without the label":         {config: &Config{Projects: allProjects.Projects, DefaultConfig: "four"}, want: "device-plugin.four", from: sharing + "=four"},
		"no such default":           {config: &Config{Projects: allProjects.Projects, DefaultConfig: "five"}, problem: names.ReasonConfigMapInvalid, says: `the default configuration of the device plugin is "five", which does not exist; existing ones: bad, four, none`},
		"control plane":             {labels: labels{rollout.ControlPlaneLabel: "", mig: "All_1g", dcm: "b", sharing: "four"}, ruler: names.ReasonSpecHolds, says: "so the label nvidia.com/mig.config=All_1g and the label dcm.amd.com/gpu-config-profile=b is ignored"},
		"control plane, the same":   {labels: labels{rollout.ControlPlaneLabel: "", ours: "spx"}, spec: v1beta1.GPUNodeSpec{ProfileName: "spx"}, want: "spx"},
		"control plane, Kaiwo's no": {labels: labels{rollout.ControlPlaneLabel: "", enabled: "false"}, spec: v1beta1.GPUNodeSpec{ProfileName: "spx"}, want: "spx"},
	} {
		t.Run(name, func(t *testing.T) {
			config := allProjects
			if tt.config != nil {
				config = *tt.config
			}
			objects := []client.Object{
				nodeWith(nil), gpuNodeOf(tt.spec),
				configMapOf(migConfigs, map[string]string{"config.yaml": migConfig}), configMapOf(slices4, map[string]string{"four.yaml": four, "none": "version: v1", "bad": "sharing: ["}),
				configMapOf(ConfigMap{Name: "empty"}, nil), configMapOf(ConfigMap{Name: "long"}, map[string]string{long: four}), configMapOf(dcmConfigs, map[string]string{"config.json": dcmConfig}),
			}
			for _, one := range strings.Fields(tt.there) {
				objects = append(objects, profileNamed(one))
			}
			p := newPlace(t, config, objects...)
			g, r := p.adopt(tt.labels, tt.planned)
			assert.Equal(t, tt.want, g.Spec.ProfileName)
			assert.Equal(t, tt.from, g.Annotations[names.AnnotationProfileFrom])
			assert.Equal(t, strings.Contains(tt.from, enabled+"=false"), g.Spec.Paused)
			assert.Equal(t, tt.problem, r.Problem.Reason)
			assert.Equal(t, tt.ruler, r.Overridden.Reason)
			assert.Contains(t, r.Problem.Message+r.Overridden.Message, tt.says)
			var made v1beta1.PartitionProfileList
			require.NoError(t, p.api.List(t.Context(), &made))
			for i := range made.Items {
				assert.NotEmpty(t, made.Items[i].Spec.Rules)
			}
			var reports []string
			for _, one := range r.reports {
				if one.follows {
					reports = append(reports, one.keys[0])
				}
			}
			assert.Equal(t, tt.reports, reports)
		})
	}
}

// A configuration becomes a PartitionProfile, which follows it.
func TestProfilesAreMadeFromConfigurations(t *testing.T) {
	file := configMapOf(migConfigs, map[string]string{"config.yaml": migConfig})
	p := newPlace(t, allProjects, nodeWith(nil), gpuNodeOf(v1beta1.GPUNodeSpec{}), file, configMapOf(slices4, map[string]string{"four": four}), profileNamed(names.DefaultProfile))
	p.adopt(map[string]string{mig: "All_1g"}, false)
	made := p.profile("mig-parted.all-1g")
	assert.Equal(t, names.CreatedFromConfigMap, made.Labels[names.LabelCreatedFrom])
	assert.Equal(t, v1beta1.MIGStatic, made.Spec.Rules[0].MIG.Mode)

	require.NoError(t, p.api.Get(t.Context(), client.ObjectKeyFromObject(file), file))
	file.Data["config.yaml"] = strings.Replace(migConfig, `"1g.10gb": 7`, `"3g.40gb": 2`, 1)
	require.NoError(t, p.api.Update(t.Context(), file))
	writes := p.writes
	p.adopt(map[string]string{mig: "All_1g"}, false)
	assert.Equal(t, writes+1, p.writes, "the GPUNode names it already")
	assert.NotEqual(t, made.Spec, p.profile("mig-parted.all-1g").Spec)
	require.NoError(t, p.api.Delete(t.Context(), p.profile("mig-parted.all-1g")))
	p.adopt(map[string]string{mig: "All_1g"}, false)
	assert.NotEmpty(t, p.profile("mig-parted.all-1g").Spec.Rules, "somebody deleted it")

	p.adopt(map[string]string{mig: "All_1g", sharing: "four"}, false)
	both := p.profile("mig-parted.all-1g.device-plugin.four").Spec.Rules[0]
	assert.Equal(t, v1beta1.MIGStatic, both.MIG.Mode)
	assert.EqualValues(t, 4, *both.Sharing.Replicas)

	// Alone, the device plugin's says nothing of partitions, so the profile for all nodes does.
	p.adopt(map[string]string{ours: "a"}, false)
	p.adopt(map[string]string{sharing: "four"}, false)
	alone := p.profile("device-plugin.four").Spec.Rules[0]
	assert.Equal(t, v1beta1.MIGDisabled, alone.MIG.Mode)
	assert.EqualValues(t, 4, *alone.Sharing.Replicas)

	// What Kaiwo and nos bring yields to profiles of the names.
	p.adopt(map[string]string{nos: "mig"}, false)
	assert.Equal(t, v1beta1.MIGDynamic, p.profile("nos-mig").Spec.Rules[0].MIG.Mode)
	require.NoError(t, p.api.Create(t.Context(), profileNamed("nos-mps")))
	g, r := p.adopt(map[string]string{nos: "mps"}, false)
	assert.Equal(t, "nos-mps", g.Spec.ProfileName+r.Problem.Message)
	assert.Equal(t, profileNamed("nos-mps").Spec, p.profile("nos-mps").Spec)
	p.adopt(map[string]string{enabled: "true", kaiwo: "cpx"}, false)
	assert.Equal(t, "NPS4", p.profile("cpx").Spec.Rules[0].XCP.MemoryPartition)
}

// As with mig-manager, the removal of the label changes nothing. That of our label does, and a person
// who then sets a profile has the last word.
func TestARemovedLabel(t *testing.T) {
	newOne := func(t *testing.T, before map[string]string) *place {
		p := newPlace(t, allProjects, nodeWith(nil), gpuNodeOf(v1beta1.GPUNodeSpec{}), configMapOf(migConfigs, map[string]string{"config.yaml": migConfig}), configMapOf(slices4, map[string]string{"four": four}))
		p.adopt(before, false)
		return p
	}
	set := func(p *place, profile string) {
		g := p.gpuNode()
		g.Spec.ProfileName = profile
		require.NoError(p.t, p.api.Update(p.t.Context(), g))
	}
	for name, tt := range map[string]struct {
		before  map[string]string
		change  func(*place)
		after   map[string]string
		planned bool
		want    string
	}{
		"mig-parted":              {before: map[string]string{mig: "All_1g"}, want: "mig-parted.all-1g"},
		"mig-parted, and shared":  {before: map[string]string{mig: "All_1g"}, after: map[string]string{sharing: "four"}, want: "mig-parted.all-1g.device-plugin.four"},
		"not shared any more":     {before: map[string]string{mig: "All_1g", sharing: "four"}, want: "mig-parted.all-1g"},
		"Kaiwo":                   {before: map[string]string{enabled: "true", kaiwo: "cpx"}, want: "cpx"},
		"another label":           {before: map[string]string{mig: "All_1g"}, after: map[string]string{dcm: "b"}, want: "b"},
		"a plan takes over":       {before: map[string]string{mig: "All_1g"}, planned: true},
		"no longer followed":      {before: map[string]string{mig: "All_1g"}, change: func(p *place) { p.Config = Config{} }},
		"a person takes over":     {before: map[string]string{mig: "All_1g"}, change: func(p *place) { set(p, "x") }, want: "x"},
		"a person sets none":      {before: map[string]string{mig: "All_1g"}, change: func(p *place) { set(p, "") }},
		"the ConfigMap is gone":   {before: map[string]string{mig: "All_1g"}, change: func(p *place) { require.NoError(p.t, p.api.Delete(p.t.Context(), configMapOf(migConfigs, nil))) }, want: "mig-parted.all-1g"},
		"ours":                    {before: map[string]string{ours: "a"}},
		"ours, a person was late": {before: map[string]string{ours: "a"}, change: func(p *place) { set(p, "x") }, want: "x"},
		"the device plugin's":     {before: map[string]string{sharing: "four"}},
		"Kaiwo held it":           {before: map[string]string{enabled: "false"}},
		"Kaiwo held a person's":   {before: map[string]string{enabled: "false"}, change: func(p *place) { set(p, "x") }, want: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOne(t, tt.before)
			if tt.change != nil {
				tt.change(p)
			}
			g, r := p.adopt(tt.after, tt.planned)
			assert.Equal(t, tt.want, g.Spec.ProfileName)
			assert.False(t, g.Spec.Paused)
			assert.Empty(t, r.Problem)
			if strings.HasPrefix(name, "a person") || tt.want == "" {
				assert.Empty(t, g.Annotations[names.AnnotationProfileFrom])
				assert.Empty(t, g.Annotations[names.AnnotationProfileSet])
			}
		})
	}
}

// Who set a profile learns that a label has precedence.
func TestAReplacedProfileIsReported(t *testing.T) {
	p := newPlace(t, Config{}, nodeWith(nil), gpuNodeOf(v1beta1.GPUNodeSpec{ProfileName: "x", Paused: true}))
	g, _ := p.adopt(map[string]string{ours: "a"}, false)
	assert.True(t, g.Spec.Paused)
	assert.Contains(t, <-p.events.Events, "Warning ProfileReplaced spec.profileName was x and is a now, because the node's label tranche.dev/profile=a has precedence")
	g, _ = p.adopt(map[string]string{ours: "b"}, false)
	for key, value := range g.Annotations {
		removed := p.gpuNode()
		delete(removed.Annotations, key)
		require.NoError(t, p.api.Update(t.Context(), removed))
		g, _ = p.adopt(map[string]string{ours: "b"}, false)
		assert.Equal(t, value, g.Annotations[key], "it is written again")
	}
	assert.Empty(t, p.events.Events)
}

// Nothing is written because of an outdated cache, or for a Node that is gone.
func TestOutdatedLabels(t *testing.T) {
	p := newPlace(t, Config{}, nodeWith(nil), gpuNodeOf(v1beta1.GPUNodeSpec{}))
	g := p.gpuNode()
	written, _ := p.adopt(map[string]string{ours: "new"}, false)
	writes := p.writes
	_, err := p.Adopt(t.Context(), g, nodeWith(map[string]string{ours: "new"}), false)
	require.NoError(t, err)
	assert.Equal(t, writes, p.writes, "the label is followed already")
	assert.Equal(t, written, g)
	_, err = p.Adopt(t.Context(), g, nodeWith(map[string]string{ours: "old"}), false)
	require.NoError(t, err)
	assert.Equal(t, "new", p.gpuNode().Spec.ProfileName)
	require.NoError(t, p.api.Delete(t.Context(), nodeWith(nil)))
	_, err = p.Adopt(t.Context(), g, nodeWith(map[string]string{ours: "old"}), false)
	require.NoError(t, err)
	assert.Equal(t, "new", p.gpuNode().Spec.ProfileName)
	_, err = p.Adopt(t.Context(), g, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, false)
	require.NoError(t, err)
	assert.Equal(t, "new", p.gpuNode().Spec.ProfileName, "a Node that is not known has no labels")

	// Somebody's profile is not taken for one of ours that the cache does not have yet.
	p = newPlace(t, allProjects, nodeWith(nil), gpuNodeOf(v1beta1.GPUNodeSpec{}), configMapOf(migConfigs, map[string]string{"config.yaml": migConfig}), profileNamed("mig-parted.all-1g"))
	p.Client = interceptor.NewClient(p.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1beta1.PartitionProfile); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "partitionprofiles"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	r, err := p.Adopt(t.Context(), p.gpuNode(), p.node(map[string]string{mig: "All_1g"}), false)
	require.NoError(t, err)
	assert.Contains(t, r.Problem.Message, "exists without the label")
	assert.Empty(t, p.gpuNode().Spec.ProfileName)
}

// What the API server does not answer is tried again; what it refuses to read is a problem of the
// ConfigMap.
func TestFailures(t *testing.T) {
	var c calls.Calls
	file := configMapOf(migConfigs, map[string]string{"config.yaml": migConfig})
	p := newPlace(t, allProjects, nodeWith(nil), gpuNodeOf(v1beta1.GPUNodeSpec{}), file, configMapOf(slices4, map[string]string{"four": four}), profileNamed(names.DefaultProfile))
	p.Adopter = New(c.Client(p.api), c.Client(p.api), allProjects)
	follows := func(labels map[string]string, want string) {
		node := p.node(labels)
		c.Each(t, func() error {
			_, err := p.Adopt(t.Context(), p.gpuNode(), node, false)
			return err
		})
		assert.Equal(t, want, p.gpuNode().Spec.ProfileName)
	}
	follows(map[string]string{mig: "All_1g"}, "mig-parted.all-1g")
	file.Data["config.yaml"] = strings.Replace(migConfig, `"1g.10gb": 7`, `"3g.40gb": 2`, 1)
	require.NoError(t, p.api.Update(t.Context(), file))
	follows(map[string]string{mig: "All_1g"}, "mig-parted.all-1g")
	follows(map[string]string{ours: "a"}, "a")
	follows(map[string]string{sharing: "four"}, "device-plugin.four")

	p = newPlace(t, allProjects, nodeWith(map[string]string{mig: "All_1g"}), gpuNodeOf(v1beta1.GPUNodeSpec{}))
	_, r := p.adopt(map[string]string{mig: "All_1g"}, false)
	assert.Contains(t, r.Problem.Message, "ConfigMap gpu-operator/mig does not exist")
	p.fail = func(_ string, o client.Object) error {
		if _, ok := o.(*corev1.ConfigMap); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "mig", errors.New("no Role"))
		}
		return nil
	}
	_, r = p.adopt(map[string]string{mig: "All_1g"}, false)
	assert.Contains(t, r.Problem.Message, "ConfigMap gpu-operator/mig cannot be read")
}

func TestProjects(t *testing.T) {
	assert.Equal(t, []Project{DeviceConfigManager, DevicePlugin, Kaiwo, MIGParted, Nos}, Projects())
}
