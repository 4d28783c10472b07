package profile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
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

func configOf(replicas string) string {
	return "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: " + replicas + "}]}}"
}

func TestLabelChooses(t *testing.T) {
	configs := map[string]string{"slice-4": configOf("4"), "slice-5.yaml": configOf("5")}
	for name, tt := range map[string]struct {
		configs  map[string]string
		label    string
		replicas int
	}{
		"no label":                {configs, "", 0},
		"device plugin":           {configs, "slice-4", 4},
		"device plugin, .yaml":    {configs, "slice-5", 5},
		"label of a former owner": {nil, "slice-4", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSource(newMount(t, tt.configs).dir).Read(map[string]string{"a": "b", names.LabelDevicePluginConfig: tt.label})
			require.NoError(t, err)
			if tt.replicas == 0 {
				assert.Nil(t, s)
				return
			}
			assert.Equal(t, tt.replicas, s.For(&h100).Replicas)
			assert.Equal(t, "device-plugin config "+tt.label, s.Profile)
		})
	}
}

func TestFolderMayBeMissing(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "none")} {
		s, err := NewSource(dir).Read(map[string]string{names.LabelDevicePluginConfig: "slice"})
		require.NoError(t, err)
		assert.Nil(t, s)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	configs := newMount(t, map[string]string{
		"slice-4": configOf("4"), "bad": "sharings: {}", "large.yaml": "#" + strings.Repeat("x", largestFile),
	})
	require.NoError(t, os.Mkdir(filepath.Join(configs.dir, "dir"), 0o755))
	source := NewSource(configs.dir)
	for name, tt := range map[string]struct{ value, want string }{
		"no such config": {"slice-10", `the node's label nvidia.com/device-plugin.config is "slice-10", but no device plugin configuration has that name; existing ones: bad, dir, large, slice-4`},
		"bad config":     {"bad", configs.dir + "/bad: sharings: unknown key; did you mean sharing?"},
		"too large":      {"large", configs.dir + "/large.yaml: has more than 1048576 bytes"},
		"a folder":       {"dir", "is a directory"},
		"no name":        {"..", "no device plugin configuration has that name"},
		"a path":         {"../slice-4", "no device plugin configuration has that name"},
	} {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{names.LabelDevicePluginConfig: tt.value}
			s, err := source.Read(labels)
			require.ErrorContains(t, err, tt.want)
			assert.Nil(t, s)
			_, again := source.Read(labels)
			assert.Same(t, err, again, "the same error is the same pointer: it is told once")
		})
	}
}

// Nodes without the label have a configuration as upstream's config-manager chooses it.
func TestUnlabelledNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		configs  map[string]string
		fallback string
		label    string
		replicas int
		err      string
	}{
		"named by the chart":           {map[string]string{"a": configOf("4"), "default": configOf("5")}, "a", "", 4, ""},
		"default":                      {map[string]string{"a": configOf("4"), "default": configOf("5")}, "", "", 5, ""},
		"the only one":                 {map[string]string{"a.yaml": configOf("4")}, "", "", 4, ""},
		"the label, and a missing one": {map[string]string{"a": configOf("4")}, "", "b", 0, "existing ones: a"},
	} {
		t.Run(name, func(t *testing.T) {
			byKey := NewConfigMapSource("gpu/configs", func() (map[string]string, error) { return tt.configs, nil })
			for _, source := range []*Source{NewSource(newMount(t, tt.configs).dir), byKey} {
				source.ForUnlabelled(tt.fallback)
				s, err := source.Read(map[string]string{names.LabelDevicePluginConfig: tt.label})
				switch {
				case tt.err != "":
					require.ErrorContains(t, err, tt.err)
				case tt.replicas == 0:
					require.NoError(t, err)
					assert.Nil(t, s)
				default:
					require.NoError(t, err)
					assert.Equal(t, tt.replicas, s.For(&h100).Replicas)
				}
			}
		})
	}
}

// A ConfigMap that cannot be read is an error, so that what it said before stays.
func TestAConfigMapThatCannotBeRead(t *testing.T) {
	data, failure := map[string]string{"a": configOf("4"), "bad": "sharings: {}"}, error(nil)
	source := NewConfigMapSource("gpu/configs", func() (map[string]string, error) { return data, failure })
	a := map[string]string{names.LabelDevicePluginConfig: "a"}
	s, err := source.Read(a)
	require.NoError(t, err)
	assert.Equal(t, 4, s.For(&h100).Replicas)
	again, err := source.Read(a)
	require.NoError(t, err)
	assert.Same(t, s, again)
	_, err = source.Read(map[string]string{names.LabelDevicePluginConfig: "bad"})
	require.ErrorContains(t, err, "ConfigMap gpu/configs key bad: sharings: unknown key")
	failure = errors.New("ConfigMap gpu/configs does not exist")
	_, err = source.Read(a)
	require.ErrorIs(t, err, failure)
	s, err = source.Read(nil)
	require.NoError(t, err, "the node names none")
	assert.Nil(t, s)
}

// What changes in the folder or in the labels is seen, and nothing else is work.
func TestChanges(t *testing.T) {
	m := newMount(t, map[string]string{"a": configOf("2"), "b": configOf("3")})
	source := NewSource(m.dir)
	read := func(name string) *Profile {
		t.Helper()
		s, err := source.Read(map[string]string{names.LabelDevicePluginConfig: name})
		require.NoError(t, err)
		return s
	}
	first := read("a")
	assert.Equal(t, 2, first.For(&h100).Replicas)
	assert.Same(t, first, read("a"))

	m.change(map[string]string{"a": configOf("2"), "c": configOf("9")})
	assert.Same(t, first, read("a"), "another file has changed")

	m.change(map[string]string{"a": configOf("4"), "c": configOf("9")})
	second := read("a")
	assert.Equal(t, 4, second.For(&h100).Replicas)
	assert.Equal(t, 2, first.For(&h100).Replicas, "who keeps the old one keeps it as it was")
	assert.Equal(t, 9, read("c").For(&h100).Replicas)

	m.change(map[string]string{"a": configOf("many")})
	_, err := source.Read(map[string]string{names.LabelDevicePluginConfig: "a"})
	require.ErrorContains(t, err, "sharing.timeSlicing.resources[0].replicas: must be a whole number")
	assert.Equal(t, 4, second.For(&h100).Replicas)

	m.change(map[string]string{"a": configOf("4")})
	assert.Equal(t, 4, read("a").For(&h100).Replicas, "the error is over")
	assert.Nil(t, read(""))
}

// A configuration of the device plugin says nothing of AMD's GPUs, and what it
// does not share is not shared.
func TestDevicePluginConfig(t *testing.T) {
	m := newMount(t, map[string]string{
		"mps":  "flags: {failOnInitError: true}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
		"none": "version: v1",
	})
	s, err := NewSource(m.dir).Read(map[string]string{names.LabelDevicePluginConfig: "mps"})
	require.NoError(t, err)
	assert.Equal(t, Desired{
		Profile: "device-plugin config mps", Shared: true,
		Sharing: gpu.Sharing{Strategy: gpu.MPS, Replicas: 4, MaxClients: DefaultMaxClients, OneClient: true, ExclusiveProcess: true},
		Legacy:  Legacy{Kind: LegacyReplica},
	}, s.For(&h100))
	assert.Equal(t, Default(), s.For(&mi))
	assert.Contains(t, strings.Join(s.Notes, "\n"), "flags.failOnInitError: is not used")

	s, err = NewSource(m.dir).Read(map[string]string{names.LabelDevicePluginConfig: "none"})
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
