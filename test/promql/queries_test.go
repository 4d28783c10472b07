package promql

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quiet are panels that show nothing in a cluster where all is well, and without plans.
var quiet = []string{
	"Nodes whose desired profile is not applied", "Nodes of plans", "Plans that have stopped", "Failures",
	"Repairs and publishing errors", "Lower clocks", "GPUs that are not measured",
	"GPUs that cannot be allocated", "Memory of shares",
}

// with sets the variables of a query.
func with(query, node, product, namespace string) string {
	return strings.NewReplacer("$node", node, "$product_name", product, "$namespace", namespace, "$__rate_interval", "5m").Replace(query)
}

// Each query of the dashboard can be run and finds something, and follows the variables.
func TestDashboard(t *testing.T) {
	c := scraped(t)
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			all := c.ask(with(target.Expr, ".*", ".*", ".*"), ended)
			if !slices.Contains(quiet, p.Title) {
				assert.NotEmpty(t, all, "%s: %s", p.Title, target.Expr)
			}
			for _, s := range all {
				assert.NotEqual(t, "tranche", s.Metric.Get("namespace"), "%s: it is the namespace of the plugin, not of a pod with GPUs", p.Title)
			}
			for _, s := range c.ask(with(target.Expr, "node-b", ".*", ".*"), ended) {
				assert.True(t, !strings.Contains(target.Expr, "$node") || s.Metric.Get("node") != "node-a", "%s: %s", p.Title, s)
			}
			for _, s := range c.ask(with(target.Expr, ".*", ".*", "team-a"), ended) {
				assert.True(t, !strings.Contains(target.Expr, "$namespace") || s.Metric.Get("namespace") != "team-b", "%s: %s", p.Title, s)
			}
			for _, s := range c.ask(with(target.Expr, ".*", "NVIDIA.*", ".*"), ended) {
				assert.True(t, !strings.Contains(target.Expr, "$product_name") || !strings.Contains(s.Metric.Get("product_name"), "AMD"), "%s: %s", p.Title, s)
			}
		}
	}
}

// While one plugin follows another on each node, each query has the same answer as before.
func TestWhilePluginsFollowOthers(t *testing.T) {
	one, two := scraped(t), scrapedOf(t, []string{"x", "y"})
	same := func(title, query string) {
		t.Helper()
		assert.Equal(t, answers(one.ask(query, ended)), answers(two.ask(query, ended)), "%s: %s", title, query)
	}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			same(p.Title, with(target.Expr, ".*", ".*", ".*"))
		}
	}
	for _, r := range rules(t) {
		same(r.Record+r.Alert, r.Expr)
	}
	assert.Len(t, two.ask(`tranche_gpu_info`, ended), 8, "there are two plugins on each node")
	same("docs/reference/metrics.md", `sum by (product_name) (max by (node, gpu) (tranche_free_memory_bytes) * on (node, gpu) group_left (product_name) max by (node, gpu, product_name) (tranche_gpu_info))`)
}

// answers are the values of a query by their labels. Small differences come from the order of sums.
func answers(v promql.Vector) map[string]string {
	found := map[string]string{}
	for _, s := range v {
		found[s.Metric.String()] = fmt.Sprintf("%.9g", s.F)
	}
	return found
}

// Nothing that is about a tenant names the plugin's pod or container.
func TestLabelsOfTenants(t *testing.T) {
	found := scraped(t).ask(`{__name__=~"tranche_.*", namespace!="", namespace!="tranche"}`, ended)
	require.NotEmpty(t, found)
	metrics := map[string]bool{}
	for _, s := range found {
		metrics[s.Metric.Get("__name__")] = true
		assert.NotContains(t, s.Metric.Get("pod"), "plugin", s.Metric)
		assert.NotEqual(t, pluginContainer, s.Metric.Get("container"), s.Metric)
	}
	assert.Contains(t, metrics, "tranche_share_allocated_memory_bytes")
	assert.Contains(t, metrics, "tranche_claim_info")
}

// Where all is well, no alert fires, and each recording rule has a value.
func TestRulesWhereAllIsWell(t *testing.T) {
	c := scraped(t)
	for _, r := range rules(t) {
		found := c.ask(r.Expr, ended)
		if r.Record != "" {
			assert.NotEmpty(t, found, r.Record)
		} else {
			assert.Empty(t, found, r.Alert)
		}
	}
	const gib = 1 << 30
	used := c.values(`sum by (pod) (tranche_memory_used_bytes{namespace!=""})`, "pod")
	assert.ElementsMatch(t, []string{"web", "batch", "dev-1", "dev-2", "finetune", "pretrain"}, keys(used))
	assert.InDelta(t, 4*gib, used["dev-1"], 0)
	assert.InDelta(t, 8*gib, used["finetune"], 0)
	assert.Equal(t, []string{"main"}, keys(c.values(`tranche_memory_used_bytes{pod="web"}`, "container")))
	assert.ElementsMatch(t, []string{"node-a", "node-b"}, keys(c.values(`tranche_gpu_info`, "node")))
	// What is held and what is free make the whole, on each GPU.
	for node, ratio := range c.values(`sum by (node) (tranche_allocated_memory_bytes) / (sum by (node) (tranche_allocated_memory_bytes) + sum by (node) (tranche_free_memory_bytes))`, "node") {
		assert.Greater(t, ratio, 0.2, node)
		assert.Less(t, ratio, 0.9, node)
	}
}

