package usage

import (
	"cmp"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/instance"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// unknownMemory is NVML_VALUE_NOT_AVAILABLE, which stands for memory that the driver does not
// attribute to a process.
const unknownMemory = ^uint64(0)

// processes lists the processes of the GPU, or of each partition, with what they use.
func (h *handle) processes(parts []instance.Part, migOn bool) ([]gpu.ProcessUsage, error) {
	if !migOn {
		all, err := h.processesOf(h.Device, gpu.NameOf(h.PCIAddress))
		if err != nil || len(all) == 0 {
			return all, err
		}
		return all, h.utilization(all)
	}
	var all []gpu.ProcessUsage
	for _, part := range parts {
		some, err := h.processesOf(part.Device, part.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// processesOf lists the processes of a device. Clients of MPS are in a list of their own, and
// with some drivers in both.
func (h *handle) processesOf(device nvml.Device, name string) ([]gpu.ProcessUsage, error) {
	var all []gpu.ProcessUsage
	for _, list := range []struct {
		call string
		get  func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"DeviceGetComputeRunningProcesses", device.GetComputeRunningProcesses},
		{"DeviceGetMPSComputeRunningProcesses", device.GetMPSComputeRunningProcesses},
	} {
		found, err := session.Ask(h.Task, list.call, list.get)
		if isUntold(err) {
			continue // also if the partition was destroyed
		}
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			process := gpu.ProcessUsage{PID: int(p.Pid), Device: name, Measured: gpu.Measured{}}
			if p.UsedGpuMemory != unknownMemory {
				process.Measured[gpu.MemoryUsed] = float64(p.UsedGpuMemory)
			}
			all = append(all, process)
		}
	}
	slices.SortStableFunc(all, func(a, b gpu.ProcessUsage) int { return cmp.Compare(a.PID, b.PID) })
	return slices.CompactFunc(all, func(a, b gpu.ProcessUsage) bool { return a.PID == b.PID }), nil
}

// utilization adds how much the processes of a GPU without partitions used it in the driver's
// last sample. It lists those that did anything, so the others did nothing.
func (h *handle) utilization(processes []gpu.ProcessUsage) error {
	samples, err := session.Ask(h.Task, "DeviceGetProcessUtilization", func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		found, ret := h.Device.GetProcessUtilization(h.kept.seen)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INSUFFICIENT_SIZE && len(found) == 0 {
			return nil, nvml.SUCCESS // no process did anything
		}
		return found, ret
	})
	if isUntold(err) {
		return nil
	}
	if err != nil {
		return err
	}
	latest := map[uint32]nvml.ProcessUtilizationSample{}
	for _, s := range samples {
		h.kept.seen = max(h.kept.seen, s.TimeStamp)
		// Drivers sometimes return entries that were not filled in.
		if s.SmUtil <= 100 && s.MemUtil <= 100 && s.TimeStamp >= latest[s.Pid].TimeStamp {
			latest[s.Pid] = s
		}
	}
	for _, p := range processes {
		s := latest[uint32(p.PID)] //nolint:gosec // NVML's own number
		p.Measured[gpu.Utilization], p.Measured[gpu.MemoryUtilization] = percent(s.SmUtil), percent(s.MemUtil)
	}
	return nil
}

// count counts the processes of a device, or of all without a name.
func count(processes []gpu.ProcessUsage, device string) int {
	pids := map[int]bool{}
	for _, p := range processes {
		if device == "" || p.Device == device {
			pids[p.PID] = true
		}
	}
	return len(pids)
}
