package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The lists of processes exist in three versions. The first has no ids of instances; the others
// are the same.

func answerProcesses(infos unsafe.Pointer, count *C.uint, all []nvml.ProcessInfo, ret nvml.Return) C.int {
	return answerList(infos, count, all, ret)
}

func answerProcessesV1(infos unsafe.Pointer, count *C.uint, all []nvml.ProcessInfo, ret nvml.Return) C.int {
	old := make([]nvml.ProcessInfo_v1, len(all))
	for i, p := range all {
		old[i] = nvml.ProcessInfo_v1{Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory}
	}
	return answerList(infos, count, old, ret)
}

//export nvmlDeviceGetComputeRunningProcesses
func nvmlDeviceGetComputeRunningProcesses(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetComputeRunningProcesses()
		return answerProcessesV1(infos, count, all, ret)
	})
}

//export nvmlDeviceGetComputeRunningProcesses_v2
func nvmlDeviceGetComputeRunningProcesses_v2(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos)
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetComputeRunningProcesses()
		return answerProcesses(infos, count, all, ret)
	})
}

//export nvmlDeviceGetGraphicsRunningProcesses
func nvmlDeviceGetGraphicsRunningProcesses(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetGraphicsRunningProcesses()
		return answerProcessesV1(infos, count, all, ret)
	})
}

//export nvmlDeviceGetGraphicsRunningProcesses_v2
func nvmlDeviceGetGraphicsRunningProcesses_v2(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, infos)
}

//export nvmlDeviceGetGraphicsRunningProcesses_v3
func nvmlDeviceGetGraphicsRunningProcesses_v3(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetGraphicsRunningProcesses()
		return answerProcesses(infos, count, all, ret)
	})
}

//export nvmlDeviceGetMPSComputeRunningProcesses
func nvmlDeviceGetMPSComputeRunningProcesses(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetMPSComputeRunningProcesses()
		return answerProcessesV1(infos, count, all, ret)
	})
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v2
func nvmlDeviceGetMPSComputeRunningProcesses_v2(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, infos)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetMPSComputeRunningProcesses()
		return answerProcesses(infos, count, all, ret)
	})
}

//export nvmlDeviceGetProcessUtilization
func nvmlDeviceGetProcessUtilization(device, samples unsafe.Pointer, count *C.uint, since C.ulonglong) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetProcessUtilization(uint64(since))
		return answerList(samples, count, all, ret)
	})
}
