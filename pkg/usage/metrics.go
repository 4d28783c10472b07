package usage

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tranche-dev/tranche/api/names"
)

// read are the metrics that are read, and what they say. Of those for one field, the last wins.
var read = []struct {
	name  string
	field func(*Values) **float64
}{
	{names.MetricMemoryUsed, func(v *Values) **float64 { return &v.MemoryUsed }},
	{names.MetricMemoryTotal, func(v *Values) **float64 { return &v.MemoryTotal }},
	{names.MetricComputeActive, func(v *Values) **float64 { return &v.Compute }},
	// Models before Hopper have no average.
	{names.MetricUtilization, func(v *Values) **float64 { return &v.Engine }},
	{names.MetricEngineActive, func(v *Values) **float64 { return &v.Engine }},
	{names.MetricPower, func(v *Values) **float64 { return &v.Power }},
}

// Metrics are the names of the metrics that Parse reads.
func Metrics() []string {
	names := make([]string, len(read))
	for i, f := range read {
		names[i] = f.name
	}
	return names
}

// Values are what is known of a device, or of what a pod uses of it. In JSON, they have the names of the
// metrics.
type Values struct {
	MemoryUsed  *float64 `json:"memoryUsedBytes,omitempty"`
	MemoryTotal *float64 `json:"memoryTotalBytes,omitempty"`
	// Compute is the part of the compute units that worked, Engine the part of the time in which
	// anything ran, from 0 to 1.
	Compute *float64 `json:"computeActiveRatio,omitempty"`
	Engine  *float64 `json:"engineActiveRatio,omitempty"`
	// Power is in watts.
	Power *float64 `json:"powerWatts,omitempty"`
}

// Row has the values with one set of labels.
type Row struct {
	GPU, Device, Type, UUID, ParentUUID, Instance, Profile string
	// Namespace and Claim are of the holder, and Pod, if it is one pod.
	Namespace, Claim, Pod, Container string
	Values
}

// largest is more than any value that a plugin can measure.
const largest = 1e15

// Parse reads what a plugin's /metrics answers. Other metrics are ignored, and so are values that
// cannot be measured, such as NaN.
func Parse(in io.Reader) ([]Row, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(in)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	rows := map[Row]*Row{}
	for _, f := range read {
		for _, m := range families[f.name].GetMetric() {
			key := labelled(m)
			if rows[key] == nil {
				row := key
				rows[key] = &row
			}
			if value := valueOf(m); value >= 0 && value <= largest {
				*f.field(&rows[key].Values) = &value
			}
		}
	}
	out := make([]Row, 0, len(rows))
	for _, row := range rows {
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.ParentUUID, b.ParentUUID), cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Claim, b.Claim))
	})
	return out, nil
}

func labelled(m *dto.Metric) Row {
	var r Row
	to := map[string]*string{
		"gpu": &r.GPU, "device": &r.Device, "type": &r.Type, "uuid": &r.UUID, "parent_uuid": &r.ParentUUID, "gpu_instance_id": &r.Instance, "profile": &r.Profile,
		"namespace": &r.Namespace, "pod": &r.Pod, "container": &r.Container, "claim": &r.Claim,
	}
	for _, l := range m.GetLabel() {
		if field := to[l.GetName()]; field != nil {
			*field = l.GetValue()
		}
	}
	return r
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetUntyped().GetValue()
}
