package helm_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ofLibraries are the metrics that the controller's library has.
var ofLibraries = []string{"controller_runtime_reconcile_errors_total"}

// metricsInCode are the names of the metrics of plugin and controller.
func metricsInCode(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/names/metrics.go", nil, 0)
	require.NoError(t, err)
	found := slices.Clone(ofLibraries)
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			s, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			found = append(found, s)
		}
		return true
	})
	require.Greater(t, len(found), 15)
	return found
}

var (
	metricName = regexp.MustCompile(`\b(?:tranche|controller_runtime|leader_election)_[a-z_]+`)
	ofLabels   = regexp.MustCompile(`\{[^{}]*\}|\bby \([^()]*\)`)
)

// requireMetrics: a query names metrics that there are, and its brackets are closed.
func requireMetrics(t *testing.T, known []string, query string) {
	t.Helper()
	for _, pair := range []string{"()", "{}", "[]"} {
		require.Equal(t, strings.Count(query, pair[:1]), strings.Count(query, pair[1:]), query)
	}
	names := metricName.FindAllString(ofLabels.ReplaceAllString(query, ""), -1)
	require.NotEmpty(t, names, query)
	for _, name := range names {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, found := strings.CutSuffix(name, suffix); found && slices.Contains(known, cut) {
				name = cut
			}
		}
		require.Contains(t, known, name, query)
	}
}

// documentOf returns the only document of a kind, as a map.
func documentOf(t *testing.T, documents []string, kind string) map[string]any {
	t.Helper()
	for _, d := range documents {
		var m map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(d), &m))
		if m["kind"] == kind {
			return m
		}
	}
	require.Fail(t, "no "+kind)
	return nil
}

type alert struct {
	Alert, Record       string
	Expr, For           string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T, args ...string) (found []alert) {
	t.Helper()
	document := documentOf(t, render(t, chart, append(args, "--set", "metrics.prometheusRule.enabled=true")...), "PrometheusRule")
	var rule struct {
		Spec struct {
			Groups []struct{ Rules []alert }
		}
	}
	content, err := json.Marshal(document)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &rule))
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			if r.Record == "" {
				found = append(found, r)
			} else {
				requireMetrics(t, metricsInCode(t), r.Expr)
			}
		}
	}
	return found
}

// TestAlerts: each asks for metrics that there are, says what to do, and links its section of
// the runbook.
func TestAlerts(t *testing.T) {
	known := metricsInCode(t)
	page, err := os.ReadFile("../../docs/at-night.md")
	require.NoError(t, err)
	var inPage []string
	for _, match := range regexp.MustCompile("(?m)^### (Tranche[A-Za-z]+)\n\n(?:Warning|Critical)\\. ").FindAllStringSubmatch(string(page), -1) {
		inPage = append(inPage, match[1])
	}
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		requireMetrics(t, known, a.Expr)
		for _, match := range regexp.MustCompile(`\b(?:state|reason)="([^"]*)"`).FindAllStringSubmatch(a.Expr, -1) {
			assert.Contains(t, valuesInCode(t), match[1], "%s asks for a state or reason that there is not", a.Alert)
		}
		assert.Contains(t, []string{"warning", "critical"}, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.Contains(t, a.Annotations["description"], "kubectl", a.Alert)
		assert.Equal(t, "https://github.com/tranche-dev/tranche/blob/main/docs/at-night.md#"+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
		assert.Regexp(t, `(?i)### `+a.Alert+`\n\n`+a.Labels["severity"]+`\. `, string(page))
	}
	assert.ElementsMatch(t, names, inPage, "docs/at-night.md, Alerts")
}

// valuesInCode are all texts in the code of the controller and of the API.
func valuesInCode(t *testing.T) (found []string) {
	t.Helper()
	for _, pattern := range []string{"../../pkg/controller/*.go", "../../pkg/controller/*/*.go", "../../api/v1beta1/*.go", "../../api/names/*.go"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if s, err := strconv.Unquote(literal.Value); err == nil {
						found = append(found, s)
					}
				}
				return true
			})
		}
	}
	return found
}

// TestDashboard: Grafana can read it, its panels do not overlap, and they ask for
// metrics that there are.
func TestDashboard(t *testing.T) {
	known := metricsInCode(t)
	objects := decode(t, render(t, chart, "--set", "metrics.dashboard.enabled=true"))
	config := named[*corev1.ConfigMap](t, objects, "tranche-dashboard")
	require.Equal(t, "1", config.Labels["grafana_dashboard"])
	var dashboard struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []struct {
			ID          int
			Type, Title string
			Description string
			GridPos     struct{ H, W, X, Y int }
			Datasource  struct{ Type, UID string }
			Targets     []struct{ RefID, Expr string }
		}
	}
	require.Len(t, config.Data, 1)
	require.NoError(t, json.Unmarshal([]byte(config.Data["tranche.json"]), &dashboard))
	require.NotEmpty(t, dashboard.Title)
	require.NotEmpty(t, dashboard.UID)
	require.GreaterOrEqual(t, dashboard.SchemaVersion, 36)
	var variables []string
	for _, v := range dashboard.Templating.List {
		variables = append(variables, v.Name)
	}
	require.Equal(t, []string{"datasource", "node", "product_name", "namespace"}, variables)

	ids, places := map[int]bool{}, map[string]string{}
	asked := ""
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], "panel %d twice", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				place := fmt.Sprint(x, " ", y)
				require.Empty(t, places[place], "%s lies on %s", p.Title, places[place])
				places[place] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			requireMetrics(t, known, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			asked += target.Expr
		}
	}
	for _, name := range known {
		if !slices.Contains([]string{"tranche_claim_operation_phase_duration_seconds", "tranche_share_info", "tranche_share_allocated_ratio"}, name) {
			assert.Contains(t, asked, name, "no panel shows it")
		}
	}
}

// A plugin that measures nothing on purpose is no reason for an alert.
func TestRulesWithoutMeasurements(t *testing.T) {
	on := []string{"--set", "metrics.prometheusRule.enabled=true", "--set", "metrics.podMonitor.enabled=true"}
	require.Contains(t, strings.Join(render(t, chart, on...), ""), "TrancheGPUNotMeasured")
	for _, value := range []string{"extraArgs={--usage-interval=0}", "usage.enabled=false"} {
		off := append(slices.Clone(on), "--set", "kubeletPlugin."+value)
		require.NotContains(t, strings.Join(render(t, chart, off...), ""), "TrancheGPUNotMeasured", value)
	}
}

// TestMonitoringOff: nothing that a cluster without Prometheus Operator refuses.
func TestMonitoringOff(t *testing.T) {
	for _, document := range render(t, chart) {
		require.NotContains(t, document, "monitoring.coreos.com")
	}
}

// TestPodMonitors: they select the pods that there are, by a port that these have.
func TestPodMonitors(t *testing.T) {
	documents := render(t, chart, "--set", "metrics.podMonitor.enabled=true")
	text := strings.Join(documents, "\n")
	require.Equal(t, 2, strings.Count(text, "kind: PodMonitor\n"))
	require.Equal(t, 1, strings.Count(text, "honorLabels: true"), "the plugin's metrics name pods")
	controller := deploymentOf(t, decode(t, documents))
	for _, d := range documents {
		if strings.Contains(d, "kind: PodMonitor\n") && strings.Contains(d, "name: tranche-controller\n") {
			for key, value := range controller.Spec.Selector.MatchLabels {
				require.Contains(t, d, key+": "+value)
			}
			require.Contains(t, d, "port: http\n")
		}
	}
}
