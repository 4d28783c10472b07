package nvdriver

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// migDevice is the handle of a MIG device: the view of one compute instance
// as a device of its own. Only a GPU's GetMigDeviceHandleByIndex and the
// library's DeviceGetHandleByUUID give one.
type migDevice struct {
	nvml.Device

	parent  *device
	compute *computeInstance
}

// migDevices lists the handles of a GPU.
func (d *device) migDevices(g *nvstate.GPU) []*migDevice {
	var all []*migDevice
	for i := range g.Instances {
		parent := d.instanceHandle(&g.Instances[i])
		for j := range g.Instances[i].Compute {
			all = append(all, &migDevice{Device: missingDevice, parent: d, compute: parent.computeHandle(&g.Instances[i].Compute[j])})
		}
	}
	return all
}

// GetMaxMigDeviceCount is "zero if MIG is not supported or enabled" (nvml.h).
func (d *device) GetMaxMigDeviceCount() (int, nvml.Return) {
	g, ret := d.view("GetMigDeviceHandleByIndex")
	if ret != nvml.SUCCESS || !g.MIGMode {
		return 0, d.lostAsUnknown(ret)
	}
	return d.gpu().Model.ComputeSlices, nvml.SUCCESS
}

// GetMigDeviceHandleByIndex finds a MIG device; NOT_FOUND for an index with
// none, which says nothing about the indexes after it.
func (d *device) GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return) {
	g, ret := d.view("GetMigDeviceHandleByIndex")
	if ret != nvml.SUCCESS {
		return nil, d.lostAsUnknown(ret)
	}
	if !d.gpu().Model.HasMIG() {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	if !g.MIGMode {
		return nil, nvml.ERROR_NOT_FOUND
	}
	if index < 0 || index >= d.gpu().Model.ComputeSlices {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	for _, m := range d.migDevices(g) {
		if _, c, ret := m.compute.find(g); ret == nvml.SUCCESS && c.MIGIndex == index {
			return m, nvml.SUCCESS
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// uuid is the same whenever the same ids exist on the same GPU, as with the
// driver since R470.
func (m *migDevice) uuid() string {
	return "MIG-" + models.UUID(fmt.Sprintf("%s/%d/%d", m.parent.uuid, m.compute.parent.id, m.compute.id))
}

func (m *migDevice) view(call string) (*nvstate.GPUInstance, *nvstate.ComputeInstance, *models.Profile, nvml.Return) {
	g, ret := m.parent.view(call)
	if ret != nvml.SUCCESS {
		return nil, nil, nil, ret
	}
	inst, c, ret := m.compute.find(g)
	if ret != nvml.SUCCESS {
		return nil, nil, nil, ret
	}
	p, _ := profileByID(m.parent.gpu().Model, uint32(inst.Profile))
	return inst, c, p, nvml.SUCCESS
}

// IsMigDeviceHandle is true, also of a stale handle.
func (m *migDevice) IsMigDeviceHandle() (bool, nvml.Return) {
	return true, m.parent.nv.initialized()
}

// GetUUID returns "MIG-…".
func (m *migDevice) GetUUID() (string, nvml.Return) {
	_, _, _, ret := m.view("GetUUID")
	return m.uuid(), ret
}

// GetName is the GPU's name and the profile's; a compute instance smaller
// than its GPU instance has its own slices in front.
func (m *migDevice) GetName() (string, nvml.Return) {
	_, c, p, ret := m.view("GetName")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	name := p.Name
	if c.Size < p.ComputeSlices {
		name = fmt.Sprintf("%dc.%s", c.Size, name)
	}
	return m.parent.gpu().Model.ProductName + " MIG " + name, nvml.SUCCESS
}

// GetIndex is the index among the GPU's MIG devices.
func (m *migDevice) GetIndex() (int, nvml.Return) {
	_, c, _, ret := m.view("")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return c.MIGIndex, nvml.SUCCESS
}

// GetGpuInstanceId is the id on the GPU.
func (m *migDevice) GetGpuInstanceId() (int, nvml.Return) {
	_, _, _, ret := m.view("GetGpuInstanceId")
	return m.compute.parent.id, m.parent.lostAsUnknown(ret)
}

// GetComputeInstanceId is the id in the GPU instance.
func (m *migDevice) GetComputeInstanceId() (int, nvml.Return) {
	_, _, _, ret := m.view("GetComputeInstanceId")
	return m.compute.id, m.parent.lostAsUnknown(ret)
}

// GetDeviceHandleFromMigDeviceHandle returns the GPU.
func (m *migDevice) GetDeviceHandleFromMigDeviceHandle() (nvml.Device, nvml.Return) {
	if _, _, _, ret := m.view(""); ret != nvml.SUCCESS {
		return nil, ret
	}
	return m.parent, nvml.SUCCESS
}

// GetAttributes returns what the device has and what it shares with the other
// compute instances of its GPU instance.
func (m *migDevice) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	_, c, p, ret := m.view("")
	if ret != nvml.SUCCESS {
		return nvml.DeviceAttributes{}, ret
	}
	return nvml.DeviceAttributes{
		MultiprocessorCount:   uint32(multiprocessorsOf(m.parent.gpu().Model, p, c.Size)),
		SharedCopyEngineCount: uint32(p.Engines[models.EngineCopy]), SharedDecoderCount: uint32(p.Engines[models.EngineDecoder]),
		SharedEncoderCount: uint32(p.Engines[models.EngineEncoder]), SharedJpegCount: uint32(p.Engines[models.EngineJPEG]),
		SharedOfaCount: uint32(p.Engines[models.EngineOFA]), GpuInstanceSliceCount: uint32(p.ComputeSlices),
		ComputeInstanceSliceCount: uint32(c.Size), MemorySizeMB: p.MemoryMiB,
	}, nvml.SUCCESS
}

// GetMemoryInfo counts what the driver reserves as used, as version 1 does.
func (m *migDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	v2, ret := m.GetMemoryInfo_v2()
	return nvml.Memory{Total: v2.Total, Free: v2.Free, Used: v2.Reserved + v2.Used}, ret
}

// GetMemoryInfo_v2 is the memory of the GPU instance. It counts what the driver reserves apart.
func (m *migDevice) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	inst, _, p, ret := m.view("GetMemoryInfo")
	if ret != nvml.SUCCESS {
		return nvml.Memory_v2{}, ret
	}
	st, err := m.parent.nv.store.Read()
	if err != nil {
		return nvml.Memory_v2{}, m.parent.nv.unexpected("GetMemoryInfo", err)
	}
	total, reserved := p.MemoryMiB<<20, uint64(reservedOfInstance)
	used := min(total-reserved, m.parent.partMemory(st, inst, p))
	info := nvml.Memory_v2{Total: total, Reserved: reserved, Used: used, Free: total - reserved - used}
	info.Version = nvml.STRUCT_VERSION(info, 2)
	return info, nvml.SUCCESS
}

// reservedOfInstance is what the driver keeps of the memory of a GPU instance, roughly.
const reservedOfInstance = 16 << 20

// GetComputeRunningProcesses lists the clients of the GPU instance.
func (m *migDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return m.listed("GetComputeRunningProcesses", m.parent.GetComputeRunningProcesses)
}

// GetMPSComputeRunningProcesses lists those of them that are clients of MPS.
func (m *migDevice) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return m.listed("GetMPSComputeRunningProcesses", m.parent.GetMPSComputeRunningProcesses)
}

func (m *migDevice) listed(call string, ofGPU func() ([]nvml.ProcessInfo, nvml.Return)) ([]nvml.ProcessInfo, nvml.Return) {
	inst, _, _, ret := m.view(call)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	all, ret := ofGPU()
	return slices.DeleteFunc(all, func(p nvml.ProcessInfo) bool { return int(p.GpuInstanceId) != inst.ID }), ret
}

// GetMigMode is a question to the GPU.
func (m *migDevice) GetMigMode() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }

// GetMaxMigDeviceCount is a question to the GPU.
func (m *migDevice) GetMaxMigDeviceCount() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }

// GetMinorNumber is a question to the GPU.
func (m *migDevice) GetMinorNumber() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
