package main

import "C"

import (
	"cmp"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

//export nvmlDeviceGetName
func nvmlDeviceGetName(device unsafe.Pointer, name *C.char, length C.uint) C.int {
	return askText(device, name, length, nvml.Device.GetName)
}

//export nvmlDeviceGetUUID
func nvmlDeviceGetUUID(device unsafe.Pointer, uuid *C.char, length C.uint) C.int {
	return askText(device, uuid, length, nvml.Device.GetUUID)
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device, index unsafe.Pointer) C.int {
	return askNumber(device, index, nvml.Device.GetIndex)
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device, minor unsafe.Pointer) C.int {
	return askNumber(device, minor, nvml.Device.GetMinorNumber)
}

//export nvmlDeviceGetPciInfo_v3
func nvmlDeviceGetPciInfo_v3(device, info unsafe.Pointer) C.int {
	return ask(device, info, nvml.Device.GetPciInfo)
}

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device, info unsafe.Pointer) C.int {
	return ask(device, info, nvml.Device.GetMemoryInfo)
}

//export nvmlDeviceGetMemoryInfo_v2
func nvmlDeviceGetMemoryInfo_v2(device, info unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		memory, ret := d.GetMemoryInfo_v2()
		return answerVersioned(info, 2, nvml.ERROR_FUNCTION_NOT_FOUND, memory, ret) // as an H100's driver answers
	})
}

//export nvmlDeviceGetArchitecture
func nvmlDeviceGetArchitecture(device, architecture unsafe.Pointer) C.int {
	return ask(device, architecture, nvml.Device.GetArchitecture)
}

//export nvmlDeviceGetBrand
func nvmlDeviceGetBrand(device, brand unsafe.Pointer) C.int {
	return ask(device, brand, nvml.Device.GetBrand)
}

//export nvmlDeviceGetCudaComputeCapability
func nvmlDeviceGetCudaComputeCapability(device, major, minor unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		first, second, ret := d.GetCudaComputeCapability()
		if minor == nil {
			ret = nvml.ERROR_INVALID_ARGUMENT
		}
		if code := answerUint(major, first, ret); code != 0 {
			return code
		}
		return answerUint(minor, second, ret)
	})
}

//export nvmlDeviceGetNumGpuCores
func nvmlDeviceGetNumGpuCores(device, cores unsafe.Pointer) C.int {
	return askNumber(device, cores, nvml.Device.GetNumGpuCores)
}

//export nvmlDeviceGetNumaNodeId
func nvmlDeviceGetNumaNodeId(device, node unsafe.Pointer) C.int {
	return askNumber(device, node, nvml.Device.GetNumaNodeId)
}

//export nvmlDeviceGetTopologyCommonAncestor
func nvmlDeviceGetTopologyCommonAncestor(device, other, level unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		return onDevice(other, func(o nvml.Device) C.int {
			l, ret := d.GetTopologyCommonAncestor(o)
			return answer(level, C.int(l), ret)
		})
	})
}

//export nvmlDeviceGetVirtualizationMode
func nvmlDeviceGetVirtualizationMode(device, mode unsafe.Pointer) C.int {
	return ask(device, mode, nvml.Device.GetVirtualizationMode)
}

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device, mode unsafe.Pointer) C.int {
	return ask(device, mode, nvml.Device.GetComputeMode)
}

//export nvmlDeviceSetComputeMode
func nvmlDeviceSetComputeMode(device unsafe.Pointer, mode C.int) C.int {
	return onDevice(device, func(d nvml.Device) C.int { return C.int(d.SetComputeMode(nvml.ComputeMode(mode))) })
}

//export nvmlDeviceGetAddressingMode
func nvmlDeviceGetAddressingMode(device, mode unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		m, ret := d.GetAddressingMode()
		return answerVersioned(mode, 1, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, m, ret)
	})
}

