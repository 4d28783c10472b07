package helm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// umbrella writes a chart whose dependency is the chart of Tranche, as a platform team has one,
// and builds it. It returns its folder.
func umbrella(t *testing.T, values string) string {
	t.Helper()
	var about struct{ Version string }
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, chart+"/Chart.yaml")), &about))
	child, err := filepath.Abs(chart)
	require.NoError(t, err)
	parent := filepath.Join(t.TempDir(), "platform")
	require.NoError(t, os.MkdirAll(parent, 0o750))
	for file, text := range map[string]string{
		"Chart.yaml": fmt.Sprintf(`apiVersion: v2
name: platform
version: 1.0.0
dependencies:
  - {name: tranche, version: %s, repository: "file://%s", condition: tranche.enabled}
`, about.Version, child),
		"values.yaml": values,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(parent, file), []byte(text), 0o600))
	}
	_, errOut, err := helm(t, "dependency", "build", parent)
	require.NoError(t, err, errOut)
	return parent
}

// source is the comment that helm writes above each object: the path of its template.
var source = regexp.MustCompile(`(?m)^(---\n)?# Source: .*\n`)

// TestSubchart: as the dependency of another chart, with a condition and with settings for all charts,
// the chart installs what it installs alone.
func TestSubchart(t *testing.T) {
	parent := umbrella(t, `global:
  imageRegistry: registry.example.com
  imagePullSecrets: [{name: mirror}]
  storageClass: fast
  domain: {name: example.com}
tranche:
  controller: {replicas: 3}
`)
	objects := func(chart string, args ...string) (all []string) {
		for _, document := range render(t, chart, append(args, withHooks)...) {
			all = append(all, source.ReplaceAllString(document, ""))
		}
		return all
	}
	alone := objects(chart, "--set", "controller.replicas=3,global.imageRegistry=registry.example.com,global.imagePullSecrets[0].name=mirror")
	require.NotEmpty(t, alone)
	assert.Equal(t, alone, objects(parent), "without the condition's key")
	assert.Equal(t, alone, objects(parent, "--set", "tranche.enabled=true"))
	assert.Empty(t, objects(parent, "--set", "tranche.enabled=false"))

	everything := func(prefix string) []string {
		file := readFile(t, "testdata/custom.values.yaml")
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(file), &values))
		if prefix != "" {
			values = map[string]any{prefix: values}
		}
		text, err := yaml.Marshal(values)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), prefix+"values.yaml")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return []string{"--values", path}
	}
	parent = umbrella(t, "{}\n")
	assert.Equal(t, objects(chart, everything("")...), objects(parent, everything("tranche")...))
}
