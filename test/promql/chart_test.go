package promql

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The chart as it was rendered for its own tests, with everything turned on.
const (
	rendered  = "../../deployments/helm/testdata/custom.yaml"
	dashboard = "../../deployments/helm/tranche/files/dashboards/tranche.json"
)

// documents decodes the rendered objects of a kind.
func documents[T any](t *testing.T, kind string) (found []T) {
	t.Helper()
	text, err := os.ReadFile(rendered)
	require.NoError(t, err)
	for _, document := range strings.Split(string(text), "\n---\n") {
		var of struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(document), &of))
		if of.Kind == kind {
			var o T
			require.NoError(t, yaml.Unmarshal([]byte(document), &o))
			found = append(found, o)
		}
	}
	require.NotEmpty(t, found, kind)
	return found
}

// monitor is a PodMonitor, as far as it decides about labels.
type monitor struct {
	name        string
	honorLabels bool
}

func monitors(t *testing.T) (found []monitor) {
	t.Helper()
	type podMonitor struct {
		Metadata struct{ Name string }
		Spec     struct {
			PodMetricsEndpoints []struct{ HonorLabels bool }
		}
	}
	for _, m := range documents[podMonitor](t, "PodMonitor") {
		require.Len(t, m.Spec.PodMetricsEndpoints, 1)
		found = append(found, monitor{m.Metadata.Name, m.Spec.PodMetricsEndpoints[0].HonorLabels})
	}
	require.Len(t, found, 3, "plugin, controller, page")
	return found
}

// rule is an alert or a recording rule.
type rule struct {
	Alert, Record, Expr, For string
}

func rules(t *testing.T) (found []rule) {
	t.Helper()
	type prometheusRule struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	for _, o := range documents[prometheusRule](t, "PrometheusRule") {
		for _, g := range o.Spec.Groups {
			found = append(found, g.Rules...)
		}
	}
	return found
}

// since is how long an alert's condition must hold.
func (r rule) since(t *testing.T) time.Duration {
	t.Helper()
	if r.For == "" {
		return 0
	}
	d, err := time.ParseDuration(r.For)
	require.NoError(t, err)
	return d
}

// panel is a panel of the dashboard.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(dashboard)
	require.NoError(t, err)
	var d struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &d))
	return d.Panels
}
