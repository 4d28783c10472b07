package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Definition is a metric of something that is measured.
type Definition struct {
	Name string
	// DCGM is the field of NVIDIA's DCGM that is the same; empty: there is none.
	DCGM string
	// measures are what it reports; a GPU has one of them.
	measures []gpu.Measure
	desc     *prometheus.Desc
}

func define(name, help string, labels []string, dcgm string, measures ...gpu.Measure) Definition {
	return Definition{Name: name, DCGM: dcgm, measures: measures, desc: prometheus.NewDesc(name, help, labels, nil)}
}

// usageLabels are the labels of what is used.
var usageLabels = []string{
	"gpu", "device", "type", "profile", "uuid", "parent_uuid", "gpu_instance_id", "namespace", "pod", "container", "claim",
}

// hardwareLabels are those of what is about the GPU as hardware.
var hardwareLabels = []string{"gpu", "uuid"}

var gpuInfoDesc = prometheus.NewDesc(names.MetricGPUInfo,
	"1 for each GPU.",
	append(slices.Clone(hardwareLabels), "product_name", "vendor", "architecture", "driver_version"), nil)

// ofHolders are the metrics of GPUs, partitions and shares.
var ofHolders = []Definition{
	define(names.MetricMemoryUsed, "Memory in use, without what the driver reserves.", usageLabels, "DCGM_FI_DEV_FB_USED", gpu.MemoryUsed),
	define(names.MetricMemoryTotal, "Memory; of a share, what was allocated.", usageLabels, "DCGM_FI_DEV_FB_TOTAL", gpu.MemoryTotal),
	define(names.MetricUtilization, "Time in which anything ran.", usageLabels, "DCGM_FI_DEV_GPU_UTIL", gpu.Utilization),
	define(names.MetricMemoryAccess, "Time in which memory was accessed.", usageLabels, "DCGM_FI_DEV_MEM_COPY_UTIL", gpu.MemoryUtilization),
	define(names.MetricEngineActive, "Time in which anything ran, average.", usageLabels, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu.EngineActive),
	define(names.MetricComputeActive, "Compute units that worked: average, on AMD at the moment.", usageLabels, "DCGM_FI_PROF_SM_ACTIVE", gpu.ComputeActive, gpu.Occupied),
	define(names.MetricTensorActive, "Time in which tensor cores worked, average.", usageLabels, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gpu.TensorActive),
	define(names.MetricMemoryBandwidth, "Memory bandwidth that was used, average.", usageLabels, "DCGM_FI_PROF_DRAM_ACTIVE", gpu.MemoryActive),
	define(names.MetricPower, "Power of a GPU.", usageLabels, "DCGM_FI_DEV_POWER_USAGE", gpu.Power),
	define(names.MetricProcesses, "Processes that use the device.", usageLabels, "", gpu.ProcessCount),
}

// ofHardware are those of the GPU as hardware, whoever holds it.
var ofHardware = []Definition{
	define(names.MetricECCCorrected, "Corrected memory errors since the driver was loaded.", hardwareLabels, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu.CorrectedErrors),
	define(names.MetricECCUncorrected, "Uncorrected memory errors since the driver was loaded.", hardwareLabels, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu.UncorrectedErrors),
}

var throttled = define(names.MetricClocksThrottled, "1 while a reason lowers the clocks, otherwise 0.",
	append(slices.Clone(hardwareLabels), "reason"), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")

// Definitions lists the metrics of what is measured.
func Definitions() []Definition { return append(slices.Concat(ofHolders, ofHardware), throttled) }

// report reports the metric if its value is known. What is counted only grows while the driver is
// loaded.
func (d *Definition) report(ch chan<- prometheus.Metric, measured gpu.Measured, labels ...string) {
	kind := prometheus.GaugeValue
	if strings.HasSuffix(d.Name, "_total") {
		kind = prometheus.CounterValue
	}
	for _, measure := range d.measures {
		if value, known := measured[measure]; known {
			ch <- constMetric(d.desc, kind, value, labels...)
			return
		}
	}
}

// constMetric makes a metric. Prometheus refuses all metrics if a label is not UTF-8, and names of
// drivers may not be.
func constMetric(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "")
	}
	return prometheus.MustNewConstMetric(d, kind, value, labels...)
}

var _ prometheus.Collector = (*Sampler)(nil)

// Describe implements prometheus.Collector.
func (s *Sampler) Describe(ch chan<- *prometheus.Desc) {
	ch <- gpuInfoDesc
	for _, d := range Definitions() {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector. What a claim had when it was measured is reported only
// while the claim still holds it.
func (s *Sampler) Collect(ch chan<- prometheus.Metric) {
	now := whoHolds(s.Records())
	for _, g := range s.GPUs() {
		gauge(ch, gpuInfoDesc, 1, g.Name(), g.UUID, g.ProductName, string(g.Vendor), g.Architecture, g.DriverVersion)
		last, containers := s.fresh(g.PCIAddress)
		if last == nil {
			continue
		}
		for i := range ofHardware {
			ofHardware[i].report(ch, last.Measured, g.Name(), g.UUID)
		}
		for reason, applies := range last.Throttled {
			value := 0.
			if applies {
				value = 1
			}
			gauge(ch, throttled.desc, value, g.Name(), g.UUID, reason)
		}
		for _, r := range last.rows {
			if !r.isHeldAsThen(now) {
				if r.deviceType != string(gpu.TypeGPU) {
					continue
				}
				r = r.ofAnyone()
			}
			for i := range ofHolders {
				ofHolders[i].report(ch, r.measured, r.gpu, r.device, r.deviceType, r.profile, r.uuid, r.parentUUID, r.instance,
					r.namespace, r.pod, containers.of(r.users), r.claim)
			}
		}
	}
}
