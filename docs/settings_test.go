package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
)

const (
	profilesPage  = "reference/partitionprofile.md"
	migrationPage = "admin/migrate-from-device-plugin.md"
)

// Defaults of the API are those of the code: a rule that spells them out does the same as one
// that says nothing.
func TestDefaultsOfProfiles(t *testing.T) {
	rule := map[string]any{}
	for line := range strings.Lines(read(t, "reference/api.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`rules[].") || !strings.Contains(cells[3], "default `") {
			continue
		}
		var parsed any
		require.NoError(t, yaml.Unmarshal([]byte(code.FindStringSubmatch(cells[3])[1]), &parsed))
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
	require.Len(t, rule["sharing"], 3)
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

// The page quotes how misspelt keys of a file are refused.
func TestRefusalsOfSettings(t *testing.T) {
	misspelt, err := yaml.YAMLToJSON([]byte("{flages: {}, sharing: {timeSlicing: {failRequestGreaterThanOne: true}}}"))
	require.NoError(t, err)
	err = formats.ReadDevicePlugin("slice-10", "slice-10", misspelt).Err
	assert.Contains(t, read(t, migrationPage), "> "+err.Error()+"\n")
}
