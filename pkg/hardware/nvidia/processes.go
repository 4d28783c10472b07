package nvidia

import (
	"cmp"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// unknownMemory is NVML_VALUE_NOT_AVAILABLE, which stands for memory that the driver does not
// attribute to a process.
const unknownMemory = ^uint64(0)

type running struct {
	list []gpu.ProcessUsage
	// untold are the devices whose processes NVML does not report.
	untold []string
	// clients are the processes that use MPS.
	clients map[int]bool
}

// processes lists the processes of the GPU, or of each partition, with what they use.
func (h *measuring) processes(parts []session.Part, migOn bool) (*running, error) {
	all := &running{clients: map[int]bool{}}
	if !migOn {
		if err := h.processesOf(h.Device, gpu.NameOf(h.PCIAddress), all); err != nil || len(all.list) == 0 {
			return all, err
		}
		return all, h.utilization(all)
	}
	for _, part := range parts {
		if err := h.processesOf(part.Device, part.Name(), all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// processesOf lists the processes of a device. Clients of MPS are in a list of their own, and with
// driver 580 in both (read on an H100); without MPS, a driver need not have that list.
func (h *measuring) processesOf(device nvml.Device, name string, to *running) error {
	var all []gpu.ProcessUsage
	for _, list := range []struct {
		call string
		get  func() ([]nvml.ProcessInfo, nvml.Return)
		mps  bool
	}{
		{"DeviceGetComputeRunningProcesses", device.GetComputeRunningProcesses, false},
		{"DeviceGetMPSComputeRunningProcesses", device.GetMPSComputeRunningProcesses, true},
	} {
		found, err := session.Ask(h.Task, list.call, list.get)
		if list.mps && session.Unsupported(err) {
			continue
		}
		if isUntold(err) { // also if the partition was destroyed
			to.untold = append(to.untold, name)
			return nil
		}
		if err != nil {
			return err
		}
		for _, p := range found {
			process := gpu.ProcessUsage{PID: int(p.Pid), Device: name, Measured: gpu.Measured{}}
			if p.UsedGpuMemory != unknownMemory {
				process.Measured[gpu.MemoryUsed] = float64(p.UsedGpuMemory)
			}
			all = append(all, process)
			to.clients[process.PID] = to.clients[process.PID] || list.mps
		}
	}
	slices.SortStableFunc(all, func(a, b gpu.ProcessUsage) int { return cmp.Compare(a.PID, b.PID) })
	to.list = append(to.list, slices.CompactFunc(all, func(a, b gpu.ProcessUsage) bool { return a.PID == b.PID })...)
	return nil
}

// utilization adds how much the processes of a GPU without partitions used it in the driver's
// last sample. It lists those that did anything, so the others did nothing. Of clients of MPS it
// lists the server alone (read on an H100 with driver 580), so theirs is not known.
func (h *measuring) utilization(all *running) error {
	if h.kept.seen > micros(time.Now()) {
		h.kept.seen = 0 // the clock was set back
	}
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
	latest := h.kept.latest(samples, micros(time.Now()))
	for _, p := range all.list {
		if all.clients[p.PID] {
			continue
		}
		s := latest[uint32(p.PID)] //nolint:gosec // NVML's own number
		p.Measured[gpu.Utilization], p.Measured[gpu.MemoryUtilization] = percent(s.SmUtil), percent(s.MemUtil)
	}
	return nil
}

// micros is a time as NVML has it.
func micros(t time.Time) uint64 { return uint64(max(0, t.UnixMicro())) } //nolint:gosec // not negative

// latest returns the last sample of each process, and remembers the time of the last of all.
// Drivers sometimes return entries that were not filled in.
func (k *kept) latest(samples []nvml.ProcessUtilizationSample, now uint64) map[uint32]nvml.ProcessUtilizationSample {
	latest := map[uint32]nvml.ProcessUtilizationSample{}
	for _, s := range samples {
		if s.SmUtil > 100 || s.MemUtil > 100 || s.TimeStamp > now {
			continue
		}
		k.seen = max(k.seen, s.TimeStamp)
		if s.TimeStamp >= latest[s.Pid].TimeStamp {
			latest[s.Pid] = s
		}
	}
	return latest
}

// count counts the processes of a device, or of all without a name, if NVML reports them.
func (r *running) count(device string, to gpu.Measured) {
	if device == "" && len(r.untold) > 0 || slices.Contains(r.untold, device) {
		return
	}
	pids := map[int]bool{}
	for _, p := range r.list {
		if device == "" || p.Device == device {
			pids[p.PID] = true
		}
	}
	to[gpu.ProcessCount] = float64(len(pids))
}
