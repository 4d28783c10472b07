package waiting

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
)

// metrics are what is counted.
type metrics struct {
	events *prometheus.CounterVec
	calls  prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, m *memory) *metrics {
	out := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricWaitingPodEvents,
			Help: "Events that say why a pod waits.",
		}, []string{"reason"}),
		calls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: names.MetricWaitingPodCalls,
			Help: "Calls to the API server for these events.",
		}),
	}
	if registry != nil {
		registry.MustRegister(out.events, out.calls, &podCollector{m})
	}
	return out
}

var (
	podsDesc = prometheus.NewDesc(names.MetricWaitingPods,
		"Pods that wait because of their claims, by the reason of their event.", []string{"reason"}, nil)
	leftDesc = prometheus.NewDesc(names.MetricWaitingPodsUnexplained,
		"Pods that wait and get no event: too many differ (TooMany), or judging them takes too long (TooLong).", []string{"reason"}, nil)
)

// podCollector counts the pods when metrics are scraped.
type podCollector struct{ memory *memory }

// Describe implements prometheus.Collector.
func (c *podCollector) Describe(descs chan<- *prometheus.Desc) { descs <- podsDesc; descs <- leftDesc }

// Collect implements prometheus.Collector.
func (c *podCollector) Collect(out chan<- prometheus.Metric) {
	byAnswer, left := c.memory.numbers()
	for answer, n := range byAnswer {
		out <- prometheus.MustNewConstMetric(podsDesc, prometheus.GaugeValue, float64(n), string(answer))
	}
	for reason, n := range left {
		out <- prometheus.MustNewConstMetric(leftDesc, prometheus.GaugeValue, float64(n), reason)
	}
}
