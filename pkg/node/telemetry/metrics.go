package telemetry

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// Metrics are the metrics of the plugin. All have the label node, the node that it runs on.
type Metrics struct {
	registry      *prometheus.Registry
	registerer    prometheus.Registerer
	phases        *prometheus.HistogramVec
	operations    *prometheus.HistogramVec
	published     *prometheus.GaugeVec
	publishErrors prometheus.Counter
	findings      *prometheus.CounterVec
	ledger        *ledgerCollector
}

// NewMetrics returns the Metrics of a node. records lists the records of the ledger.
func NewMetrics(node string, records func() []ledger.Record) *Metrics {
	// From a millisecond (a verified claim) to the kubelet's limit.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45}
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry: registry, registerer: prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, registry),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    names.MetricClaimOperationPhaseDuration,
			Help:    "Histogram: duration of each phase of Prepare and Unprepare.",
			Buckets: buckets,
		}, []string{"operation", "phase", "result"}),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    names.MetricClaimOperationDuration,
			Help:    "Histogram: duration of Prepare and Unprepare of a claim.",
			Buckets: buckets,
		}, []string{"operation", "result"}),
		published: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: names.MetricPublishedDevices,
			Help: "Devices that the node publishes, overlapping ones included.",
		}, []string{"type", "profile"}),
		publishErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: names.MetricPublishErrors,
			Help: "Failed attempts to publish the node's ResourceSlices.",
		}),
		findings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricReconcileFindings,
			Help: "Repairs by the reconciler; reasons as in the events.",
		}, []string{"reason", "result"}),
		ledger: &ledgerCollector{records: records},
	}
	m.registerer.MustRegister(m.phases, m.operations, m.published, m.publishErrors, m.findings, m.ledger)
	return m
}

// Register adds metrics.
func (m *Metrics) Register(c prometheus.Collector) { m.registerer.MustRegister(c) }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// PublishFailed counts a publication that failed.
func (m *Metrics) PublishFailed() { m.publishErrors.Inc() }

// Finding counts a finding of the reconciler. err says why its repair failed; nil: it did not.
func (m *Metrics) Finding(reason string, err error) {
	m.findings.WithLabelValues(reason, result(err)).Inc()
}

func result(err error) string {
	if err != nil {
		return names.OutcomeFailed
	}
	return names.OutcomeSucceeded
}

// Phase implements claim.Observer.
func (m *Metrics) Phase(operation, phase string, took time.Duration, err error) {
	m.phases.WithLabelValues(operation, phase, result(err)).Observe(took.Seconds())
}

// Operation counts a call of the kubelet for one claim.
func (m *Metrics) Operation(operation string, start time.Time, err error) {
	m.operations.WithLabelValues(operation, result(err)).Observe(time.Since(start).Seconds())
}

// PublishedDevices counts the devices of the last publication.
func (m *Metrics) PublishedDevices(slices []publish.Slice) {
	m.published.Reset()
	for _, slice := range slices {
		for _, device := range slice.Devices {
			if gpu.IsMonitor(device.Name) {
				continue // nobody allocates it
			}
			profile := ""
			if p := device.Attributes["profile"].StringValue; p != nil {
				profile = *p
			}
			m.published.WithLabelValues(*device.Attributes["type"].StringValue, profile).Inc()
		}
	}
}

// OfferedGPUs sets the GPUs of the last publication, with the devices that can be allocated.
func (m *Metrics) OfferedGPUs(gpus []gpu.GPU) { m.ledger.gpus.Store(&gpus) }

// ledgerCollector reports the devices that claims hold, and what is left of the GPUs. It reads the
// ledger at each scrape.
type ledgerCollector struct {
	records func() []ledger.Record
	// gpus are those that are published, nil before they are.
	gpus atomic.Pointer[[]gpu.GPU]
}

var (
	preparedDesc = prometheus.NewDesc(names.MetricPreparedDevices,
		"Devices that claims hold.", []string{"type", "profile"}, nil)
	// container is empty, so that Prometheus does not put the plugin's beside a tenant's pod.
	claimInfoDesc = prometheus.NewDesc(names.MetricClaimInfo,
		"1 for each device that a pod holds.",
		[]string{"namespace", "pod", "container", "claim", "device", "gpu", "type", "profile", "uuid"}, nil)
)

// Describe implements prometheus.Collector.
func (c *ledgerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		preparedDesc, claimInfoDesc, shareInfoDesc, shareMemoryDesc, shareLimitDesc, shareFractionDesc,
		freeMemoryDesc, allocatedMemoryDesc, freeUnitsDesc, allocatedUnitsDesc, freeDevicesDesc, fragmentationDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *ledgerCollector) Collect(ch chan<- prometheus.Metric) {
	records := c.records()
	collectClaims(ch, records)
	if gpus := c.gpus.Load(); gpus != nil {
		collectFree(ch, *gpus, records)
	}
}

func gauge(ch chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	ch <- constMetric(desc, prometheus.GaugeValue, value, labels...)
}

type kind struct {
	deviceType gpu.Type
	profile    string
}

func collectClaims(ch chan<- prometheus.Metric, records []ledger.Record) {
	prepared := map[kind]float64{}
	info := map[claimInfo]bool{}
	for _, r := range records {
		if r.State != ledger.Prepared {
			continue
		}
		for _, d := range r.Devices {
			if !d.Admin {
				prepared[kind{d.Placement.Type, profileLabel(d.Placement)}]++
			}
			addInfo(info, &r, &d)
			collectShare(ch, &r, &d)
		}
	}
	for i := range info {
		gauge(ch, claimInfoDesc, 1, i[:]...)
	}
	for k, n := range prepared {
		gauge(ch, preparedDesc, n, string(k.deviceType), k.profile)
	}
}

// profileLabel is the profile of a partition or of a shared partition. A whole GPU has none,
// although AMD's has the compute mode SPX.
func profileLabel(p gpu.Placement) string {
	if p.Base().Type == gpu.TypeGPU {
		return ""
	}
	return p.Profile
}

// claimInfo is the labels of one sample of tranche_claim_info.
type claimInfo [9]string

// addInfo adds a device once for each of its pods. A duplicate sample would fail the whole
// scrape, and a claim may have one device for two requests, or two pods of the same name: one
// that was deleted and the one that replaces it.
func addInfo(info map[claimInfo]bool, r *ledger.Record, d *ledger.Device) {
	pods := r.PodNames()
	if len(pods) == 0 {
		pods = []string{""}
	}
	for _, pod := range pods {
		info[claimInfo{
			r.Claim.Namespace, pod, "", r.Claim.Name, d.Name, d.Placement.GPUName(),
			string(d.Placement.Type), profileLabel(d.Placement), d.UUID,
		}] = true
	}
}
