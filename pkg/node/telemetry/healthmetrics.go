package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

var (
	healthyDesc = prometheus.NewDesc(names.MetricGPUHealthy,
		"1 for a healthy GPU, 0 for others, with the cause in the taint unhealthy, or missing.",
		[]string{"gpu", "cause"}, nil)
	unavailableDesc = prometheus.NewDesc(names.MetricGPUUnavailable,
		"1 for each reason why no device of a GPU can be allocated: a taint, or withheld.",
		[]string{"gpu", "reason"}, nil)
)

// Withheld is the reason of a GPU whose devices are not published.
const Withheld = "withheld"

// Health is whether a GPU works, and whether its devices can be allocated.
type Health struct {
	GPU string
	// Cause says why it does not work, empty if it does.
	Cause gpu.Cause
	// Unavailable are the reasons why none of its devices can be allocated: taints without their
	// domain, and Withheld.
	Unavailable []string
}

// HealthCollector serves the health of the GPUs, which it reads at each scrape.
type HealthCollector func() []Health

// Describe implements prometheus.Collector.
func (c HealthCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- healthyDesc
	ch <- unavailableDesc
}

// Collect implements prometheus.Collector.
func (c HealthCollector) Collect(ch chan<- prometheus.Metric) {
	for _, h := range c() {
		healthy := 0.
		if h.Cause == "" {
			healthy = 1
		}
		gauge(ch, healthyDesc, healthy, h.GPU, string(h.Cause))
		for _, reason := range h.Unavailable {
			gauge(ch, unavailableDesc, 1, h.GPU, reason)
		}
	}
}
