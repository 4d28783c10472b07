package usage

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Definition is a metric of something that is measured.
type Definition struct {
	Name, Help string
	// DCGM is the field of NVIDIA's DCGM that is the same; empty: there is none.
	DCGM string
	// Measures are what it reports; a GPU has one of them.
	Measures []gpu.Measure
	// Counts: the values only grow while the driver is loaded.
	Counts bool
	// OfGPU: it is about the GPU as hardware, whoever holds it.
	OfGPU bool

	desc *prometheus.Desc
}

// usageLabels are the labels of what is used.
var usageLabels = []string{
	"gpu", "device", "type", "profile", "uuid", "parent_uuid", "gpu_instance_id", "namespace", "pod", "container", "claim",
}

// hardwareLabels are those of what is about the GPU as hardware.
var hardwareLabels = []string{"gpu", "uuid"}

var infoDesc = prometheus.NewDesc(names.MetricGPUInfo,
	"1 for each GPU.",
	append(slices.Clone(hardwareLabels), "model", "vendor", "architecture", "driver_version"), nil)

var throttled = define(Definition{
	Name: names.MetricClocksEventReasons, Help: "1 while a reason lowers the clocks, otherwise 0.",
	DCGM:  "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
	OfGPU: true,
}, append(slices.Clone(hardwareLabels), "reason"))

// definitions are the metrics of what is measured.
var definitions = []Definition{
	define(Definition{
		Name: names.MetricFBUsed, Help: "Memory in use, without what the driver reserves.",
		DCGM:     "DCGM_FI_DEV_FB_USED",
		Measures: []gpu.Measure{gpu.MemoryUsed},
	}, usageLabels),
	define(Definition{
		Name: names.MetricFBTotal, Help: "Memory; of a share, what was allocated.",
		DCGM:     "DCGM_FI_DEV_FB_TOTAL",
		Measures: []gpu.Measure{gpu.MemoryTotal},
	}, usageLabels),
	define(Definition{
		Name: names.MetricGPUUtil, Help: "Time in which anything ran.",
		DCGM:     "DCGM_FI_DEV_GPU_UTIL",
		Measures: []gpu.Measure{gpu.Utilization},
	}, usageLabels),
	define(Definition{
		Name: names.MetricMemCopyUtil, Help: "Time in which memory was accessed.",
		DCGM:     "DCGM_FI_DEV_MEM_COPY_UTIL",
		Measures: []gpu.Measure{gpu.MemoryUtilization},
	}, usageLabels),
	define(Definition{
		Name: names.MetricGREngineActive, Help: "Time in which anything ran, average.",
		DCGM:     "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
		Measures: []gpu.Measure{gpu.EngineActive},
	}, usageLabels),
	define(Definition{
		Name: names.MetricSMActive, Help: "Compute units that worked: average, on AMD at the moment.",
		DCGM:     "DCGM_FI_PROF_SM_ACTIVE",
		Measures: []gpu.Measure{gpu.ComputeActive, gpu.Occupied},
	}, usageLabels),
	define(Definition{
		Name: names.MetricTensorActive, Help: "Time in which tensor cores worked, average.",
		DCGM:     "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
		Measures: []gpu.Measure{gpu.TensorActive},
	}, usageLabels),
	define(Definition{
		Name: names.MetricDRAMActive, Help: "Memory bandwidth that was used, average.",
		DCGM:     "DCGM_FI_PROF_DRAM_ACTIVE",
		Measures: []gpu.Measure{gpu.MemoryActive},
	}, usageLabels),
	define(Definition{
		Name: names.MetricPowerUsage, Help: "Power of a GPU.",
		DCGM:     "DCGM_FI_DEV_POWER_USAGE",
		Measures: []gpu.Measure{gpu.Power},
	}, usageLabels),
	define(Definition{
		Name: names.MetricProcesses, Help: "Processes that use the device.",
		Measures: []gpu.Measure{gpu.ProcessCount},
	}, usageLabels),
	define(Definition{
		Name: names.MetricECCSBE, Help: "Corrected memory errors since the driver was loaded.",
		DCGM:     "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
		Measures: []gpu.Measure{gpu.CorrectedErrors}, Counts: true, OfGPU: true,
	}, hardwareLabels),
	define(Definition{
		Name: names.MetricECCDBE, Help: "Uncorrected memory errors since the driver was loaded.",
		DCGM:     "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
		Measures: []gpu.Measure{gpu.UncorrectedErrors}, Counts: true, OfGPU: true,
	}, hardwareLabels),
}

// define completes a definition.
func define(d Definition, labels []string) Definition {
	d.desc = prometheus.NewDesc(d.Name, d.Help, labels, nil)
	return d
}

// Definitions lists the metrics of what is measured.
func Definitions() []Definition { return append(slices.Clone(definitions), throttled) }

// kind is the type of the metric.
func (d *Definition) kind() prometheus.ValueType {
	if d.Counts {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// value returns the value of the metric, if it is known.
func (d *Definition) value(of gpu.Measured) (float64, bool) {
	for _, measure := range d.Measures {
		if v, known := of[measure]; known {
			return v, true
		}
	}
	return 0, false
}
