package formats

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// checkValid checks that a profile can be created.
func checkValid(t *testing.T, p Profile) {
	t.Helper()
	require.NotEmpty(t, p.Name)
	name, err := ObjectName(p.Name)
	require.NoError(t, err)
	require.Equal(t, p.Name, name)
	_, err = profile.FromRules(p.Name, p.Spec.Rules)
	require.NoError(t, err)
}

func TestDetect(t *testing.T) {
	for text, want := range map[string]Format{
		"version: v1\nmig-configs: {}":          MIGParted,
		`{"gpu-config-profiles": {}}`:           DeviceConfigManager,
		`{"GPU-Config-Profiles": {}}`:           DeviceConfigManager,
		"version: v1\nsharing: {}":              DevicePlugin,
		"version: v1\nflags: {}":                DevicePlugin,
		"version: v1\nflages: {}\nsharing: {}":  DevicePlugin,
		"version: v1\nhooks: {apply-start: []}": MIGParted,
		"- a":                                   "", "": "", "a: [": "", "sharing": "",
	} {
		assert.Equal(t, want, detect([]byte(text)), text)
	}
}

// profilesOf are the profiles of documents, as format:name=original.
func profilesOf(documents []Document) (found []string) {
	for _, d := range documents {
		for _, p := range d.Profiles {
			found = append(found, string(d.Format)+":"+p.Name+"="+p.Original)
		}
	}
	return found
}

const (
	migConfigFile = "version: v1\nmig-configs:\n  All_1g.5gb:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {1g.5gb: 7}\n"
	shared        = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n"
)

// configMapOf is a ConfigMap with a file.
func configMapOf(key, content string) string {
	return "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, namespace: b}\ndata:\n  " + key + ": |\n    " + strings.ReplaceAll(content, "\n", "\n    ") + "\n"
}

