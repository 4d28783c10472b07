package nvdriver

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// gpmSample is a buffer for a sample of the counters of a GPU or of a GPU instance.
type gpmSample struct {
	nvml.GpmSample

	// of is the GPU and the serial of the instance; zero for the whole GPU.
	device *device
	serial uint64
	// busy is how many percent of the compute units were busy when the sample was taken.
	busy  float64
	freed bool
}

// GpmQueryDeviceSupport: GPM is there from Hopper on (nvml.h).
func (d *device) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	support := nvml.GpmSupport{Version: nvml.GPM_SUPPORT_VERSION}
	if a := architecture(d.gpu().Model); a >= nvml.DEVICE_ARCH_HOPPER && a != nvml.DEVICE_ARCH_UNKNOWN {
		support.IsSupportedDevice = 1
	}
	return support, d.check("GpmQueryDeviceSupport")
}

// GpmSampleAlloc returns an empty buffer.
func (n *NVML) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	return &gpmSample{}, nvml.SUCCESS
}

// GpmSampleFree frees a buffer. To free it twice is an error of the caller.
func (n *NVML) GpmSampleFree(s nvml.GpmSample) nvml.Return {
	sample, ok := s.(*gpmSample)
	if !ok || sample.freed {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	sample.freed = true
	return nvml.SUCCESS
}

// GpmSampleGet is NOT_SUPPORTED in MIG mode: its instances have counters of their own.
func (d *device) GpmSampleGet(s nvml.GpmSample) nvml.Return {
	return d.takeSample(s, func(st *nvstate.State, g *nvstate.GPU, sample *gpmSample) nvml.Return {
		if g.MIGMode {
			return nvml.ERROR_NOT_SUPPORTED
		}
		sample.serial, sample.busy = 0, d.busy(st, nil)
		return nvml.SUCCESS
	})
}

// GpmMigSampleGet reads the counters of a GPU instance.
func (d *device) GpmMigSampleGet(id int, s nvml.GpmSample) nvml.Return {
	return d.takeSample(s, func(st *nvstate.State, g *nvstate.GPU, sample *gpmSample) nvml.Return {
		i, ok := g.Instance(id)
		if !ok {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		sample.serial, sample.busy = i.Serial, d.busy(st, i)
		return nvml.SUCCESS
	})
}

func (d *device) takeSample(s nvml.GpmSample, take func(*nvstate.State, *nvstate.GPU, *gpmSample) nvml.Return) nvml.Return {
	sample, ok := s.(*gpmSample)
	if !ok || sample.freed {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	st, g, ret := d.viewState("GpmSampleGet")
	if ret != nvml.SUCCESS {
		return ret
	}
	sample.device = d
	return take(st, g, sample)
}

// GpmMetricsGet compares two samples of the same thing. What it says of the time between them
// is the mean of both.
func (n *NVML) GpmMetricsGet(q *nvml.GpmMetricsGetType) nvml.Return {
	a, ok := q.Sample1.(*gpmSample)
	b, ok2 := q.Sample2.(*gpmSample)
	if !ok || !ok2 || a.freed || b.freed || a.device == nil || a.device != b.device || a.serial != b.serial {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	busy := (a.busy + b.busy) / 2
	for i := range q.NumMetrics {
		m := &q.Metrics[i]
		switch nvml.GpmMetricId(m.MetricId) {
		case nvml.GPM_METRIC_GRAPHICS_UTIL:
			m.Value = min(100, 1.25*busy)
		case nvml.GPM_METRIC_SM_UTIL:
			m.Value = busy
		case nvml.GPM_METRIC_ANY_TENSOR_UTIL:
			m.Value = busy / 2
		case nvml.GPM_METRIC_DRAM_BW_UTIL:
			m.Value = busy / 4
		default:
			m.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		}
	}
	return nvml.SUCCESS
}
