package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

//export nvmlEventSetCreate
func nvmlEventSetCreate(set unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		s, ret := n.EventSetCreate()
		return answerHandle(set, s, ret)
	})
}

//export nvmlDeviceGetSupportedEventTypes
func nvmlDeviceGetSupportedEventTypes(device, types unsafe.Pointer) C.int {
	return ask(device, types, nvml.Device.GetSupportedEventTypes)
}

//export nvmlDeviceRegisterEvents
func nvmlDeviceRegisterEvents(device unsafe.Pointer, types C.ulonglong, set unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		return on(set, func(s nvml.EventSet) C.int { return C.int(d.RegisterEvents(uint64(types), s)) })
	})
}

// eventDataV1 is nvmlEventData_t before MIG, eventData is nvmlEventData_t.
type eventDataV1 struct {
	device          unsafe.Pointer
	eventType, data uint64
}

type eventData struct {
	eventDataV1
	gpuInstance, computeInstance uint32
}

//export nvmlEventSetWait
func nvmlEventSetWait(set, data unsafe.Pointer, milliseconds C.uint) C.int {
	return wait(set, milliseconds, func(event eventData, ret nvml.Return) C.int { return answer(data, event.eventDataV1, ret) })
}

//export nvmlEventSetWait_v2
func nvmlEventSetWait_v2(set, data unsafe.Pointer, milliseconds C.uint) C.int {
	return wait(set, milliseconds, func(event eventData, ret nvml.Return) C.int { return answer(data, event, ret) })
}

func wait(set unsafe.Pointer, milliseconds C.uint, tell func(eventData, nvml.Return) C.int) C.int {
	return on(set, func(s nvml.EventSet) C.int {
		event, ret := s.Wait(uint32(milliseconds))
		if ret != nvml.SUCCESS {
			return C.int(ret)
		}
		return tell(eventData{
			eventDataV1{given.of(event.Device), event.EventType, event.EventData},
			event.GpuInstanceId, event.ComputeInstanceId,
		}, ret)
	})
}

//export nvmlEventSetFree
func nvmlEventSetFree(set unsafe.Pointer) C.int {
	return on(set, func(s nvml.EventSet) C.int {
		ret := s.Free()
		given.forget(set)
		return C.int(ret)
	})
}

//export nvmlGpmQueryDeviceSupport
func nvmlGpmQueryDeviceSupport(device, support unsafe.Pointer) C.int {
	return ask(device, support, nvml.Device.GpmQueryDeviceSupport)
}

//export nvmlGpmSampleAlloc
func nvmlGpmSampleAlloc(sample unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		s, ret := n.GpmSampleAlloc()
		return answerHandle(sample, s, ret)
	})
}

//export nvmlGpmSampleFree
func nvmlGpmSampleFree(sample unsafe.Pointer) C.int {
	return on(sample, func(s nvml.GpmSample) C.int {
		given.forget(sample)
		return C.int(nvml.SUCCESS)
	})
}

//export nvmlGpmSampleGet
func nvmlGpmSampleGet(device, sample unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		return on(sample, func(s nvml.GpmSample) C.int { return C.int(d.GpmSampleGet(s)) })
	})
}

//export nvmlGpmMigSampleGet
func nvmlGpmMigSampleGet(device unsafe.Pointer, instance C.uint, sample unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		return on(sample, func(s nvml.GpmSample) C.int { return C.int(d.GpmMigSampleGet(int(instance), s)) })
	})
}

// gpmMetricsGet is the head of nvmlGpmMetricsGet_t, before its metrics. How many of them the
// structure has depends on the header.
type gpmMetricsGet struct {
	version, count   uint32
	sample1, sample2 unsafe.Pointer
}

//export nvmlGpmMetricsGet
func nvmlGpmMetricsGet(get unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		if get == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		head := (*gpmMetricsGet)(get)
		return on(head.sample1, func(first nvml.GpmSample) C.int {
			return on(head.sample2, func(second nvml.GpmSample) C.int {
				asked := nvml.GpmMetricsGetType{NumMetrics: head.count, Sample1: first, Sample2: second}
				if int(asked.NumMetrics) > len(asked.Metrics) {
					return C.int(nvml.ERROR_INVALID_ARGUMENT)
				}
				metrics := unsafe.Slice((*nvml.GpmMetric)(unsafe.Add(get, unsafe.Sizeof(*head))), asked.NumMetrics)
				copy(asked.Metrics[:], metrics)
				ret := n.GpmMetricsGet(&asked)
				copy(metrics, asked.Metrics[:])
				return C.int(ret)
			})
		})
	})
}