func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"a file":        {migConfigFile, []string{"mig-parted:all-1g.5gb=All_1g.5gb"}},
		"its own name":  {shared, []string{"device plugin:slice-10=Slice_10"}},
		"a ConfigMap":   {configMapOf("slice-10", shared), []string{"device plugin:slice-10=slice-10"}},
		"several files": {configMapOf("a", shared) + "  b: |\n    flags: {migStrategy: mixed}\n", []string{"device plugin:a=a", "device plugin:b=b"}},
		"two documents": {"# first\n---\n" + configMapOf("config.yaml", migConfigFile) + "\n--- # second\n" + shared + "---\n# nothing\n",
			[]string{"mig-parted:all-1g.5gb=All_1g.5gb", "device plugin:slice-10=Slice_10"}},
		"behind the dashes": {shared + "--- {flags: {migStrategy: mixed}}\n---", []string{"device plugin:slice-10=Slice_10", "device plugin:slice-10=Slice_10"}},
		"a list":            {"kind: List\napiVersion: v1\nitems:\n- {kind: ConfigMap, metadata: {name: a}, data: {x: \"flags: {}\"}}\n- {kind: KaiwoNode, metadata: {name: node-a}, spec: {partitioning: {enabled: true, profile: cpx}}}\n", []string{"device plugin:x=x", "Kaiwo:cpx=cpx"}},
		"a Node":            {"kind: Node\nmetadata: {name: node-a, labels: {nos.nebuly.ai/gpu-partitioning: mig}}\n", []string{"nos:nos-mig=mig"}},
		"quotas":            {"kind: ElasticQuota\nmetadata: {name: a}\n", nil},
		"a PartitioningPlan": {"kind: PartitioningPlan\nmetadata: {name: a}\nspec: {rules: [{selector: {matchLabels: {a: b}}, profile: {dcmProfileName: spx}}]}\n",
			[]string{"Kaiwo:spx=spx"}},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := Read("dir/Slice_10.yaml", []byte(tt.text))
			require.NoError(t, err)
			assert.Equal(t, tt.want, profilesOf(documents))
			require.NotEmpty(t, documents)
			for _, d := range documents {
				for _, p := range d.Profiles {
					require.NoError(t, p.Err)
					checkValid(t, p)
				}
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":               {"# nothing\n", "f: it is empty"},
		"a list of YAML":        {"- a\n", "f: it must be an object"},
		"broken":                {"a: [\n", "f: yaml: line"},
		"nobody's file":         {"version: v1\n", "f: is of no known project: mig-parted has the key mig-configs"},
		"another object":        {"kind: Secret\nmetadata: {name: a, namespace: b}\n", "f: Secret b/a: is of no known project; there are ConfigMap, Node"},
		"an empty ConfigMap":    {"kind: ConfigMap\nmetadata: {name: a}\n", "f: ConfigMap a: has no file of a known project"},
		"a key of nobody":       {configMapOf("a", shared) + "  README: hello\n", "f: ConfigMap b/a: these keys are files of no known project: README"},
		"a line of a ConfigMap": {configMapOf("config.yaml", strings.Replace(migConfigFile, "mig-enabled", "mig-enable", 1)), "f: ConfigMap b/a, key config.yaml: mig-configs.All_1g.5gb[0].mig-enable"},
		"in a later document":   {"---\n\n---\n" + strings.Replace(migConfigFile, "v1", "v2", 1), `f: version: is "v2", and v1 is what can be read (line 4)`},
		"a wrong ConfigMap":     {"kind: ConfigMap\nmetadata: {name: a}\ndata: {a: 1}\n", "f: ConfigMap a: data.a: must be a string, not 1"},
		"a wrong Node":          {"kind: Node\nmetadata: {name: a, labels: [b]}\n", "f: Node"},
		"a wrong Pod":           {"kind: Pod\nmetadata: {name: a, annotations: {gpu-fraction: '2'}}\nspec: {containers: [{name: main}]}\n", "f: Pod a: spec: "},
		"a wrong List":          {"kind: List\nitems: {a: b}\n", "f: List"},
		"an entry of a list":    {"kind: List\nitems: [{kind: Secret, metadata: {name: a}}]\n", "f: Secret a: is of no known project"},
		"what is wrong of two":  {shared + "---\nkind: Secret\n", "f: Secret : is of no known project"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read("f", []byte(tt.text))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// Lines are those of the file, wherever the configuration is in it.
func TestLines(t *testing.T) {
	_, err := Read("f", []byte("---\n---\nmigManager:\n  config:\n    data:\n      config.yaml: |\n        mig-configs: {}\n        version: v2\n"))
	require.EqualError(t, err, `f: migManager.config.data, key config.yaml: version: is "v2", and v1 is what can be read (line 8); mig-configs: names no configuration (line 7)`)
	_, err = Read("f", []byte("# a comment\n"+configMapOf("config.yaml", strings.Replace(migConfigFile, "mig-enabled", "mig-enable", 1))))
	require.EqualError(t, err, `f: ConfigMap b/a, key config.yaml: mig-configs.All_1g.5gb[0].mig-enable: unknown key; did you mean mig-enabled? (line 11)`)
	const quoted = `{"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"config.yaml": "version: v2\nmig-configs: {}\n"}}`
	for _, text := range []string{quoted, "kind: List\nitems: [" + quoted + "]\n"} {
		_, err = Read("f", []byte(text))
		require.EqualError(t, err, `f: ConfigMap a, key config.yaml: version: is "v2", and v1 is what can be read; mig-configs: names no configuration`)
	}
}

// A wrong file of the device plugin is no obstacle for the others.
func TestOneWrongFile(t *testing.T) {
	d, err := Read("f", []byte(configMapOf("good", shared)+"  Bad: |\n    flags: {migStrategi: none}\n  _b: |\n    flags: {migStrategi: none}\n"))
	require.NoError(t, err)
	require.Len(t, d, 3)
	require.NoError(t, d[0].Profiles[0].Err)
	for i, name := range []string{"good", "bad", ""} {
		assert.Equal(t, name, d[i].Profiles[0].Name)
	}
	require.ErrorContains(t, d[1].Profiles[0].Err, "ConfigMap b/a, key Bad: flags.migStrategi: unknown key; did you mean migStrategy?")
	require.ErrorContains(t, d[2].Profiles[0].Err, "ConfigMap b/a, key _b: flags.migStrategi: unknown key")
}

func TestObjectName(t *testing.T) {
	for original, want := range map[string]string{
		"all-1g.5gb": "all-1g.5gb", "cpx_nps1_all": "cpx-nps1-all", "NVIDIA-L20": "nvidia-l20", "all-1g.10gb+me": "all-1g.10gb.me",
		"a._b": "", "_a": "", "": "", "a b": "", strings.Repeat("a", 63): strings.Repeat("a", 63), strings.Repeat("a", 64): "",
	} {
		got, err := ObjectName(original)
		assert.Equal(t, want, got, original)
		assert.Equal(t, want == "", err != nil, original)
	}
}

func TestDistinct(t *testing.T) {
	read := func(replicas string) Document {
		d, err := parse(DevicePlugin, "Slice", textOf(strings.Replace(shared, "10", replicas, 1)))
		require.NoError(t, err)
		return d
	}
	documents := []Document{read("10"), read("10")}
	require.NoError(t, Distinct(documents))
	assert.Len(t, documents[0].Profiles, 1)
	assert.Empty(t, documents[1].Profiles, "the same")
	other := read("9")
	other.Name, other.Profiles[0].Original = "g", "slice"
	require.EqualError(t, Distinct([]Document{read("10"), other}), "f, Slice and g, slice both become the PartitionProfile slice: rename one of them, or convert them separately")
}

// A configuration whose name cannot be that of an object is refused, the others are not.
func TestNamesThatCannotBe(t *testing.T) {
	d, err := parse(MIGParted, "", textOf(migConfigFile+"  _a:\n  - devices: all\n    mig-enabled: false\n"))
	require.NoError(t, err)
	require.Len(t, d.Profiles, 2)
	require.NoError(t, d.Profiles[0].Err)
	require.EqualError(t, d.Profiles[1].Err, `"_a" cannot be the name of a PartitionProfile, even in lower case and with - for _: rename it`)
}

// The commands that remain to be run.
func TestNotes(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Node\nmetadata: {name: node-a, labels: {nvidia.com/mig.config: All_Balanced}}\n":                                                                                                             "run: kubectl label node node-a tranche.dev/profile=all-balanced",
		"kind: Node\nmetadata: {name: node-a, labels: {dcm.amd.com/gpu-config-profile: cpx_nps1}}\n":                                                                                                        "run: kubectl label node node-a tranche.dev/profile=cpx-nps1",
		"kind: Node\nmetadata: {name: node-a, labels: {nvidia.com/device-plugin.config: slice-10}}\n":                                                                                                       "run: kubectl label node node-a tranche.dev/profile=slice-10",
		"kind: Node\nmetadata: {name: node-a, labels: {nos.nebuly.com/gpu-partitioning: mps}}\n":                                                                                                            "run: kubectl label node node-a tranche.dev/profile=nos-mps",
		"kind: Node\nmetadata: {name: node-a, labels: {kaiwo.silogen.ai/node.amd.partitioning.enabled: 'true', kaiwo.silogen.ai/node.amd.partitioning.profile: spx}}\n":                                     "run: kubectl label node node-a tranche.dev/profile=spx",
		"kind: Node\nmetadata: {name: node-a, labels: {kaiwo.silogen.ai/node.amd.partitioning.enabled: 'true', kaiwo.silogen.ai/node.amd.partitioning.profile: own, nvidia.com/device-plugin.config: a}}\n": "run: kubectl label node node-a tranche.dev/profile=own; the label nvidia.com/device-plugin.config=a does not count beside Kaiwo's",
		"kind: Node\nmetadata: {name: node-a, labels: {nvidia.com/mig.config: a b}}\n":                                                                                                                      `"a b" cannot be the name of a PartitionProfile, even in lower case and with - for _: rename it`,
		"kind: CompositeElasticQuota\nmetadata: {name: a}\n":                                                                                                                                                "there is no counterpart: a ResourceQuota limits a namespace, and Kueue has quotas that namespaces can borrow from each other",
	} {
		documents, err := Read("f", []byte(text))
		require.NoError(t, err)
		require.Len(t, documents, 1)
		assert.Equal(t, want, strings.Join(documents[0].Notes, "; "))
	}
	for _, text := range []string{"version: v1\nhooks: {apply-start: []}\n", "version: v1\nsystemd-services: [a]\n"} {
		documents, err := Read("f", []byte(text))
		require.NoError(t, err)
		assert.Len(t, documents[0].Notes, 1, text)
		assert.Empty(t, documents[0].Profiles, text)
	}
	documents, err := Read("f", []byte("kind: Node\nmetadata: {name: node-a, labels: {nos.nebuly.com/gpu-partitioning: both}}\n"))
	require.NoError(t, err)
	require.EqualError(t, documents[0].Profiles[0].Err, `unknown nos partitioning mode "both": use mig, mps or hybrid`)
}

// Objects with pods, and those for a DRA driver, are converted as they are.
func TestReadObjects(t *testing.T) {
	for text, want := range map[string]Format{
		"kind: Pod\nspec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}\n":                                                                          Pods,
		"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}\n": NVIDIADRA,
	} {
		documents, err := Read("f", []byte(text))
		require.NoError(t, err)
		require.Len(t, documents, 1)
		assert.Equal(t, want, documents[0].Format)
		assert.NotNil(t, documents[0].Object)
	}
}

func textOf(data string) strict.Text { return strict.Text{File: "f", Data: []byte(data)} }
