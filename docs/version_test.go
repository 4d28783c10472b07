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

// Pages name the versions that the test cluster has.
func TestVersionsOfTheTestCluster(t *testing.T) {
	version := func(file, pattern string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(read(t, "../test/cluster/internal/build/"+file))
		require.NotNil(t, found, pattern)
		return found[1]
	}
	kubernetes, containerd := version("versions.go", `kubernetes = "v(.*)"`), version("versions.go", `Containerd = "v(.*)"`)
	kueue := version("project.go", `"kueue", "v(.*?)"`)
	for page, names := range map[string][]string{
		"../README.md":     {"a real Kubernetes " + kubernetes + " cluster"},
		"admin/install.md": {"Tested with Kubernetes " + kubernetes, "containerd " + containerd},
		"admin/kueue.md":   {"Kueue " + kueue + " and Kubernetes " + kubernetes, "--version " + kueue, "What Kueue " + kueue + " cannot do"},
	} {
		for _, name := range names {
			assert.Contains(t, read(t, page), name, page)
		}
	}
}

// `make test-e2e-versions` notes what ran on which Kubernetes: a line of version, date, number of tests, and those
// that failed. It runs on the oldest one that the chart accepts, and on the newest minor version that all tests use.
func TestTablesOfVersionsThatRan(t *testing.T) {
	var rows [][]string
	for line := range strings.Lines(read(t, "../test/e2e/versions.txt")) {
		words := strings.Fields(line)
		require.GreaterOrEqual(t, len(words), 3, line)
		failed := "none"
		if len(words) > 3 {
			failed = "`" + strings.Join(words[3:], "`, `") + "`"
		}
		rows = append(rows, []string{strings.TrimPrefix(words[0], "v"), words[1], words[2], failed})
	}
	content := "None is recorded yet."
	if len(rows) > 0 {
		content = table([]string{"Kubernetes", "run on", "tests", "failed"}, rows)
	}
	generated(t, "../test/cluster/README.md", "versions", content)

	runs := regexp.MustCompile(`(?m)^K8S_VERSIONS \?= (.*)$`).FindStringSubmatch(read(t, "../Makefile"))
	require.NotNil(t, runs)
	var minors []string
	for version := range strings.FieldsSeq(runs[1]) {
		minors = append(minors, version[:strings.LastIndex(version, ".")])
	}
	chart := regexp.MustCompile(`(?m)^kubeVersion: ">=(1\.\d+)`).FindStringSubmatch(read(t, "../deployments/helm/tranche/Chart.yaml"))
	usual := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (v1\.\d+)\.`).FindStringSubmatch(read(t, "../test/cluster/go.mod"))
	require.NotNil(t, chart)
	require.NotNil(t, usual)
	assert.Contains(t, minors, "v"+chart[1], "the oldest Kubernetes of the chart")
	assert.Contains(t, minors, usual[1], "the Kubernetes of test/cluster")
}
