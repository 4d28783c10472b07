package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

//export nvmlDeviceGetMigMode
func nvmlDeviceGetMigMode(device, current, pending unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		now, next, ret := d.GetMigMode()
		if pending == nil {
			ret = nvml.ERROR_INVALID_ARGUMENT
		}
		if code := answerUint(current, now, ret); code != 0 {
			return code
		}
		return answerUint(pending, next, ret)
	})
}

//export nvmlDeviceSetMigMode
func nvmlDeviceSetMigMode(device unsafe.Pointer, mode C.uint, activation unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		if activation == nil { // before the mode changes
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		status, ret := d.SetMigMode(int(mode))
		return answer(activation, C.int(status), ret)
	})
}

//export nvmlDeviceGetMaxMigDeviceCount
func nvmlDeviceGetMaxMigDeviceCount(device, count unsafe.Pointer) C.int {
	return askNumber(device, count, nvml.Device.GetMaxMigDeviceCount)
}

//export nvmlDeviceGetMigDeviceHandleByIndex
func nvmlDeviceGetMigDeviceHandleByIndex(device unsafe.Pointer, index C.uint, migDevice unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		m, ret := d.GetMigDeviceHandleByIndex(int(index))
		return answerHandle(migDevice, m, ret)
	})
}

//export nvmlDeviceGetDeviceHandleFromMigDeviceHandle
func nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migDevice, device unsafe.Pointer) C.int {
	return onDevice(migDevice, func(d nvml.Device) C.int {
		parent, ret := d.GetDeviceHandleFromMigDeviceHandle()
		return answerHandle(device, parent, ret)
	})
}

//export nvmlDeviceIsMigDeviceHandle
func nvmlDeviceIsMigDeviceHandle(device, is unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		mig, ret := d.IsMigDeviceHandle()
		number := 0
		if mig {
			number = 1
		}
		return answerUint(is, number, ret)
	})
}

//export nvmlDeviceGetGpuInstanceId
func nvmlDeviceGetGpuInstanceId(device, id unsafe.Pointer) C.int {
	return askNumber(device, id, nvml.Device.GetGpuInstanceId)
}

//export nvmlDeviceGetComputeInstanceId
func nvmlDeviceGetComputeInstanceId(device, id unsafe.Pointer) C.int {
	return askNumber(device, id, nvml.Device.GetComputeInstanceId)
}

//export nvmlDeviceGetAttributes_v2
func nvmlDeviceGetAttributes_v2(device, attributes unsafe.Pointer) C.int {
	return ask(device, attributes, nvml.Device.GetAttributes)
}

//export nvmlDeviceGetGpuInstanceProfileInfo
func nvmlDeviceGetGpuInstanceProfileInfo(device unsafe.Pointer, profile C.uint, info unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		p, ret := d.GetGpuInstanceProfileInfo(int(profile))
		return answer(info, p, ret)
	})
}

