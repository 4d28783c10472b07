package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The lists of processes exist in three versions. The first has no ids of instances; the others
// are the same.

func askOldList(device, infos unsafe.Pointer, count *C.uint, call func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)) C.int {
	return askList(device, infos, count, func(d nvml.Device) ([]nvml.ProcessInfo_v1, nvml.Return) {
		all, ret := call(d)
		old := make([]nvml.ProcessInfo_v1, len(all))
		for i, p := range all {
			old[i] = nvml.ProcessInfo_v1{Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory}
		}
		return old, ret
	})
}

//export nvmlDeviceGetComputeRunningProcesses
func nvmlDeviceGetComputeRunningProcesses(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return askOldList(device, infos, count, nvml.Device.GetComputeRunningProcesses)
}

//export nvmlDeviceGetComputeRunningProcesses_v2
func nvmlDeviceGetComputeRunningProcesses_v2(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos)
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return askList(device, infos, count, nvml.Device.GetComputeRunningProcesses)
}

//export nvmlDeviceGetGraphicsRunningProcesses
func nvmlDeviceGetGraphicsRunningProcesses(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return askOldList(device, infos, count, nvml.Device.GetGraphicsRunningProcesses)
}

//export nvmlDeviceGetGraphicsRunningProcesses_v2
func nvmlDeviceGetGraphicsRunningProcesses_v2(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, infos)
}

//export nvmlDeviceGetGraphicsRunningProcesses_v3
func nvmlDeviceGetGraphicsRunningProcesses_v3(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return askList(device, infos, count, nvml.Device.GetGraphicsRunningProcesses)
}

//export nvmlDeviceGetMPSComputeRunningProcesses
func nvmlDeviceGetMPSComputeRunningProcesses(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return askOldList(device, infos, count, nvml.Device.GetMPSComputeRunningProcesses)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v2
func nvmlDeviceGetMPSComputeRunningProcesses_v2(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, infos)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device unsafe.Pointer, count *C.uint, infos unsafe.Pointer) C.int {
	return askList(device, infos, count, nvml.Device.GetMPSComputeRunningProcesses)
}

//export nvmlDeviceGetProcessUtilization
func nvmlDeviceGetProcessUtilization(device, samples unsafe.Pointer, count *C.uint, since C.ulonglong) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetProcessUtilization(uint64(since))
		return answerList(samples, count, all, ret)
	})
}
