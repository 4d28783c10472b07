package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

//export nvmlDeviceGetName
func nvmlDeviceGetName(device unsafe.Pointer, name *C.char, length C.uint) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		text, ret := d.GetName()
		return answerText(name, length, text, ret)
	})
}

//export nvmlDeviceGetUUID
func nvmlDeviceGetUUID(device unsafe.Pointer, uuid *C.char, length C.uint) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		text, ret := d.GetUUID()
		return answerText(uuid, length, text, ret)
	})
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device, index unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		number, ret := d.GetIndex()
		return answerUint(index, number, ret)
	})
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device, minor unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		number, ret := d.GetMinorNumber()
		return answerUint(minor, number, ret)
	})
}

//export nvmlDeviceGetPciInfo_v3
func nvmlDeviceGetPciInfo_v3(device, info unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		pci, ret := d.GetPciInfo()
		return answer(info, pci, ret)
	})
}

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device, info unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		memory, ret := d.GetMemoryInfo()
		return answer(info, memory, ret)
	})
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
	return onDevice(device, func(d nvml.Device) C.int {
		a, ret := d.GetArchitecture()
		return answer(architecture, a, ret)
	})
}

//export nvmlDeviceGetBrand
func nvmlDeviceGetBrand(device, brand unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		b, ret := d.GetBrand()
		return answer(brand, b, ret)
	})
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
	return onDevice(device, func(d nvml.Device) C.int {
		number, ret := d.GetNumGpuCores()
		return answerUint(cores, number, ret)
	})
}

//export nvmlDeviceGetNumaNodeId
func nvmlDeviceGetNumaNodeId(device, node unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		number, ret := d.GetNumaNodeId()
		return answerUint(node, number, ret)
	})
}

//export nvmlDeviceGetVirtualizationMode
func nvmlDeviceGetVirtualizationMode(device, mode unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		m, ret := d.GetVirtualizationMode()
		return answer(mode, m, ret)
	})
}

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device, mode unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		m, ret := d.GetComputeMode()
		return answer(mode, m, ret)
	})
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

//export nvmlDeviceGetUtilizationRates
func nvmlDeviceGetUtilizationRates(device, rates unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		u, ret := d.GetUtilizationRates()
		return answer(rates, u, ret)
	})
}

//export nvmlDeviceGetPowerUsage
func nvmlDeviceGetPowerUsage(device, milliwatts unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		power, ret := d.GetPowerUsage()
		return answer(milliwatts, power, ret)
	})
}

//export nvmlDeviceGetTotalEnergyConsumption
func nvmlDeviceGetTotalEnergyConsumption(device, millijoules unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		energy, ret := d.GetTotalEnergyConsumption()
		return answer(millijoules, energy, ret)
	})
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
	return onDevice(device, func(d nvml.Device) C.int {
		bits, ret := d.GetCurrentClocksEventReasons()
		return answer(reasons, bits, ret)
	})
}

//export nvmlDeviceGetSupportedClocksEventReasons
func nvmlDeviceGetSupportedClocksEventReasons(device, reasons unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		bits, ret := d.GetSupportedClocksEventReasons()
		return answer(reasons, bits, ret)
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
