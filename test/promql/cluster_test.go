package promql

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"
)

const (
	// span is how long the recorded cluster was scraped, step how often.
	span = 2 * time.Hour
	step = 30 * time.Second
)

var (
	began = time.Unix(1_800_000_000, 0)
	ended = began.Add(span)
)

// pluginContainer is the container of plugins and controller.
const pluginContainer = "plugin"

// stopCounting keeps what is counted as it is at first.
func stopCounting(l labels.Labels, at time.Duration, value float64) (float64, bool) {
	if counts(l) {
		return value / float64(1+at/step), true
	}
	return value, true
}

// counts reports whether a sample grows with time.
func counts(l labels.Labels) bool {
	name := l.Get("__name__")
	return strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_bucket")
}

// change alters a sample of a scrape, or drops it. at is the time since the first scrape.
type change func(l labels.Labels, at time.Duration, value float64) (float64, bool)

// cluster is a Prometheus that has scraped the recorded plugins and the controller.
type cluster struct {
	t      *testing.T
	db     *teststorage.TestStorage
	engine *promql.Engine
}

// scraped lets Prometheus scrape what is recorded, as the chart's PodMonitors say.
func scraped(t *testing.T, changes ...change) *cluster {
	t.Helper()
	return scrapedOf(t, []string{"x"}, changes...)
}

// scrapedOf is scraped with several pods of each plugin, as while one follows another. The second
// has counted nothing yet.
func scrapedOf(t *testing.T, pods []string, changes ...change) *cluster {
	t.Helper()
	c := &cluster{t: t, db: teststorage.New(t), engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})}
	t.Cleanup(func() { require.NoError(t, c.engine.Close()) })
	for _, monitor := range monitors(t) {
		for _, node := range []string{"node-a", "node-b"} {
			file, target := node, map[string]string{"job": "tranche/" + monitor.name, "namespace": "tranche", "container": pluginContainer}
			switch {
			case strings.HasSuffix(monitor.name, "-controller") && node == "node-a":
				file = "controller"
			case strings.HasSuffix(monitor.name, "-controller"), strings.HasSuffix(monitor.name, "-web"):
				continue // the page reports nothing about GPUs
			}
			for i, pod := range pods {
				if i > 0 && file == "controller" {
					break // one leads
				}
				target["pod"], target["instance"] = monitor.name+"-"+pod, node+"-"+pod+":8080"
				altered := changes
				if i > 0 {
					altered = append([]change{stopCounting}, changes...)
				}
				c.store(file, target, monitor.honorLabels, altered)
			}
		}
	}
	// What other parts of the controller report, which is not recorded.
	for _, l := range []labels.Labels{
		labels.FromStrings("__name__", "controller_runtime_reconcile_errors_total", "controller", "gpunode"),
		labels.FromStrings("__name__", "tranche_pending_pods", "reason", "Waits"),
		labels.FromStrings("__name__", "tranche_pending_pods_unexplained", "cause", "TooMany"),
		labels.FromStrings("__name__", "tranche_pending_pod_events_total", "reason", "Waits"),
		labels.FromStrings("__name__", "tranche_pending_pod_api_requests_total"),
		labels.FromStrings("__name__", "tranche_defragmentations_total", "result", "Succeeded"),
		labels.FromStrings("__name__", "tranche_defragmentation_evictions_total", "result", "Evicted"),
	} {
		c.append(l, 1, changes)
	}
	return c
}

// store appends a recorded scrape for each time that it was made.
func (c *cluster) store(file string, target map[string]string, honor bool, changes []change) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file+".txt"))
	require.NoError(c.t, err)
	parser, err := textparse.New(text, "text/plain; version=0.0.4", labels.NewSymbolTable(), textparse.ParserOptions{})
	require.NoError(c.t, err)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(c.t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parser.Series()
		var exposed labels.Labels
		parser.Labels(&exposed)
		c.append(attach(exposed, target, honor), value, changes)
	}
}

// attach adds the labels of a target, as Prometheus does (mutateSampleLabels in scrape/scrape.go):
// with honorLabels, those of the sample stay, also if they are empty.
func attach(exposed labels.Labels, target map[string]string, honor bool) labels.Labels {
	b := labels.NewBuilder(exposed)
	for name, value := range target {
		switch {
		case !exposed.Has(name):
			b.Set(name, value)
		case !honor:
			b.Set("exported_"+name, exposed.Get(name))
			b.Set(name, value)
		}
	}
	return b.Labels()
}

func (c *cluster) append(l labels.Labels, value float64, changes []change) {
	c.t.Helper()
	appender := c.db.Appender(c.t.Context())
	for at := time.Duration(0); at <= span; at += step {
		now, keep := value, true
		if counts(l) {
			now *= float64(1 + at/step)
		}
		for _, f := range changes {
			if keep {
				now, keep = f(l, at, now)
			}
		}
		if keep {
			_, err := appender.Append(0, l, began.Add(at).UnixMilli(), now)
			require.NoError(c.t, err)
		}
	}
	require.NoError(c.t, appender.Commit())
}

// ask runs a query at a time.
func (c *cluster) ask(query string, at time.Time) promql.Vector {
	c.t.Helper()
	q, err := c.engine.NewInstantQuery(c.t.Context(), c.db, nil, query, at)
	require.NoError(c.t, err, query)
	defer q.Close()
	answer := q.Exec(c.t.Context())
	require.NoError(c.t, answer.Err, query)
	require.Empty(c.t, answer.Warnings.AsErrors(), query)
	v, err := answer.Vector()
	require.NoError(c.t, err, query)
	copied := make(promql.Vector, len(v))
	copy(copied, v)
	return copied
}

// values are the answers to a query now, by a label.
func (c *cluster) values(query, label string) map[string]float64 {
	c.t.Helper()
	found := map[string]float64{}
	for _, s := range c.ask(query, ended) {
		found[s.Metric.Get(label)] = s.F
	}
	return found
}
