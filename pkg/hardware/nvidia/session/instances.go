package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// instance is a GPU instance that exists.
type instance struct {
	handle  nvml.GpuInstance
	id      int
	profile string
	// slices are the compute slices of its profile, zero if unknown.
	slices  int
	at      mig.Span
	compute []computeInstance
}

type computeInstance struct {
	handle nvml.ComputeInstance
	id     int
	// slices are its compute slices.
	slices int
	// device is the MIG device, and uuid its UUID; empty until NVML lists it.
	device nvml.Device
	uuid   string
}

// Live lists the partitions that exist. It lists GPU instances rather than MIG devices,
// which exist only with a compute instance: what a crash left incomplete must be seen.
func (g *GPU) Live() ([]gpu.Partition, error) {
	instances, err := g.instances()
	if err != nil {
		return nil, err
	}
	return lists.Map(instances, func(i instance) gpu.Partition { return i.partition(g.PCIAddress) }), nil
}

// Part is a partition that programs can run in.
type Part struct {
	gpu.Partition
	// Instance is the id of the GPU instance, Device the MIG device.
	Instance int
	Device   nvml.Device
}

// Parts lists the complete partitions.
func (g *GPU) Parts() ([]Part, error) {
	instances, err := g.instances()
	if err != nil {
		return nil, err
	}
	var parts []Part
	for _, i := range instances {
		if p := i.partition(g.PCIAddress); p.Complete {
			n := slices.IndexFunc(i.compute, func(ci computeInstance) bool { return ci.uuid == p.UUID })
			parts = append(parts, Part{Partition: p, Instance: i.id, Device: i.compute[n].device})
		}
	}
	return parts, nil
}

// Find returns the ids of the GPU instance at a placement and of the compute instance in
// it. It fails if the partition does not exist or is not complete.
func (g *GPU) Find(p gpu.Placement) (gi, ci int, err error) {
	instances, err := g.instances()
	if err != nil {
		return 0, 0, err
	}
	n := slices.IndexFunc(instances, func(i instance) bool { return i.partition(g.PCIAddress).Is(p) })
	if n < 0 {
		return 0, 0, errors.New("the partition does not exist")
	}
	i := instances[n]
	if len(i.compute) != 1 || i.compute[0].uuid == "" {
		return 0, 0, fmt.Errorf("GPU instance %d is not complete: it has %d compute instances", i.id, len(i.compute))
	}
	return i.id, i.compute[0].id, nil
}

// partition returns the instance as pkg/gpu describes it. It is complete if programs can
// run in it.
func (i instance) partition(pciAddress string) gpu.Partition {
	p := gpu.Partition{
		GPU:     pciAddress,
		Type:    gpu.TypeMIG,
		Profile: i.profile,
		Start:   i.at.Start,
		Size:    i.at.Size,
		ID:      Name(i.id),
	}
	for _, ci := range i.compute {
		if ci.uuid != "" {
			p.UUID, p.Complete = ci.uuid, true
			break
		}
	}
	return p
}

// listings is how often the instances are listed if some are gone when they are read.
const listings = 3

// instances lists the GPU instances by position, each with its compute instances. There
// are none while MIG mode is off. One that is listed again and again, and gone whenever it is
// read, is an error: then the answers contradict each other.
func (g *GPU) instances() ([]instance, error) {
	mode, err := g.Mode()
	if err == nil && !mode.Capable {
		return nil, g.checkIncapable()
	}
	if err != nil || !mode.On {
		return nil, err
	}
	profiles, err := g.profiles()
	if err != nil {
		return nil, err
	}
	if len(profiles) == 0 {
		return nil, fmt.Errorf("GPU %s: MIG mode is on, but the driver lists no profile", g.PCIAddress)
	}
	for range listings {
		var all []instance
		if all, err = g.list(profiles); !errors.Is(err, errGone) {
			return all, err
		}
	}
	return nil, err
}

// checkIncapable fails if MIG devices are possible on a GPU whose driver says that it has no MIG
// mode. NVML has none of them on such a GPU (nvml.h, nvmlDeviceGetMaxMigDeviceCount).
func (g *GPU) checkIncapable() error {
	count, err := Ask(g.Task, "DeviceGetMaxMigDeviceCount", g.Device.GetMaxMigDeviceCount)
	switch {
	case Unsupported(err):
		return nil
	case err == nil && count > 0:
		return fmt.Errorf("GPU %s: the driver says that it has no MIG mode, and that up to %d MIG devices are possible", g.PCIAddress, count)
	}
	return err
}

// errGone says that a GPU instance was destroyed while it was read.
var errGone = errors.New("a GPU instance that is listed cannot be read: it is gone")

// list is instances while MIG mode is on. It fails with errGone if an instance is destroyed
// meanwhile.
func (g *GPU) list(profiles []mig.Profile) ([]instance, error) {
	devices, err := g.migDevices()
	if err != nil {
		return nil, err
	}
	handles, err := g.instanceHandles(profiles, devices)
	if err != nil {
		return nil, err
	}
	var all []instance
	for _, handle := range handles {
		i, err := g.instance(handle, profiles, devices)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.at.Start, b.at.Start), cmp.Compare(a.id, b.id))
	})
	return slices.CompactFunc(all, func(a, b instance) bool { return a.id == b.id }), nil
}

