package nvdriver

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// What a monitor reads. Simulated GPUs do no work: they are idle and cool.

// GetUtilizationRates: "On MIG-enabled GPUs, querying device utilization rates
// is not currently supported" (nvml.h).
func (d *device) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	g, ret := d.view("")
	if ret == nvml.SUCCESS && g.MIGMode {
		ret = nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.Utilization{}, ret
}

// GetTemperature is in degrees Celsius.
func (d *device) GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return) {
	return 34, d.check("")
}

// GetPowerUsage is in milliwatts.
func (d *device) GetPowerUsage() (uint32, nvml.Return) { return idleMilliwatts, d.check("") }

// GetEnforcedPowerLimit is in milliwatts. No GPU's true limit is promised.
func (d *device) GetEnforcedPowerLimit() (uint32, nvml.Return) {
	return 10 * idleMilliwatts, d.check("")
}

// GetEccMode is on, now and after the next reset.
func (d *device) GetEccMode() (current, pending nvml.EnableState, ret nvml.Return) {
	return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, d.check("")
}

// GetTotalEccErrors counts none.
func (d *device) GetTotalEccErrors(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
	return 0, d.check("")
}

// GetRemappedRows counts none: "On MIG-enabled GPUs with active instances,
// querying the number of remapped rows is not supported" (nvml.h).
func (d *device) GetRemappedRows() (correctable, uncorrectable int, pending, failed bool, ret nvml.Return) {
	g, ret := d.view("")
	if ret == nvml.SUCCESS && len(g.Instances) > 0 {
		ret = nvml.ERROR_NOT_SUPPORTED
	}
	return 0, 0, false, false, d.lostAsUnknown(ret)
}

// SystemGetProcessName names a client of any GPU.
func (n *NVML) SystemGetProcessName(pid int) (string, nvml.Return) {
	if ret := n.initialized(); ret != nvml.SUCCESS {
		return "", ret
	}
	for _, d := range n.devices {
		processes, err := d.processes()
		if err != nil {
			return "", n.unexpected("SystemGetProcessName", err)
		}
		for _, p := range processes {
			if p.PID == pid {
				return p.Name, nvml.SUCCESS
			}
		}
	}
	return "", nvml.ERROR_NOT_FOUND
}