//export nvmlDeviceGetPersistenceMode
func nvmlDeviceGetPersistenceMode(device, mode unsafe.Pointer) C.int {
	return ask(device, mode, nvml.Device.GetPersistenceMode)
}

//export nvmlDeviceGetRemappedRows
func nvmlDeviceGetRemappedRows(device, corrected, uncorrected, pending, failed unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		c, u, p, f, ret := d.GetRemappedRows()
		return cmp.Or(
			answerUint(corrected, c, ret), answerUint(uncorrected, u, ret),
			answerUint(pending, number(p), ret), answerUint(failed, number(f), ret),
		)
	})
}

// number is a truth value as NVML has it.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

//export nvmlDeviceGetUtilizationRates
func nvmlDeviceGetUtilizationRates(device, rates unsafe.Pointer) C.int {
	return ask(device, rates, nvml.Device.GetUtilizationRates)
}

//export nvmlDeviceGetPowerUsage
func nvmlDeviceGetPowerUsage(device, milliwatts unsafe.Pointer) C.int {
	return ask(device, milliwatts, nvml.Device.GetPowerUsage)
}

//export nvmlDeviceGetTotalEnergyConsumption
func nvmlDeviceGetTotalEnergyConsumption(device, millijoules unsafe.Pointer) C.int {
	return ask(device, millijoules, nvml.Device.GetTotalEnergyConsumption)
}

//export nvmlDeviceGetTotalEccErrors
func nvmlDeviceGetTotalEccErrors(device unsafe.Pointer, kind, counter C.int, count unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		errors, ret := d.GetTotalEccErrors(nvml.MemoryErrorType(kind), nvml.EccCounterType(counter))
		return answer(count, errors, ret)
	})
}

//export nvmlDeviceGetCurrentClocksEventReasons
func nvmlDeviceGetCurrentClocksEventReasons(device, reasons unsafe.Pointer) C.int {
	return ask(device, reasons, nvml.Device.GetCurrentClocksEventReasons)
}

//export nvmlDeviceGetSupportedClocksEventReasons
func nvmlDeviceGetSupportedClocksEventReasons(device, reasons unsafe.Pointer) C.int {
	return ask(device, reasons, nvml.Device.GetSupportedClocksEventReasons)
}

// memoryLimits is nvmlGetMemoryLimits_v1_t, of which nvmlSetMemoryLimits_v1_t is the beginning.
type memoryLimits struct {
	group            *C.char
	soft, hard, used uint64
}

//export nvmlDeviceSetMemoryLimits_v1
func nvmlDeviceSetMemoryLimits_v1(device, limits unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		if limits == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		l := (*memoryLimits)(limits)
		return C.int(d.SetMemoryLimits_v1(C.GoString(l.group), l.soft, l.hard))
	})
}

//export nvmlDeviceGetMemoryLimits_v1
func nvmlDeviceGetMemoryLimits_v1(device, limits unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		if limits == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		l := (*memoryLimits)(limits)
		found, ret := d.GetMemoryLimits_v1(C.GoString(l.group))
		if ret == nvml.SUCCESS {
			l.soft, l.hard, l.used = found.SoftLimit, found.HardLimit, found.CurrentUsed
		}
		return C.int(ret)
	})
}

// The names before R535.

//export nvmlDeviceGetCurrentClocksThrottleReasons
func nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons unsafe.Pointer) C.int {
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons)
}

//export nvmlDeviceGetSupportedClocksThrottleReasons
func nvmlDeviceGetSupportedClocksThrottleReasons(device, reasons unsafe.Pointer) C.int {
	return nvmlDeviceGetSupportedClocksEventReasons(device, reasons)
}

//export nvmlDeviceGetFieldValues
func nvmlDeviceGetFieldValues(device unsafe.Pointer, count C.int, values unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		if values == nil || count <= 0 {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		return C.int(d.GetFieldValues(unsafe.Slice((*nvml.FieldValue)(values), int(count))))
	})
}
