package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The chart decides which is the oldest Kubernetes that Tranche runs on; the pages say the same.
func TestOldestKubernetes(t *testing.T) {
	chart, err := os.ReadFile("../deployments/helm/tranche/Chart.yaml")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^kubeVersion: ">=(1\.\d+)\.0-0"$`).FindSubmatch(chart)
	require.NotNil(t, found)
	oldest := string(found[1])
	for _, page := range []string{"../README.md", "../CHANGELOG.md", "../deployments/helm/tranche/README.md", "how-to/install.md"} {
		text, err := os.ReadFile(filepath.Clean(page))
		require.NoError(t, err)
		assert.Contains(t, string(text), "at least "+oldest, page)
		for _, version := range regexp.MustCompile(`\b1\.3\d\b`).FindAllString(regexp.MustCompile(`busybox:\S+`).ReplaceAllString(string(text), ""), -1) {
			assert.GreaterOrEqual(t, version, oldest, "%s speaks of a version that the chart refuses", page)
		}
	}
}