func keys(values map[string]float64) (found []string) {
	for key := range values {
		found = append(found, key)
	}
	slices.Sort(found)
	return found
}

// fires returns the alerts that fire, with one of their labels.
func (c *cluster) fires() map[string]string {
	c.t.Helper()
	found := map[string]string{}
	for _, r := range rules(c.t) {
		if r.Alert == "" {
			continue
		}
		for at := ended; !at.Before(ended.Add(-r.since(c.t))); at = at.Add(-time.Minute) {
			firing := c.ask(r.Expr, at)
			if len(firing) == 0 {
				delete(found, r.Alert)
				break
			}
			found[r.Alert] = firing[0].Metric.Get("node") + firing[0].Metric.Get("reason") + firing[0].Metric.Get("plan")
		}
	}
	return found
}

// Each alert fires when what it is about goes wrong, and no other does.
func TestAlerts(t *testing.T) {
	const gpu = "gpu-0000-1b-00-0"
	late := func(at time.Duration) bool { return at > span/4 }
	set := func(name, key, value string, to float64) change {
		return func(l labels.Labels, at time.Duration, now float64) (float64, bool) {
			if l.Get("__name__") == name && (key == "" || l.Get(key) == value) && late(at) {
				return to, true
			}
			return now, true
		}
	}
	grow := func(name string, matches map[string]string, perMinute float64) change {
		return func(l labels.Labels, at time.Duration, now float64) (float64, bool) {
			if l.Get("__name__") != name {
				return now, true
			}
			for key, value := range matches {
				if l.Get(key) != value {
					return now, true
				}
			}
			return now + perMinute*at.Minutes(), true
		}
	}
	for want, f := range map[string]change{
		"TrancheGPUNotMeasured node-a": func(l labels.Labels, at time.Duration, now float64) (float64, bool) {
			return now, !strings.HasPrefix(l.Get("__name__"), "tranche_memory_") || l.Get("gpu") != gpu || !late(at)
		},
		"TrancheGPUUnhealthy node-a":    set("tranche_gpu_healthy", "gpu", gpu, 0),
		"TrancheGPUMemoryErrors node-a": grow("tranche_ecc_uncorrected_errors_total", map[string]string{"gpu": gpu}, 0.1),
		"TrancheGPUThrottled node-ahw_thermal_slowdown": func(l labels.Labels, at time.Duration, now float64) (float64, bool) {
			if l.Get("__name__") == "tranche_clocks_throttled" && l.Get("gpu") == gpu && l.Get("reason") == "hw_thermal_slowdown" {
				return 1, true
			}
			return now, true
		},
		"TranchePublishFails node-b": grow("tranche_publish_errors_total", map[string]string{"node": "node-b"}, 1),
		"TrancheSwitchFailed ":       set("tranche_gpu_nodes", "state", "Failed", 1),
		"TrancheSwitchOverdue ":      set("tranche_gpu_nodes_overdue", "", "", 1),
		"TrancheControllerErrors ":   grow("controller_runtime_reconcile_errors_total", nil, 5),
		"TrancheControllerAbsent ": func(l labels.Labels, at time.Duration, now float64) (float64, bool) {
			return now, l.Get("__name__") != "tranche_unplanned_switching_nodes_limit" || !late(at)
		},
	} {
		t.Run(want, func(t *testing.T) {
			alert, label, _ := strings.Cut(want, " ")
			assert.Equal(t, map[string]string{alert: label}, scraped(t, f).fires())
		})
	}
}

// Without honorLabels, what a pod uses would be reported of the plugin's pod. A label that is empty
// stays empty.
func TestLabelsOfPods(t *testing.T) {
	target := map[string]string{"namespace": "tranche", "pod": "plugin", "node": "node-a"}
	exposed := labels.New(labels.Label{Name: "__name__", Value: "m"}, labels.Label{Name: "namespace", Value: "team"}, labels.Label{Name: "pod", Value: ""})
	require.Equal(t, "team", attach(exposed, target, true).Get("namespace"))
	require.Empty(t, attach(exposed, target, true).Get("pod"))
	require.Equal(t, "tranche", attach(exposed, target, false).Get("namespace"))
}
