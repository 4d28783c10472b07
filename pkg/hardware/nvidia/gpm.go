package nvidia

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// wholeGPU stands for a GPU that has no GPU instances.
const wholeGPU = -1

// sample is a sample of the GPU's counters. Two of them tell what happened between them.
type sample struct {
	buffer nvml.GpmSample
	// uuid is that of the partition: another may have the same id later.
	uuid string
	// opened is the opening of NVML that the buffer belongs to.
	opened int64
}

// gpmMetrics are the metrics that are read, in percent.
var gpmMetrics = []struct {
	id      nvml.GpmMetricId
	measure gpu.Measure
}{
	{nvml.GPM_METRIC_GRAPHICS_UTIL, gpu.EngineActive},
	{nvml.GPM_METRIC_SM_UTIL, gpu.ComputeActive},
	{nvml.GPM_METRIC_ANY_TENSOR_UTIL, gpu.TensorActive},
	{nvml.GPM_METRIC_DRAM_BW_UTIL, gpu.MemoryActive},
}

// active reads averages since the last reading, by GPU instance. A GPU in MIG mode has them for
// its instances only, and GPUs before Hopper do not have them.
func (h *measuring) active(parts []session.Part, migOn bool) (map[int]gpu.Measured, error) {
	if supported, err := h.supportsGPM(); err != nil || !supported {
		return nil, err
	}
	found, samples := map[int]gpu.Measured{}, map[int]sample{}
	var failed error
	take := func(id int, uuid string) {
		measured, s, err := h.sample(id, uuid)
		if s.buffer != nil {
			samples[id] = s
		}
		if err != nil && !isUntold(err) && failed == nil {
			failed = err
		}
		found[id] = measured
	}
	if !migOn {
		take(wholeGPU, "")
	}
	for _, part := range parts {
		take(part.Instance, part.UUID)
	}
	h.drop()
	h.kept.samples = samples
	return found, failed
}

// drop frees the last samples, also if the time of the reading is over. Buffers of an NVML that was
// closed cannot be freed any more.
func (h *measuring) drop() {
	for _, s := range h.kept.samples {
		if s.opened == h.reader.session.Opened() {
			h.free(s.buffer)
		}
	}
}

func (h *measuring) free(buffer nvml.GpmSample) {
	_ = session.Tell(h.Task.Undoing(), "GpmSampleFree", func() nvml.Return { return h.NVML.GpmSampleFree(buffer) })
}

// supportsGPM reports whether the GPU has GPM. Drivers before R525 do not have the calls.
func (h *measuring) supportsGPM() (bool, error) {
	if !h.Has("nvmlGpmQueryDeviceSupport") {
		return false, nil
	}
	support, err := session.Ask(h.Task, "GpmQueryDeviceSupport", h.Device.GpmQueryDeviceSupport)
	if isUntold(err) {
		return false, nil
	}
	return support.IsSupportedDevice != 0, err
}

// sample takes a sample of a GPU instance, or of the whole GPU, and compares it with the last.
func (h *measuring) sample(id int, uuid string) (gpu.Measured, sample, error) {
	buffer, err := session.Ask(h.Task, "GpmSampleAlloc", h.NVML.GpmSampleAlloc)
	if err != nil {
		return nil, sample{}, err
	}
	now := sample{buffer: buffer, uuid: uuid, opened: h.reader.session.Opened()}
	if id == wholeGPU {
		err = session.Tell(h.Task, "GpmSampleGet", func() nvml.Return { return h.Device.GpmSampleGet(buffer) })
	} else {
		err = session.Tell(h.Task, "GpmMigSampleGet", func() nvml.Return { return h.Device.GpmMigSampleGet(id, buffer) })
	}
	if err != nil {
		h.free(buffer)
		return nil, sample{}, err
	}
	before, ok := h.kept.samples[id]
	if !ok || before.uuid != now.uuid || before.opened != now.opened {
		return nil, now, nil
	}
	measured, err := h.between(before, now)
	return measured, now, err
}

// between is what happened between two samples.
func (h *measuring) between(before, now sample) (gpu.Measured, error) {
	question := nvml.GpmMetricsGetType{NumMetrics: uint32(len(gpmMetrics)), Sample1: before.buffer, Sample2: now.buffer} //nolint:gosec // a few
	for i, m := range gpmMetrics {
		question.Metrics[i].MetricId = uint32(m.id) //nolint:gosec // a small constant
	}
	if err := session.Tell(h.Task, "GpmMetricsGet", func() nvml.Return { return h.NVML.GpmMetricsGet(&question) }); err != nil {
		return nil, err
	}
	measured := gpu.Measured{}
	for i, m := range gpmMetrics {
		answer := question.Metrics[i]
		if nvml.Return(answer.NvmlReturn) == nvml.SUCCESS && !math.IsNaN(answer.Value) && !math.IsInf(answer.Value, 0) {
			measured[m.measure] = min(1, max(0, answer.Value/100))
		}
	}
	return measured, nil
}
