package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Write is one kind of write to the API, such as "gpunodes/status" and "PATCH".
type Write struct{ Resource, Verb string }

func (w Write) String() string { return w.Resource + " " + w.Verb }

// Writes count what was written since the API server started.
type Writes map[Write]int

// ReadWrites asks the API server.
func (c *Cluster) ReadWrites(ctx context.Context) (Writes, error) {
	text, err := c.Core.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseWrites(string(text))
}

// Evicted is the number of evictions that the API server has granted.
var Evicted = Write{"pods/eviction", "granted"}

// parseWrites reads apiserver_request_total. Requests that were refused count as well, dry runs
// do not.
func parseWrites(text string) (Writes, error) {
	metrics, err := parseMetrics(text, "apiserver_request_total")
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	all := Writes{}
	for _, m := range metrics {
		w := Write{Resource: label(m, "resource"), Verb: label(m, "verb")}
		if sub := label(m, "subresource"); sub != "" {
			w.Resource += "/" + sub
		}
		if label(m, "dry_run") == "" && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, w.Verb) {
			all[w] += int(m.GetCounter().GetValue())
			if w.Resource == Evicted.Resource && label(m, "code") == "201" {
				all[Evicted] += int(m.GetCounter().GetValue())
			}
		}
	}
	return all, nil
}

// parseMetrics reads the metrics of one name from what a program publishes.
func parseMetrics(text, name string) ([]*dto.Metric, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	return families[name].GetMetric(), err
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Since is what was written to some resources, or to all if none is named, after an earlier
// reading.
func (w Writes) Since(before Writes, resources ...string) Writes {
	more := Writes{}
	for kind, n := range w {
		if n -= before[kind]; n > 0 && (len(resources) == 0 || slices.Contains(resources, kind.Resource)) {
			more[kind] = n
		}
	}
	return more
}

// Sum is the number of all writes.
func (w Writes) Sum() int {
	n := 0
	for _, count := range w {
		n += count
	}
	return n
}

// Of is the number of writes to some resources.
func (w Writes) Of(resources ...string) int { return w.Since(nil, resources...).Sum() }
