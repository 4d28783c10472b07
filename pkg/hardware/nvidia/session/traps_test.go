package session_test

import (
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// lateDevices hides MIG devices for a number of looks.
type lateDevices struct {
	mu     sync.Mutex
	hidden int
	// onHide is called each time.
	onHide func()
}

func (l *lateDevices) set(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hidden = n
}

func (l *lateDevices) hides() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hidden > 0 {
		l.hidden--
		if l.onHide != nil {
			l.onHide()
		}
		return true
	}
	return false
}

type lateDevice struct {
	nvml.Device
	late *lateDevices
}

func (d lateDevice) GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return) {
	device, ret := d.Device.GetMigDeviceHandleByIndex(index)
	if ret == nvml.SUCCESS && d.late.hides() {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return device, ret
}

// withoutProfile is a GPU on which a profile is not known by number, or none with a negative one.
type withoutProfile struct {
	nvml.Device
	hidden int
}

func (d withoutProfile) GetGpuInstanceProfileInfo(enum int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	if enum == d.hidden || d.hidden < 0 {
		return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return d.Device.GetGpuInstanceProfileInfo(enum)
}

// misplacing is a GPU that makes GPU instances one slice before their place.
type misplacing struct{ nvml.Device }

func (d misplacing) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	return d.Device.CreateGpuInstanceWithPlacement(info, &nvml.GpuInstancePlacement{Start: at.Start - 1, Size: at.Size})
}

// drawing is a GPU whose processes compute and draw.
type drawing struct{ nvml.Device }

func (d drawing) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.GetComputeRunningProcesses()
}

// asymmetric is a GPU whose GPU instances take a small and a full compute
// instance with the same slices, as 1g.67gb of B300 does.
type asymmetric struct {
	nvml.Device
	asked *[]nvml.ComputeInstanceProfileInfo
}

func (d asymmetric) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	gi, ret := d.Device.CreateGpuInstanceWithPlacement(info, at)
	return asymmetricInstance{gi, d.asked}, ret
}

type asymmetricInstance struct {
	nvml.GpuInstance
	asked *[]nvml.ComputeInstanceProfileInfo
}

func (i asymmetricInstance) GetComputeInstanceProfileInfo(enum, engines int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	kind, ret := i.GpuInstance.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, engines)
	switch enum {
	case nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE:
		kind.MultiprocessorCount = 18
	case nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1:
		kind.MultiprocessorCount = 30
	default:
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return kind, ret
}

func (i asymmetricInstance) CreateComputeInstance(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
	*i.asked = append(*i.asked, *info)
	if len(*i.asked) > 1 && info.MultiprocessorCount == 30 {
		return nil, nvml.ERROR_NOT_SUPPORTED // from the second partition on
	}
	return i.GpuInstance.CreateComputeInstance(info)
}

// stubborn is a GPU that says that it switched its mode and did not.
type stubborn struct{ nvml.Device }

func (d stubborn) SetMigMode(mode int) (nvml.Return, nvml.Return) { return nvml.SUCCESS, nvml.SUCCESS }

// pendingOnly is a GPU that notes the mode for the next reset.
type pendingOnly struct {
	nvml.Device
	state *pendingState
}

type pendingState struct {
	mu     sync.Mutex
	mode   int
	answer nvml.Return
}

func (d pendingOnly) GetMigMode() (int, int, nvml.Return) {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	return nvml.DEVICE_MIG_DISABLE, d.state.mode, nvml.SUCCESS
}

func (d pendingOnly) SetMigMode(mode int) (nvml.Return, nvml.Return) {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	d.state.mode = mode
	if mode == nvml.DEVICE_MIG_DISABLE {
		return nvml.SUCCESS, nvml.SUCCESS
	}
	return d.state.answer, nvml.SUCCESS
}

// opaque is a GPU that does not list the compute instances of its GPU instances.
type opaque struct {
	nvml.Device
	answer *nvml.Return
}

func (d opaque) GetGpuInstances(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	all, ret := d.Device.GetGpuInstances(info)
	for i, gi := range all {
		all[i] = opaqueInstance{gi, d.answer}
	}
	return all, ret
}

func (d opaque) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) {
	gi, ret := d.Device.GetGpuInstanceById(id)
	return opaqueInstance{gi, d.answer}, ret
}

type opaqueInstance struct {
	nvml.GpuInstance
	answer *nvml.Return
}

func (i opaqueInstance) GetComputeInstances(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
	if *i.answer != nvml.SUCCESS {
		return nil, *i.answer
	}
	return i.GpuInstance.GetComputeInstances(info)
}
