package docs_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
)

const (
	profilesPage  = "reference/partitionprofile.md"
	migrationPage = "how-to/migrate-from-device-plugin.md"
)

// The table of keys has every key of a profile's spec.
func TestKeysOfProfiles(t *testing.T) {
	keys := keysOf("", reflect.TypeFor[v1beta1.PartitionProfileSpec]())
	assert.ElementsMatch(t, keys, firstColumn(t, profilesPage, "Keys"))
}

// keysOf are the paths of the keys that hold no others.
func keysOf(path string, t reflect.Type) (found []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return keysOf(path+"[]", t.Elem())
	case t.Kind() != reflect.Struct, t == reflect.TypeFor[metav1.Duration]():
		return []string{path}
	}
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		found = append(found, keysOf(strings.TrimPrefix(path+"."+key, "."), t.Field(i).Type)...)
	}
	return found
}

// The third column of the table of keys says the defaults: a rule that spells them
// out does the same as one that says nothing.
func TestDefaultsOfProfiles(t *testing.T) {
	rule := map[string]any{}
	for line := range strings.Lines(read(t, profilesPage)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`rules[].") {
			continue
		}
		value := code.FindStringSubmatch(cells[3])
		if value == nil {
			continue
		}
		var parsed any
		require.NoError(t, yaml.Unmarshal([]byte(value[1]), &parsed))
		keys := strings.Split(strings.Trim(strings.TrimSpace(cells[1]), "`"), ".")[1:]
		if slices.Contains(keys, "partitions") {
			continue // the default is that there is none
		}
		in := rule
		for _, key := range keys[:len(keys)-1] {
			if in[key] == nil {
				in[key] = map[string]any{}
			}
			in = in[key].(map[string]any)
		}
		in[keys[len(keys)-1]] = parsed
	}
	require.Len(t, rule["sharing"], 6)
	want := profile.Default()
	want.Profile = "p"
	assert.Equal(t, want.Sharing, profileFor(t, "p", map[string]any{"rules": []any{rule}}).Sharing)
	assert.Equal(t, want, profileFor(t, "p", map[string]any{"rules": []any{map[string]any{}}}))
	assert.Equal(t, want.ExtendedResource, profileFor(t, "p", map[string]any{"rules": []any{rule}}).ExtendedResource)
}

// profileFor is what the spec of a profile says of an H100.
func profileFor(t *testing.T, name string, spec any) profile.Desired {
	t.Helper()
	document, err := yaml.Marshal(map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.ProfileKind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	})
	require.NoError(t, err)
	s, err := profile.Parse(name, document)
	require.NoError(t, err)
	return desiredOf(t, s)
}

// desiredOf is the desired state of an H100.
func desiredOf(t *testing.T, s *profile.Profile) profile.Desired {
	t.Helper()
	const address = "0000:1b:00.0"
	desired, err := s.Resolve([]gpu.GPU{{Vendor: gpu.NVIDIA, ProductName: "NVIDIA H100 80GB HBM3", PCIAddress: address}}, nil)
	require.NoError(t, err)
	g := desired[address]
	if len(g.Partitions) == 0 {
		g.Partitions = nil
	}
	return g
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// Every example of settings is one that can be used.
func TestExamplesOfSettings(t *testing.T) {
	examples := 0
	for _, page := range []string{profilesPage, migrationPage} {
		for _, block := range yamlBlock.FindAllStringSubmatch(read(t, page), -1) {
			var values struct {
				Kind     string                                  `json:"kind"`
				Profiles map[string]v1beta1.PartitionProfileSpec `json:"partitionProfiles"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(block[1]), &values), block[1])
			examples++
			switch {
			case values.Kind != "":
				_, err := profile.Parse(page, []byte(block[1]))
				require.NoError(t, err)
			case values.Profiles == nil:
				require.NoError(t, formats.ReadDevicePlugin(page, "page", []byte(block[1])).Err)
			default:
				var raw map[string]map[string]any
				require.NoError(t, yaml.UnmarshalStrict([]byte(block[1]), &raw))
				require.Len(t, raw, 1, "partitionProfiles and nothing else")
				for name, spec := range raw["partitionProfiles"] {
					profileFor(t, name, spec)
				}
			}
		}
	}
	require.Equal(t, 4, examples)
}

// The file and the profile of the migration page say the same.
func TestFileAndProfileSayTheSame(t *testing.T) {
	blocks := yamlBlock.FindAllStringSubmatch(read(t, migrationPage), -1)
	require.Len(t, blocks, 2)
	p := formats.ReadDevicePlugin("f", "slice-10", []byte(blocks[0][1]))
	require.NoError(t, p.Err)
	file, err := profile.FromRules("slice-10", p.Spec.Rules)
	require.NoError(t, err)
	g := desiredOf(t, file)
	var values map[string]map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(blocks[1][1]), &values))
	profile := profileFor(t, "slice-10", values["partitionProfiles"]["slice-10"])
	g.Profile, g.Partitions = profile.Profile, nil
	assert.Equal(t, profile, g)
}

// What the page says is refused is refused in these words.
func TestRefusalsOfSettings(t *testing.T) {
	rows := 0
	in := false
	for line := range strings.Lines(read(t, profilesPage)) {
		if strings.HasPrefix(line, "#") {
			in = strings.TrimSpace(line) == "## Invalid profiles"
		}
		cells := code.FindAllStringSubmatch(line, -1)
		if !in || !strings.HasPrefix(line, "| `") || len(cells) != 2 {
			continue
		}
		rows++
		_, err := profile.Parse("f", []byte("{apiVersion: tranche.dev/v1beta1, kind: PartitionProfile, metadata: {name: f}, spec: {rules: [{"+cells[0][1]+"}]}}"))
		assert.EqualError(t, err, "f: "+cells[1][1])
	}
	assert.Equal(t, 10, rows)

	misspelt, err := yaml.YAMLToJSON([]byte("{flages: {}, sharing: {timeSlicing: {failRequestGreaterThanOne: true}}}"))
	require.NoError(t, err)
	err = formats.ReadDevicePlugin("slice-10", "slice-10", misspelt).Err
	assert.Contains(t, read(t, migrationPage), "> "+err.Error()+"\n")
}