// profileTeller has the versions of a profile that go-nvml's interface has no call for.
type profileTeller interface {
	GetGpuInstanceProfileInfoV2(profile int) (nvml.GpuInstanceProfileInfo_v2, nvml.Return)
	GetGpuInstanceProfileInfoV3(profile int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
}

//export nvmlDeviceGetGpuInstanceProfileInfoV
func nvmlDeviceGetGpuInstanceProfileInfoV(device unsafe.Pointer, profile C.uint, info unsafe.Pointer) C.int {
	return on(device, func(d profileTeller) C.int {
		if info == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		if *(*uint32)(info) == nvml.STRUCT_VERSION(nvml.GpuInstanceProfileInfo_v3{}, 3) {
			p, ret := d.GetGpuInstanceProfileInfoV3(int(profile))
			return answer(info, p, ret)
		}
		p, ret := d.GetGpuInstanceProfileInfoV2(int(profile))
		return answerVersioned(info, 2, nvml.ERROR_INVALID_ARGUMENT, p, ret)
	})
}

// gpuInstanceProfile is what calls about instances of a profile need: nvml.h passes only its id,
// and go-nvml sizes its buffers by the number of instances.
func gpuInstanceProfile(id C.uint) *nvml.GpuInstanceProfileInfo {
	return &nvml.GpuInstanceProfileInfo{Id: uint32(id), InstanceCount: 1}
}

// answerPlacements is answerList, with no array "to query the number of placements" (nvml.h).
func answerPlacements[T any](placements unsafe.Pointer, count *C.uint, possible []T, ret nvml.Return) C.int {
	if ret == nvml.SUCCESS && placements == nil && count != nil {
		*count = C.uint(len(possible))
		return C.int(ret)
	}
	return answerList(placements, count, possible, ret)
}

//export nvmlDeviceGetGpuInstancePossiblePlacements
func nvmlDeviceGetGpuInstancePossiblePlacements(device unsafe.Pointer, profile C.uint, placements unsafe.Pointer, count *C.uint) C.int {
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile, placements, count)
}

//export nvmlDeviceGetGpuInstancePossiblePlacements_v2
func nvmlDeviceGetGpuInstancePossiblePlacements_v2(device unsafe.Pointer, profile C.uint, placements unsafe.Pointer, count *C.uint) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		possible, ret := d.GetGpuInstancePossiblePlacements(gpuInstanceProfile(profile))
		return answerPlacements(placements, count, possible, ret)
	})
}

//export nvmlDeviceGetGpuInstanceRemainingCapacity
func nvmlDeviceGetGpuInstanceRemainingCapacity(device unsafe.Pointer, profile C.uint, count unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		number, ret := d.GetGpuInstanceRemainingCapacity(gpuInstanceProfile(profile))
		return answerUint(count, number, ret)
	})
}

//export nvmlDeviceCreateGpuInstance
func nvmlDeviceCreateGpuInstance(device unsafe.Pointer, profile C.uint, instance unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		if instance == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		i, ret := d.CreateGpuInstance(gpuInstanceProfile(profile))
		return answerHandle(instance, i, ret)
	})
}

//export nvmlDeviceCreateGpuInstanceWithPlacement
func nvmlDeviceCreateGpuInstanceWithPlacement(device unsafe.Pointer, profile C.uint, placement, instance unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		if placement == nil || instance == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		at := *(*nvml.GpuInstancePlacement)(placement)
		i, ret := d.CreateGpuInstanceWithPlacement(gpuInstanceProfile(profile), &at)
		return answerHandle(instance, i, ret)
	})
}

//export nvmlDeviceGetGpuInstances
func nvmlDeviceGetGpuInstances(device unsafe.Pointer, profile C.uint, instances unsafe.Pointer, count *C.uint) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := d.GetGpuInstances(gpuInstanceProfile(profile))
		return answerHandles(instances, count, all, ret)
	})
}

//export nvmlDeviceGetGpuInstanceById
func nvmlDeviceGetGpuInstanceById(device unsafe.Pointer, id C.uint, instance unsafe.Pointer) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		i, ret := d.GetGpuInstanceById(int(id))
		return answerHandle(instance, i, ret)
	})
}

//export nvmlGpuInstanceDestroy
func nvmlGpuInstanceDestroy(instance unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int { return C.int(i.Destroy()) })
}

// gpuInstanceInfo is nvmlGpuInstanceInfo_t.
type gpuInstanceInfo struct {
	device        unsafe.Pointer
	id, profileID uint32
	placement     nvml.GpuInstancePlacement
}

//export nvmlGpuInstanceGetInfo
func nvmlGpuInstanceGetInfo(instance, info unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		told, ret := i.GetInfo()
		if ret != nvml.SUCCESS {
			return C.int(ret)
		}
		return answer(info, gpuInstanceInfo{given.of(told.Device), told.Id, told.ProfileId, told.Placement}, ret)
	})
}

