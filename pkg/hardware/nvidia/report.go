package nvidia

import (
	"context"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/report"
)

// Report reads everything. GPUs that do not answer are in it with the reason;
// it fails only when NVML itself does.
func (d *Driver) Report(ctx context.Context) (report.Report, error) {
	count, err := d.count(ctx)
	if err != nil {
		return report.Report{}, err
	}
	driver := report.Driver{Vendor: gpu.NVIDIA}
	_, err = through(ctx, d, d.library, func(t *task) (struct{}, error) {
		var err error
		if driver.Version, err = ask(t, "SystemGetDriverVersion", t.nvml.SystemGetDriverVersion); err != nil {
			return struct{}{}, err
		}
		cuda, err := ask(t, "SystemGetCudaDriverVersion", t.nvml.SystemGetCudaDriverVersion)
		driver.CUDAVersion = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
		return struct{}{}, err
	})
	if err != nil {
		return report.Report{}, err
	}
	r := report.Report{Drivers: []report.Driver{driver}, GPUs: make([]report.GPU, count)}
	var wait sync.WaitGroup
	for index := range count {
		wait.Go(func() { r.GPUs[index] = d.reportGPU(ctx, index) })
	}
	wait.Wait()
	return r, nil
}

func (d *Driver) reportGPU(ctx context.Context, index int) report.GPU {
	address, err := d.address(ctx, index)
	if err == nil {
		var r report.GPU
		if r, err = onGPU(ctx, d, address, func(c *gpuHandle) (report.GPU, error) { return c.report(index), nil }); err == nil {
			return r
		}
	} else {
		address = d.addressSeen(index)
	}
	r := report.GPU{Vendor: gpu.NVIDIA, PCIAddress: address, ID: nvmlIndex(index), Unhealthy: err.Error()}
	if address != "" {
		r.Name = gpu.GPUName(address)
	}
	return r
}

func nvmlIndex(index int) string { return fmt.Sprintf("NVML index %d", index) }

// reporter collects what could not be read.
type reporter struct {
	*gpuHandle
	errors []string
}

// told makes one call for a report. What the GPU does not tell is nil, and a
// call that failed is noted.
func told[T any](r *reporter, call string, f func() (T, nvml.Return)) *T {
	value, err := ask(r.task, call, f)
	if err == nil {
		return &value
	}
	r.note(err)
	return nil
}

func (r *reporter) note(err error) {
	if err != nil && !unsupported(err) {
		r.errors = append(r.errors, err.Error())
	}
}

func orZero[T any](value *T) T {
	if value == nil {
		var none T
		return none
	}
	return *value
}

func (c *gpuHandle) report(index int) report.GPU {
	r := &reporter{gpuHandle: c}
	g := report.GPU{
		Name: gpu.GPUName(c.pciAddress), Vendor: gpu.NVIDIA, PCIAddress: c.pciAddress, ID: nvmlIndex(index),
		UUID:        orZero(told(r, "DeviceGetUUID", c.device.GetUUID)),
		ProductName: orZero(told(r, "DeviceGetName", c.device.GetName)),
		Memory:      r.memory(),
		Temperature: told(r, "DeviceGetTemperature", func() (uint32, nvml.Return) { return c.device.GetTemperature(nvml.TEMPERATURE_GPU) }),
		ECC:         r.ecc(),
	}
	if minor := told(r, "DeviceGetMinorNumber", c.device.GetMinorNumber); minor != nil {
		g.DeviceNode = fmt.Sprintf("/dev/nvidia%d", *minor)
	}
	if u := told(r, "DeviceGetUtilizationRates", c.device.GetUtilizationRates); u != nil {
		g.Utilization = &report.Utilization{Compute: u.Gpu, Memory: u.Memory}
	}
	if draw := told(r, "DeviceGetPowerUsage", c.device.GetPowerUsage); draw != nil {
		g.Power = &report.Power{Draw: *draw, Limit: orZero(told(r, "DeviceGetEnforcedPowerLimit", c.device.GetEnforcedPowerLimit))}
	}
	if on := told(r, "DeviceGetPersistenceMode", c.device.GetPersistenceMode); on != nil {
		persistence := *on == nvml.FEATURE_ENABLED
		g.Persistence = &persistence
	}
	if mode := told(r, "DeviceGetComputeMode", c.device.GetComputeMode); mode != nil {
		g.ComputeMode = computeModeName(*mode)
	}
	if mode, err := c.migMode(); err != nil {
		r.note(err)
	} else if mode.capable {
		g.MIG = &report.Switch{On: mode.on, Pending: mode.pending}
	}
	g.Partitions, g.Processes = r.partitions(), r.processReports()
	if _, err := c.examine(); err != nil {
		g.Unhealthy = err.Error()
	}
	g.Errors = r.errors
	return g
}

