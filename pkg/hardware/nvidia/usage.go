package nvidia

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// usageReader reads the usage of the GPUs of a session.
type usageReader struct {
	session *session.Session

	// mu protects gpus.
	mu sync.Mutex
	// gpus has what is kept of each GPU, by PCI address, for the task at its gate.
	gpus map[string]*kept
}

// kept is what is kept of a GPU from one reading to the next.
type kept struct {
	// samples are the last samples, by GPU instance.
	samples map[int]sample
	// seen is the time of the last utilization of processes, in NVML's microseconds.
	seen uint64
}

// Read implements hardware.Driver.
func (r *usageReader) Read(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	return session.OnGPU(ctx, r.session, pciAddress, func(g *session.GPU) (gpu.Usage, error) {
		h := &measuring{GPU: g, reader: r, kept: r.keptOf(pciAddress)}
		return h.read()
	})
}

func (r *usageReader) keptOf(pciAddress string) *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gpus == nil {
		r.gpus = map[string]*kept{}
	}
	if r.gpus[pciAddress] == nil {
		r.gpus[pciAddress] = &kept{samples: map[int]sample{}}
	}
	return r.gpus[pciAddress]
}

// measuring is one GPU during one task.
type measuring struct {
	*session.GPU
	reader *usageReader
	kept   *kept
}

func (h *measuring) read() (gpu.Usage, error) {
	u := gpu.Usage{Measured: gpu.Measured{}}
	if err := h.memory(h.Device, u.Measured); err != nil {
		return u, err
	}
	if err := h.wholeGPU(u.Measured); err != nil {
		return u, err
	}
	var err error
	if u.Throttled, err = h.throttled(); err != nil {
		return u, err
	}
	parts, err := h.Parts()
	if err != nil {
		return u, err
	}
	mode, err := h.Mode()
	if err != nil {
		return u, err
	}
	running, err := h.processes(parts, mode.On)
	if err != nil {
		return u, err
	}
	u.Processes = running.list
	running.count("", u.Measured)
	active, err := h.active(parts, mode.On)
	if err != nil {
		return u, err
	}
	maps.Copy(u.Measured, active[wholeGPU])
	for _, part := range parts {
		p := gpu.PartitionUsage{Partition: part.Partition, Instance: strconv.Itoa(part.Instance), Measured: gpu.Measured{}}
		if err := h.memory(part.Device, p.Measured); err != nil && !isUntold(err) {
			return u, err
		}
		running.count(part.Name(), p.Measured)
		maps.Copy(p.Measured, active[part.Instance])
		u.Partitions = append(u.Partitions, p)
	}
	return u, nil
}

// memory reads the memory of a GPU or a partition. What the driver keeps for itself is not used, as
// in DCGM: version 2 of the call tells it apart, version 1 counts it as used (nvml.h,
// nvmlMemory_v2_t and nvmlMemory_t).
func (h *measuring) memory(device nvml.Device, to gpu.Measured) error {
	v2, err := session.Ask(h.Task, "DeviceGetMemoryInfo_v2", device.GetMemoryInfo_v2)
	if err == nil {
		to[gpu.MemoryUsed], to[gpu.MemoryTotal] = float64(v2.Used), float64(v2.Total)
		return nil
	}
	if !session.OldStructure(err) {
		return err
	}
	v1, err := session.Ask(h.Task, "DeviceGetMemoryInfo", device.GetMemoryInfo)
	if err == nil {
		to[gpu.MemoryUsed], to[gpu.MemoryTotal] = float64(v1.Used), float64(v1.Total)
	}
	if session.Unsupported(err) {
		return nil // see session.GPU.TotalMemory
	}
	return err
}

// wholeGPU reads what NVML reports of whole GPUs only. It does not report the utilization of GPUs in
// MIG mode (nvml.h, nvmlDeviceGetUtilizationRates).
func (h *measuring) wholeGPU(to gpu.Measured) error {
	rates, err := session.Ask(h.Task, "DeviceGetUtilizationRates", h.Device.GetUtilizationRates)
	if err == nil {
		to[gpu.Utilization], to[gpu.MemoryUtilization] = percent(rates.Gpu), percent(rates.Memory)
	} else if !isUntold(err) {
		return err
	}
	power, err := session.Ask(h.Task, "DeviceGetPowerUsage", h.Device.GetPowerUsage)
	if err == nil {
		to[gpu.Power] = float64(power) / 1000
	} else if !isUntold(err) {
		return err
	}
	for measure, kind := range map[gpu.Measure]nvml.MemoryErrorType{
		gpu.CorrectedErrors: nvml.MEMORY_ERROR_TYPE_CORRECTED, gpu.UncorrectedErrors: nvml.MEMORY_ERROR_TYPE_UNCORRECTED,
	} {
		errorCount, err := session.Ask(h.Task, "DeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
			return h.Device.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
		})
		if err == nil {
			to[measure] = float64(errorCount)
		} else if !isUntold(err) {
			return err
		}
	}
	return nil
}

// reasons are those of NVML for lower clocks, in the words of its constants. That the GPU is
// idle, and settings of people, are none that anybody need know.
var reasons = map[string]uint64{
	names.ThrottledSWPowerCap:           nvml.ClocksEventReasonSwPowerCap,
	names.ThrottledHWSlowdown:           nvml.ClocksThrottleReasonHwSlowdown,
	names.ThrottledSyncBoost:            nvml.ClocksEventReasonSyncBoost,
	names.ThrottledSWThermalSlowdown:    nvml.ClocksEventReasonSwThermalSlowdown,
	names.ThrottledHWThermalSlowdown:    nvml.ClocksThrottleReasonHwThermalSlowdown,
	names.ThrottledHWPowerBrakeSlowdown: nvml.ClocksThrottleReasonHwPowerBrakeSlowdown,
}

// throttled reads why the clocks are lower. Drivers before R535 do not have these calls.
func (h *measuring) throttled() (map[string]bool, error) {
	if !h.Has("nvmlDeviceGetCurrentClocksEventReasons") || !h.Has("nvmlDeviceGetSupportedClocksEventReasons") {
		return nil, nil
	}
	supported, err := session.Ask(h.Task, "DeviceGetSupportedClocksEventReasons", h.Device.GetSupportedClocksEventReasons)
	if isUntold(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := session.Ask(h.Task, "DeviceGetCurrentClocksEventReasons", h.Device.GetCurrentClocksEventReasons)
	if isUntold(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for name, bit := range reasons {
		if supported&bit != 0 {
			found[name] = now&bit != 0
		}
	}
	return found, nil
}

// isUntold reports whether an error means that NVML does not report a value. The others are read all
// the same, except of a GPU that is lost or after the session was lost.
func isUntold(err error) bool {
	var call *session.CallError
	return errors.As(err, &call) && !session.Lost(err) && !errors.Is(err, nvml.ERROR_UNINITIALIZED)
}

func percent(n uint32) float64 { return float64(n) / 100 }
