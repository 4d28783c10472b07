package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// write is one kind of write to the API: "gpunodes/status PATCH".
type write struct{ resource, verb string }

func (w write) String() string { return w.resource + " " + w.verb }

// writes count what was written since the API server started.
type writes map[write]int

// readWrites asks the API server.
func (c *cluster) readWrites(ctx context.Context) (writes, error) {
	text, err := c.core.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseWrites(string(text))
}

// evicted is the number of evictions that the API server has granted.
var evicted = write{"pods/eviction", "granted"}

// parseWrites reads apiserver_request_total. Requests that were refused count as well, dry runs
// do not.
func parseWrites(text string) (writes, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	all := writes{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		w := write{resource: label(m, "resource"), verb: label(m, "verb")}
		if sub := label(m, "subresource"); sub != "" {
			w.resource += "/" + sub
		}
		if label(m, "dry_run") == "" && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, w.verb) {
			all[w] += int(m.GetCounter().GetValue())
			if w.resource == evicted.resource && label(m, "code") == "201" {
				all[evicted] += int(m.GetCounter().GetValue())
			}
		}
	}
	return all, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// ofSwitches are the resources that a switch writes: those of the controller and the
// plugins, and events. Leases are not among them, nor the status that the kubelet keeps
// of nodes.
var ofSwitches = []string{"gpunodes", "gpunodes/status", "resourceslices", "nodes", "events", "partitionprofiles", "partitionplans", "partitionplans/status"}

// since is what was written for switches after an earlier reading.
func (w writes) since(before writes) writes {
	more := writes{}
	for kind, n := range w {
		if n -= before[kind]; n > 0 && slices.Contains(ofSwitches, kind.resource) {
			more[kind] = n
		}
	}
	return more
}

func (w writes) sum() int {
	n := 0
	for _, count := range w {
		n += count
	}
	return n
}

// of sums up the writes to some resources.
func (w writes) of(resources ...string) int {
	n := 0
	for kind, count := range w {
		if slices.Contains(resources, kind.resource) {
			n += count
		}
	}
	return n
}