func computeModeName(mode nvml.ComputeMode) string {
	switch mode {
	case nvml.COMPUTEMODE_DEFAULT:
		return "default"
	case nvml.COMPUTEMODE_EXCLUSIVE_THREAD:
		return "exclusive thread"
	case nvml.COMPUTEMODE_PROHIBITED:
		return "prohibited"
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return "exclusive process"
	}
	return fmt.Sprint(int(mode))
}

// memory is that of the whole GPU.
func (r *reporter) memory() *report.Memory {
	v2, err := ask(r.task, "DeviceGetMemoryInfo_v2", func() (nvml.Memory_v2, nvml.Return) { return r.device.GetMemoryInfo_v2() })
	if err == nil {
		return &report.Memory{Total: v2.Total, Used: &v2.Used, Reserved: v2.Reserved}
	}
	v1 := told(r, "DeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) { return r.device.GetMemoryInfo() })
	if v1 == nil {
		return nil
	}
	return &report.Memory{Total: v1.Total, Used: &v1.Used}
}

func (r *reporter) ecc() *report.ECC {
	modes := told(r, "DeviceGetEccMode", func() (report.Switch, nvml.Return) {
		current, pending, ret := r.device.GetEccMode()
		return report.Switch{On: current == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED}, ret
	})
	if modes == nil {
		return nil
	}
	ecc := &report.ECC{Switch: modes}
	if !modes.On {
		return ecc
	}
	ecc.Uncorrected = told(r, "DeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return r.device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	rows := told(r, "DeviceGetRemappedRows", func() ([2]bool, nvml.Return) {
		_, _, pending, failed, ret := r.device.GetRemappedRows()
		return [2]bool{pending, failed}, ret
	})
	if rows != nil {
		ecc.RemapPending, ecc.RemapFailed = rows[0], rows[1]
	}
	return ecc
}

func (r *reporter) partitions() []report.Partition {
	instances, err := r.instances()
	r.note(err)
	if len(instances) == 0 {
		return nil
	}
	all := make([]report.Partition, 0, len(instances))
	for _, i := range instances {
		p := i.partition(r.pciAddress)
		part := report.Partition{Name: p.Name(), Type: p.Type, ID: p.ID, Profile: p.Profile, Start: p.Start, Size: p.Size}
		for _, ci := range i.compute {
			part.UUIDs = append(part.UUIDs, ci.uuid)
			if part.Memory == nil && ci.uuid != "" {
				part.Memory = r.memoryOf(ci.uuid)
			}
		}
		if len(i.compute) == 0 {
			part.HalfMade = "no compute instance"
		}
		all = append(all, part)
	}
	return all
}

// memoryOf is that of a GPU instance, which the MIG devices in it share.
func (r *reporter) memoryOf(uuid string) *report.Memory {
	device := told(r, "DeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) { return r.nvml.DeviceGetHandleByUUID(uuid) })
	if device == nil {
		return nil
	}
	memory := told(r, "DeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) { return (*device).GetMemoryInfo() })
	if memory == nil {
		return nil
	}
	return &report.Memory{Total: memory.Total, Used: &memory.Used}
}

func (r *reporter) processReports() []report.Process {
	processes, err := r.processes()
	r.note(err)
	if len(processes) == 0 {
		return nil
	}
	all := make([]report.Process, 0, len(processes))
	for _, p := range processes {
		process := report.Process{PID: int(p.Pid)}
		// The driver knows no name where this process does not see that one.
		process.Name, _ = ask(r.task, "SystemGetProcessName", func() (string, nvml.Return) { return r.nvml.SystemGetProcessName(int(p.Pid)) })
		if p.UsedGpuMemory != notAvailable {
			process.Memory = &p.UsedGpuMemory
		}
		if p.GpuInstanceId != noInstance {
			process.Partition = instanceName(int(p.GpuInstanceId))
		}
		all = append(all, process)
	}
	return all
}

// notAvailable stands where NVML has no number (NVML_VALUE_NOT_AVAILABLE).
const notAvailable = 1<<64 - 1