// instanceHandles finds the GPU instances of each known profile, and those that MIG devices
// refer to, which may have an unknown profile.
func (g *GPU) instanceHandles(profiles []mig.Profile, devices []migDevice) ([]nvml.GpuInstance, error) {
	var all []nvml.GpuInstance
	var unsupported error
	listed := false
	for _, p := range profiles {
		if p.Max == 0 {
			continue
		}
		handles, err := Ask(g.Task, "DeviceGetGpuInstances", func() ([]nvml.GpuInstance, nvml.Return) {
			return g.Device.GetGpuInstances(profileInfo(p))
		})
		switch {
		case Unsupported(err):
			unsupported = err
		case err != nil:
			return nil, fmt.Errorf("instances of %s: %w", p.Name, err)
		default:
			listed = true
		}
		all = append(all, handles...)
	}
	if !listed && unsupported != nil {
		return nil, unsupported // that MIG mode is off, says nvml.h, but it is on
	}
	for _, m := range devices {
		handle, err := Ask(g.Task, "DeviceGetGpuInstanceById", func() (nvml.GpuInstance, nvml.Return) {
			return g.Device.GetGpuInstanceById(m.instance)
		})
		if errors.Is(err, nvml.ERROR_NOT_FOUND) {
			continue // destroyed since its MIG device was listed
		}
		if err != nil {
			return nil, err
		}
		all = append(all, handle)
	}
	return all, nil
}

// instance reads a GPU instance. It fails with errGone if it was destroyed meanwhile. Only the answer
// to the handle itself tells that, and it comes last: it judges the answers before it, and their
// errors may mean anything else.
func (g *GPU) instance(handle nvml.GpuInstance, profiles []mig.Profile, devices []migDevice) (i instance, err error) {
	compute, failed := g.computeInstances(handle)
	info, err := Ask(g.Task, "GpuInstanceGetInfo", handle.GetInfo)
	switch {
	case StaleHandle(err):
		return instance{}, fmt.Errorf("%w: %w", errGone, err)
	case failed != nil:
		return instance{}, failed
	case err != nil:
		return instance{}, err
	}
	i = instance{
		handle:  handle,
		id:      int(info.Id),
		profile: fmt.Sprintf("unknown%d", info.ProfileId),
		at:      mig.Span{Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
		compute: compute,
	}
	for _, p := range profiles {
		if p.ID == info.ProfileId {
			i.profile, i.slices = p.Name, p.Slices
		}
	}
	for n, ci := range i.compute {
		for _, m := range devices {
			if m.instance == i.id && m.compute == ci.id {
				i.compute[n].device, i.compute[n].uuid = m.device, m.uuid
			}
		}
	}
	return i, nil
}

// computeInstances lists the compute instances of a GPU instance by id.
func (g *GPU) computeInstances(gi nvml.GpuInstance) ([]computeInstance, error) {
	kinds, err := g.computeProfiles(gi)
	if err != nil {
		return nil, err
	}
	var all []computeInstance
	for _, kind := range kinds {
		handles, err := Ask(g.Task, "GpuInstanceGetComputeInstances", func() ([]nvml.ComputeInstance, nvml.Return) {
			return gi.GetComputeInstances(&kind)
		})
		if Unsupported(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, handle := range handles {
			info, err := Ask(g.Task, "ComputeInstanceGetInfo", handle.GetInfo)
			if StaleHandle(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, computeInstance{handle: handle, id: int(info.Id), slices: int(kind.SliceCount)})
		}
	}
	slices.SortFunc(all, func(a, b computeInstance) int { return cmp.Compare(a.id, b.id) })
	return slices.CompactFunc(all, func(a, b computeInstance) bool { return a.id == b.id }), nil
}

// computeProfiles lists the profiles of compute instances that a GPU instance supports. They
// depend on the GPU instance, and are not to be derived from its profile
// (kubernetes-sigs/dra-driver-nvidia-gpu#1480).
func (g *GPU) computeProfiles(gi nvml.GpuInstance) ([]nvml.ComputeInstanceProfileInfo, error) {
	all, err := enumerate(nvml.COMPUTE_INSTANCE_PROFILE_COUNT, func(number int) (nvml.ComputeInstanceProfileInfo, error) {
		return Ask(g.Task, "GpuInstanceGetComputeInstanceProfileInfo", func() (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			return gi.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		})
	})
	return slices.DeleteFunc(all, func(k nvml.ComputeInstanceProfileInfo) bool { return k.InstanceCount == 0 }), err
}

// migDevice is what CUDA programs see of a compute instance.
type migDevice struct {
	device            nvml.Device
	instance, compute int
	uuid              string
}

// migDevices lists the MIG devices with the ids of their instances. These ids are the only
// way from an instance to its UUID: the device in a compute instance's info is the parent.
func (g *GPU) migDevices() ([]migDevice, error) {
	count, err := Ask(g.Task, "DeviceGetMaxMigDeviceCount", g.Device.GetMaxMigDeviceCount)
	if Unsupported(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []migDevice
	for index := range count {
		device, err := Ask(g.Task, "DeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return g.Device.GetMigDeviceHandleByIndex(index)
		})
		if errors.Is(err, nvml.ERROR_NOT_FOUND) || errors.Is(err, nvml.ERROR_INVALID_ARGUMENT) {
			continue // the index of a destroyed device stays empty
		}
		if err != nil {
			return nil, err
		}
		m, err := g.migDevice(device)
		if StaleHandle(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (g *GPU) migDevice(device nvml.Device) (migDevice, error) {
	m := migDevice{device: device}
	var err error
	if m.instance, err = Ask(g.Task, "DeviceGetGpuInstanceId", device.GetGpuInstanceId); err != nil {
		return m, err
	}
	if m.compute, err = Ask(g.Task, "DeviceGetComputeInstanceId", device.GetComputeInstanceId); err != nil {
		return m, err
	}
	m.uuid, err = Ask(g.Task, "DeviceGetUUID", device.GetUUID)
	return m, err
}
