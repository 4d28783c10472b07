package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// mount is a folder as the kubelet mounts a ConfigMap: links to ..data, which is a
// link that is exchanged when the ConfigMap changes.
type mount struct {
	t        *testing.T
	dir      string
	versions int
}

func newMount(t *testing.T, files map[string]string) *mount {
	t.Helper()
	m := &mount{t: t, dir: t.TempDir()}
	m.change(files)
	return m
}

func (m *mount) change(files map[string]string) {
	m.t.Helper()
	m.versions++
	version := "..v" + strings.Repeat("i", m.versions)
	require.NoError(m.t, os.Mkdir(filepath.Join(m.dir, version), 0o755))
	old, err := filepath.Glob(filepath.Join(m.dir, "[^.]*"))
	require.NoError(m.t, err)
	for _, link := range old {
		if _, ok := files[filepath.Base(link)]; !ok {
			require.NoError(m.t, os.Remove(link))
		}
	}
	for name, content := range files {
		require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, version, name), []byte(content), 0o644))
		if link := filepath.Join(m.dir, name); !exists(link) {
			require.NoError(m.t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	require.NoError(m.t, os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	require.NoError(m.t, os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func profileOf(name, replicas string) string {
	return strings.Replace(head, "name: p", "name: "+name, 1) + "spec: {rules: [{sharing: {replicas: " + replicas + "}}]}"
}

func configOf(replicas string) string {
	return "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: " + replicas + "}]}}"
}

const (
	ours   = "tranche.dev/profile"
	theirs = "nvidia.com/device-plugin.config"
)

func TestLabelsChoose(t *testing.T) {
	profiles := map[string]string{"default.yaml": profileOf("default", "2"), "training.yaml": profileOf("training", "3")}
	configs := map[string]string{"slice-4": configOf("4"), "slice-5.yaml": configOf("5")}
	for name, tt := range map[string]struct {
		profiles, configs map[string]string
		labels            map[string]string
		replicas          int
		from              string
	}{
		"nobody":                  {nil, nil, nil, DefaultReplicas, ""},
		"nobody says default":     {map[string]string{"training.yaml": profiles["training.yaml"]}, configs, nil, DefaultReplicas, ""},
		"default":                 {profiles, configs, nil, 2, "PartitionProfile default"},
		"other labels":            {profiles, configs, map[string]string{"a": "b", ours: "", theirs: ""}, 2, "PartitionProfile default"},
		"profile":                 {profiles, configs, map[string]string{ours: "training"}, 3, "PartitionProfile training"},
		"both":                    {profiles, configs, map[string]string{ours: "training", theirs: "slice-4"}, 3, "PartitionProfile training"},
		"device plugin":           {profiles, configs, map[string]string{theirs: "slice-4"}, 4, "device-plugin config slice-4"},
		"device plugin, .yaml":    {profiles, configs, map[string]string{theirs: "slice-5"}, 5, "device-plugin config slice-5"},
		"label of a former owner": {profiles, nil, map[string]string{theirs: "slice-4"}, 2, "PartitionProfile default"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSource(newMount(t, tt.profiles).dir, newMount(t, tt.configs).dir).Read(tt.labels)
			require.NoError(t, err)
			assert.Equal(t, tt.replicas, s.For(&h100).Replicas)
			assert.Equal(t, tt.from, s.Profile)
		})
	}
}

func TestFoldersMayBeMissing(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "none")} {
		s, err := NewSource(dir, dir).Read(map[string]string{theirs: "slice"})
		require.NoError(t, err)
		assert.Equal(t, Default(), s.For(&h100))
		_, err = NewSource(dir, dir).Read(map[string]string{ours: "training"})
		require.EqualError(t, err, `the node's label tranche.dev/profile is "training": there is no PartitionProfile of that name; there are: none`)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	profiles := newMount(t, map[string]string{
		"default.yaml": profileOf("default", "2"), "other.yaml": profileOf("training", "2"), "bad.yaml": "spec: {rule: []}",
		"large.yaml": "#" + strings.Repeat("x", largestFile), "folder": "",
	})
	require.NoError(t, os.Mkdir(filepath.Join(profiles.dir, "dir.yaml"), 0o755))
	configs := newMount(t, map[string]string{"slice-4": configOf("4"), "bad": "sharings: {}"})
	source := NewSource(profiles.dir, configs.dir)
	for name, tt := range map[string]struct{ label, value, want string }{
		"no such profile": {ours, "train", `the node's label tranche.dev/profile is "train": there is no PartitionProfile of that name; there are: bad, default, dir, folder, large, other`},
		"no such config":  {theirs, "slice-10", `the node's label nvidia.com/device-plugin.config is "slice-10": there is no configuration of the device plugin of that name; there are: bad, slice-4`},
		"another name":    {ours, "other", profiles.dir + "/other.yaml: metadata.name: must be other, as the file is named"},
		"bad profile":     {ours, "bad", profiles.dir + "/bad.yaml: spec.rule: unknown key; did you mean rules?"},
		"bad config":      {theirs, "bad", configs.dir + "/bad: sharings: unknown key; did you mean sharing?"},
		"too large":       {ours, "large", profiles.dir + "/large.yaml: has more than 1048576 bytes"},
		"a folder":        {ours, "dir", "is a directory"},
		"no name":         {ours, "..", "there is no PartitionProfile of that name"},
		"a path":          {theirs, "../slice-4", "there is no configuration of the device plugin of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := source.Read(map[string]string{tt.label: tt.value})
			require.ErrorContains(t, err, tt.want)
			assert.Nil(t, s)
			_, again := source.Read(map[string]string{tt.label: tt.value})
			assert.Same(t, err, again, "the same error is the same pointer: it is told once")
		})
	}
}

// What changes in the folder or in the labels is seen, and nothing else is work.
func TestChanges(t *testing.T) {
	m := newMount(t, map[string]string{"default.yaml": profileOf("default", "2"), "b.yaml": profileOf("b", "3")})
	source := NewSource(m.dir, "")
	read := func(label string) *Settings {
		t.Helper()
		s, err := source.Read(map[string]string{ours: label})
		require.NoError(t, err)
		return s
	}
	first := read("")
	assert.Equal(t, 2, first.For(&h100).Replicas)
	assert.Same(t, first, read(""))

	m.change(map[string]string{"default.yaml": profileOf("default", "2"), "c.yaml": profileOf("c", "9")})
	assert.Same(t, first, read(""), "another file has changed")

	m.change(map[string]string{"default.yaml": profileOf("default", "4"), "c.yaml": profileOf("c", "9")})
	second := read("")
	assert.Equal(t, 4, second.For(&h100).Replicas)
	assert.Equal(t, 2, first.For(&h100).Replicas, "who keeps the old ones keeps them as they were")
	assert.Equal(t, 9, read("c").For(&h100).Replicas)

	m.change(map[string]string{"default.yaml": "spec: {rules: [{sharing: {replicas: many}}]}"})
	_, err := source.Read(nil)
	require.ErrorContains(t, err, "spec.rules[0].sharing.replicas: must be a whole number")
	assert.Equal(t, 4, second.For(&h100).Replicas)

	m.change(map[string]string{"default.yaml": profileOf("default", "4")})
	assert.Equal(t, 4, read("").For(&h100).Replicas, "the error is over")

	m.change(nil)
	unset := read("")
	assert.Equal(t, Default(), unset.For(&h100))
	assert.Same(t, unset, read(""))
}

// A configuration of the device plugin says nothing of AMD's cards, and what it
// does not share is not shared.
func TestDevicePluginConfig(t *testing.T) {
	m := newMount(t, map[string]string{
		"mps":  "flags: {failOnInitError: true}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
		"none": "version: v1",
	})
	s, err := NewSource("", m.dir).Read(map[string]string{theirs: "mps"})
	require.NoError(t, err)
	assert.Equal(t, Card{
		Profile: "device-plugin config mps", Shared: true,
		Sharing: gpu.Sharing{Strategy: gpu.MPS, Replicas: 4, MaxClients: DefaultMaxClients, OneClient: true, ExclusiveProcess: true},
		Legacy:  Legacy{Kind: LegacyReplica},
	}, s.For(&h100))
	assert.Equal(t, Default(), s.For(&mi))
	assert.Contains(t, strings.Join(s.Notes, "\n"), "flags.failOnInitError: is not used")

	s, err = NewSource("", m.dir).Read(map[string]string{theirs: "none"})
	require.NoError(t, err)
	assert.False(t, s.For(&h100).Shared)
}

// Whatever the device plugin's reader lets pass, the settings take.
func FuzzParseDevicePlugin(f *testing.F) {
	f.Add([]byte(configOf("4")))
	f.Add([]byte("sharing: {timeSlicing: {renameByDefault: true, resources: [{name: mig-1g.5gb, replicas: 1000}]}}"))
	f.Add([]byte("sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 48}]}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseDevicePlugin("f", "name", data)
		if err != nil {
			require.NotContains(t, err.Error(), "spec.rules", "the error is about what was written")
			return
		}
		sane(t, s.For(&h100), gpu.NVIDIA)
		require.Equal(t, Default(), s.For(&mi))
	})
}
