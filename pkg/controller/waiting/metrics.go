package waiting

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
)

type metrics struct {
	events            *prometheus.CounterVec
	requests          prometheus.Counter
	pods, unexplained *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricPendingPodEvents,
			Help: "Events that say why a pod waits.",
		}, []string{"reason"}),
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: names.MetricPendingPodRequests,
			Help: "Requests to the API server for these events.",
		}),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: names.MetricPendingPods,
			Help: "Pods that wait because of their claims, by the reason of their event.",
		}, []string{"reason"}),
		unexplained: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: names.MetricPendingPodsUnexplained,
			Help: "Pods that wait and get no event: too many differ (TooMany), or judging them takes too long (TooLong).",
		}, []string{"cause"}),
	}
	if registry != nil {
		registry.MustRegister(m.events, m.requests, m.pods, m.unexplained)
	}
	return m
}

func (m *metrics) set(byReason map[string]int, unexplained map[string]int) {
	m.pods.Reset()
	for reason, n := range byReason {
		m.pods.WithLabelValues(reason).Set(float64(n))
	}
	for cause, n := range unexplained {
		m.unexplained.WithLabelValues(cause).Set(float64(n))
	}
}
