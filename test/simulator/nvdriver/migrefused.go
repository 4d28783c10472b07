package nvdriver

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// What the GPU answers and its MIG devices do not: instances and mode are the GPU's, which is the
// parent's handle, and nvml.h has "not currently supported" for utilization and for events of one
// instance.

// CreateGpuInstance is the parent's.
func (m *migDevice) CreateGpuInstance(*nvml.GpuInstanceProfileInfo) (nvml.GpuInstance, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// CreateGpuInstanceWithPlacement is the parent's.
func (m *migDevice) CreateGpuInstanceWithPlacement(*nvml.GpuInstanceProfileInfo, *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// GetGpuInstanceById is the parent's.
func (m *migDevice) GetGpuInstanceById(int) (nvml.GpuInstance, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// GetGpuInstances is the parent's.
func (m *migDevice) GetGpuInstances(*nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// GetGpuInstanceProfileInfo is the parent's.
func (m *migDevice) GetGpuInstanceProfileInfo(int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
}

// GetGpuInstancePossiblePlacements is the parent's.
func (m *migDevice) GetGpuInstancePossiblePlacements(*nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// GetGpuInstanceRemainingCapacity is the parent's.
func (m *migDevice) GetGpuInstanceRemainingCapacity(*nvml.GpuInstanceProfileInfo) (int, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetMigDeviceHandleByIndex is the parent's.
func (m *migDevice) GetMigDeviceHandleByIndex(int) (nvml.Device, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// SetMigMode is the parent's.
func (m *migDevice) SetMigMode(int) (nvml.Return, nvml.Return) {
	return nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED
}

// GetPciInfo is the parent's.
func (m *migDevice) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED
}

// GetTopologyCommonAncestor is the parent's.
func (m *migDevice) GetTopologyCommonAncestor(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetArchitecture is the parent's.
func (m *migDevice) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetBrand is the parent's.
func (m *migDevice) GetBrand() (nvml.BrandType, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }

// GetCudaComputeCapability is the parent's.
func (m *migDevice) GetCudaComputeCapability() (int, int, nvml.Return) {
	return 0, 0, nvml.ERROR_NOT_SUPPORTED
}

// GetNumGpuCores is "not supported by the device or a mig device" (nvml.h).
func (m *migDevice) GetNumGpuCores() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }

// GetNumaNodeId is the parent's.
func (m *migDevice) GetNumaNodeId() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }

// GetVirtualizationMode is the parent's.
func (m *migDevice) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetAddressingMode is the parent's.
func (m *migDevice) GetAddressingMode() (nvml.DeviceAddressingMode, nvml.Return) {
	return nvml.DeviceAddressingMode{}, nvml.ERROR_NOT_SUPPORTED
}

// GetPersistenceMode is the parent's.
func (m *migDevice) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetRemappedRows are the parent's.
func (m *migDevice) GetRemappedRows() (corrected, uncorrected int, pending, failed bool, ret nvml.Return) {
	return 0, 0, false, false, nvml.ERROR_NOT_SUPPORTED
}

// GetComputeMode is Default. nvml.h wants this handle, and not the parent's, while MIG is on.
func (m *migDevice) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	_, _, _, ret := m.view("")
	return nvml.COMPUTEMODE_DEFAULT, ret
}

// SetComputeMode of one MIG device is not simulated.
func (m *migDevice) SetComputeMode(nvml.ComputeMode) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }

// GetUtilizationRates are "not currently supported" with MIG (nvml.h).
func (m *migDevice) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
}

// GetProcessUtilization is "not currently supported" with MIG (nvml.h).
func (m *migDevice) GetProcessUtilization(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// GetGraphicsRunningProcesses is empty: no graphics is simulated.
func (m *migDevice) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	_, _, _, ret := m.view("")
	return nil, ret
}

// GetPowerUsage is the parent's.
func (m *migDevice) GetPowerUsage() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }

// GetTotalEnergyConsumption is the parent's.
func (m *migDevice) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetTotalEccErrors of one instance are not simulated.
func (m *migDevice) GetTotalEccErrors(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetCurrentClocksEventReasons are the parent's.
func (m *migDevice) GetCurrentClocksEventReasons() (uint64, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetSupportedClocksEventReasons are the parent's.
func (m *migDevice) GetSupportedClocksEventReasons() (uint64, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetFieldValues are the parent's.
func (m *migDevice) GetFieldValues([]nvml.FieldValue) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }

// GetSupportedEventTypes: there is no "per-instance event reporting" (nvml.h).
func (m *migDevice) GetSupportedEventTypes() (uint64, nvml.Return) {
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// RegisterEvents is as GetSupportedEventTypes.
func (m *migDevice) RegisterEvents(uint64, nvml.EventSet) nvml.Return {
	return nvml.ERROR_NOT_SUPPORTED
}

// GpmQueryDeviceSupport is the parent's, and so are its samples.
func (m *migDevice) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	return nvml.GpmSupport{}, nvml.ERROR_NOT_SUPPORTED
}

// GpmSampleGet is the parent's.
func (m *migDevice) GpmSampleGet(nvml.GpmSample) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }

// GpmMigSampleGet is the parent's.
func (m *migDevice) GpmMigSampleGet(int, nvml.GpmSample) nvml.Return {
	return nvml.ERROR_NOT_SUPPORTED
}
