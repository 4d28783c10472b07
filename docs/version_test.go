package docs_test

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var orLater = regexp.MustCompile(`Kubernetes (\d+\.\d+) or later`)

// The chart decides which is the oldest Kubernetes that Tranche runs on; pages and
// programs say the same in the same words.
func TestOldestKubernetes(t *testing.T) {
	found := regexp.MustCompile(`(?m)^kubeVersion: ">=(1\.\d+)\.0-0"$`).FindStringSubmatch(read(t, "../deployments/helm/tranche/Chart.yaml"))
	require.NotNil(t, found)
	oldest := found[1]
	for _, page := range []string{"../README.md", "../CHANGELOG.md", "../deployments/helm/tranche/README.md", "admin/install.md"} {
		text := regexp.MustCompile(`busybox:\S+`).ReplaceAllString(read(t, page), "")
		assert.Contains(t, text, "Kubernetes "+oldest+" or later", page)
		for _, version := range regexp.MustCompile(`\b1\.3\d\b`).FindAllString(text, -1) {
			assert.GreaterOrEqual(t, version, oldest, "%s speaks of a version that the chart refuses", page)
		}
	}
	says := func(where, text string) {
		for _, match := range orLater.FindAllStringSubmatch(text, -1) {
			assert.Equal(t, oldest, match[1], "%s: %s", where, match[0])
		}
		assert.NotRegexp(t, `(?i)at least (Kubernetes )?1\.\d\d`, text, "%s: write \"Kubernetes %s or later\"", where, oldest)
	}
	templates, err := filepath.Glob("../deployments/helm/tranche/templates/*")
	require.NoError(t, err)
	demos, err := filepath.Glob("../demo/*/README.md")
	require.NoError(t, err)
	for _, page := range append(append(pages(t), templates...), demos...) {
		says(page, read(t, page))
	}
	programs := 0
	for _, folder := range []string{"../pkg", "../cmd"} {
		inspect(t, folder, func(n ast.Node) {
			if s, ok := text(n); ok {
				says(folder, s)
				programs += strings.Count(s, "Kubernetes "+oldest+" or later")
			}
		})
	}
	assert.Positive(t, programs, "kubectl tranche says it")
}
