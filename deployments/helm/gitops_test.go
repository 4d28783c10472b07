package helm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// fieldOf reads a field of an object that is not typed.
func fieldOf(t *testing.T, document any, path ...string) any {
	t.Helper()
	for _, key := range path {
		m, ok := document.(map[string]any)
		require.True(t, ok && m[key] != nil, "%s in %v", key, document)
		document = m[key]
	}
	return document
}

// TestGitOps: the manifests for Argo CD and Flux install this version of the chart with
// values that it takes, and where no hook runs there is none.
func TestGitOps(t *testing.T) {
	var about struct{ Version string }
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, chart+"/Chart.yaml")), &about))
	for name, tt := range map[string]struct {
		file, kind    string
		values, chart []string
		versionKind   string
		version       []string
		hooks         int
	}{
		"Argo CD": {"argocd.yaml", "Application", []string{"spec", "source", "helm", "valuesObject"}, []string{"spec", "source", "chart"},
			"Application", []string{"spec", "source", "targetRevision"}, 0},
		"Flux": {"flux.yaml", "HelmRelease", []string{"spec", "values"}, []string{"spec", "releaseName"},
			"OCIRepository", []string{"spec", "ref", "tag"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			documents := strings.Split(readFile(t, "../gitops/"+tt.file), "\n---\n")
			release := documentOf(t, documents, tt.kind)
			assert.Equal(t, "tranche", fieldOf(t, release, tt.chart...))
			assert.Equal(t, about.Version, fieldOf(t, documentOf(t, documents, tt.versionKind), tt.version...))
			values, err := yaml.Marshal(fieldOf(t, release, tt.values...))
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "values.yaml")
			require.NoError(t, os.WriteFile(file, values, 0o600))
			assert.Len(t, hooks(t, "--values", file), tt.hooks)
			assert.Equal(t, "registry.example.com/team/tranche:0.1.0", pods(t, "--values", file, "--set", "uninstall.hook.enabled=true")["plugin"].Spec.Containers[0].Image)
		})
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Clean(path))
	require.NoError(t, err)
	return string(content)
}
