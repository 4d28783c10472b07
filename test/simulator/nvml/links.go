package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

//export nvmlDeviceGetNvLinkState
func nvmlDeviceGetNvLinkState(device unsafe.Pointer, link C.uint, active unsafe.Pointer) C.int {
	return ask(device, active, func(d nvml.Device) (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(int(link)) })
}

//export nvmlDeviceGetNvLinkRemoteDeviceType
func nvmlDeviceGetNvLinkRemoteDeviceType(device unsafe.Pointer, link C.uint, kind unsafe.Pointer) C.int {
	return ask(device, kind, func(d nvml.Device) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return d.GetNvLinkRemoteDeviceType(int(link))
	})
}

//export nvmlDeviceGetNvLinkRemotePciInfo_v2
func nvmlDeviceGetNvLinkRemotePciInfo_v2(device unsafe.Pointer, link C.uint, info unsafe.Pointer) C.int {
	return ask(device, info, func(d nvml.Device) (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(int(link)) })
}

//export nvmlDeviceGetNvLinkRemotePciInfo
func nvmlDeviceGetNvLinkRemotePciInfo(device unsafe.Pointer, link C.uint, info unsafe.Pointer) C.int {
	return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, info)
}

//export nvmlDeviceGetGpuFabricInfo
func nvmlDeviceGetGpuFabricInfo(device, info unsafe.Pointer) C.int {
	return ask(device, info, nvml.Device.GetGpuFabricInfo)
}