//export nvmlGpuInstanceGetComputeInstanceProfileInfo
func nvmlGpuInstanceGetComputeInstanceProfileInfo(instance unsafe.Pointer, profile, engines C.uint, info unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		p, ret := i.GetComputeInstanceProfileInfo(int(profile), int(engines))
		return answer(info, p, ret)
	})
}

// computeInstanceProfile is gpuInstanceProfile for compute instances.
func computeInstanceProfile(id C.uint) *nvml.ComputeInstanceProfileInfo {
	return &nvml.ComputeInstanceProfileInfo{Id: uint32(id), InstanceCount: 1}
}

//export nvmlGpuInstanceGetComputeInstanceRemainingCapacity
func nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance unsafe.Pointer, profile C.uint, count unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		number, ret := i.GetComputeInstanceRemainingCapacity(computeInstanceProfile(profile))
		return answerUint(count, number, ret)
	})
}

//export nvmlGpuInstanceGetComputeInstancePossiblePlacements
func nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance unsafe.Pointer, profile C.uint, placements unsafe.Pointer, count *C.uint) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		possible, ret := i.GetComputeInstancePossiblePlacements(computeInstanceProfile(profile))
		return answerPlacements(placements, count, possible, ret)
	})
}

//export nvmlGpuInstanceCreateComputeInstance
func nvmlGpuInstanceCreateComputeInstance(instance unsafe.Pointer, profile C.uint, computeInstance unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		if computeInstance == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		c, ret := i.CreateComputeInstance(computeInstanceProfile(profile))
		return answerHandle(computeInstance, c, ret)
	})
}

//export nvmlGpuInstanceCreateComputeInstanceWithPlacement
func nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance unsafe.Pointer, profile C.uint, placement, computeInstance unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		if placement == nil || computeInstance == nil {
			return C.int(nvml.ERROR_INVALID_ARGUMENT)
		}
		at := *(*nvml.ComputeInstancePlacement)(placement)
		c, ret := i.CreateComputeInstanceWithPlacement(computeInstanceProfile(profile), &at)
		return answerHandle(computeInstance, c, ret)
	})
}

//export nvmlGpuInstanceGetComputeInstances
func nvmlGpuInstanceGetComputeInstances(instance unsafe.Pointer, profile C.uint, computeInstances unsafe.Pointer, count *C.uint) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		all, ret := i.GetComputeInstances(computeInstanceProfile(profile))
		return answerHandles(computeInstances, count, all, ret)
	})
}

//export nvmlGpuInstanceGetComputeInstanceById
func nvmlGpuInstanceGetComputeInstanceById(instance unsafe.Pointer, id C.uint, computeInstance unsafe.Pointer) C.int {
	return on(instance, func(i nvml.GpuInstance) C.int {
		c, ret := i.GetComputeInstanceById(int(id))
		return answerHandle(computeInstance, c, ret)
	})
}

//export nvmlComputeInstanceDestroy
func nvmlComputeInstanceDestroy(computeInstance unsafe.Pointer) C.int {
	return on(computeInstance, func(c nvml.ComputeInstance) C.int { return C.int(c.Destroy()) })
}

// computeInstanceInfo is nvmlComputeInstanceInfo_t.
type computeInstanceInfo struct {
	device, gpuInstance unsafe.Pointer
	id, profileID       uint32
	placement           nvml.ComputeInstancePlacement
}

//export nvmlComputeInstanceGetInfo_v2
func nvmlComputeInstanceGetInfo_v2(computeInstance, info unsafe.Pointer) C.int {
	return on(computeInstance, func(c nvml.ComputeInstance) C.int {
		told, ret := c.GetInfo()
		if ret != nvml.SUCCESS {
			return C.int(ret)
		}
		return answer(info, computeInstanceInfo{given.of(told.Device), given.of(told.GpuInstance), told.Id, told.ProfileId, told.Placement}, ret)
	})
}
