package nvidia

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// instance is a GPU instance that exists.
type instance struct {
	handle  nvml.GpuInstance
	id      int
	profile string
	// slices are the compute slices of its profile, zero when unknown.
	slices  int
	at      mig.Span
	compute []computeInstance
}

// computeInstance is a compute instance in it.
type computeInstance struct {
	handle nvml.ComputeInstance
	id     int
	// slices is how many compute slices of the GPU instance it has.
	slices int
	// uuid is that of the MIG device, empty until NVML shows one.
	uuid string
}

// Live lists the partitions that exist on one GPU. It goes by GPU instances
// and not by MIG devices, which only show up once a compute instance is in
// place: what a crash left half made must be seen.
func (d *Driver) Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	return onGPU(ctx, d, pciAddress, func(c *gpuHandle) ([]gpu.Partition, error) {
		instances, err := c.instances()
		if err != nil {
			return nil, err
		}
		var live []gpu.Partition
		for _, i := range instances {
			live = append(live, i.partition(pciAddress))
		}
		return live, nil
	})
}

// partition is the instance in the common vocabulary. It is complete when
// something can run in it.
func (i instance) partition(pciAddress string) gpu.Partition {
	p := gpu.Partition{
		GPU:     pciAddress,
		Type:    gpu.TypeMIG,
		Profile: i.profile,
		Start:   i.at.Start,
		Size:    i.at.Size,
		ID:      instanceName(i.id),
	}
	for _, ci := range i.compute {
		if ci.uuid != "" {
			p.UUID, p.Complete = ci.uuid, true
			break
		}
	}
	return p
}

// instances lists the GPU instances of the GPU by position, each with its
// compute instances. A GPU with MIG mode off has none.
func (c *gpuHandle) instances() ([]instance, error) {
	mode, err := c.migMode()
	if err != nil || !mode.on {
		return nil, err
	}
	profiles, err := c.profiles()
	if err != nil {
		return nil, err
	}
	devices, err := c.migDevices()
	if err != nil {
		return nil, err
	}
	handles, err := c.instanceHandles(profiles, devices)
	if err != nil {
		return nil, err
	}
	var all []instance
	for _, handle := range handles {
		i, err := c.instance(handle, profiles, devices)
		if absent(err) {
			continue // gone between two calls
		}
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

// instanceHandles finds the GPU instances: those of each known profile, and
// those that a MIG device speaks of, in case one has a profile that we do not
// know.
func (c *gpuHandle) instanceHandles(profiles []mig.Profile, devices []migDevice) ([]nvml.GpuInstance, error) {
	var all []nvml.GpuInstance
	for _, p := range profiles {
		if p.Max == 0 {
			continue
		}
		handles, err := ask(c.task, "DeviceGetGpuInstances", func() ([]nvml.GpuInstance, nvml.Return) {
			return c.device.GetGpuInstances(profileInfo(p))
		})
		if err != nil && !unsupported(err) {
			return nil, fmt.Errorf("instances of %s: %w", p.Name, err)
		}
		all = append(all, handles...)
	}
	for _, m := range devices {
		handle, err := ask(c.task, "DeviceGetGpuInstanceById", func() (nvml.GpuInstance, nvml.Return) {
			return c.device.GetGpuInstanceById(m.instance)
		})
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, handle)
	}
	return all, nil
}

func (c *gpuHandle) instance(handle nvml.GpuInstance, profiles []mig.Profile, devices []migDevice) (instance, error) {
	info, err := ask(c.task, "GpuInstanceGetInfo", handle.GetInfo)
	if err != nil {
		return instance{}, err
	}
	i := instance{
		handle:  handle,
		id:      int(info.Id),
		profile: fmt.Sprintf("unknown%d", info.ProfileId),
		at:      mig.Span{Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
	}
	for _, p := range profiles {
		if p.ID == info.ProfileId {
			i.profile, i.slices = p.Name, p.Slices
		}
	}
	i.compute, err = c.computeInstances(handle)
	if err != nil {
		return instance{}, err
	}
	for n, ci := range i.compute {
		for _, m := range devices {
			if m.instance == i.id && m.compute == ci.id {
				i.compute[n].uuid = m.uuid
			}
		}
	}
	return i, nil
}

// computeInstances lists the compute instances of a GPU instance by id.
func (c *gpuHandle) computeInstances(gi nvml.GpuInstance) ([]computeInstance, error) {
	kinds, err := c.computeProfiles(gi)
	if err != nil {
		return nil, err
	}
	var all []computeInstance
	for _, kind := range kinds {
		handles, err := ask(c.task, "GpuInstanceGetComputeInstances", func() ([]nvml.ComputeInstance, nvml.Return) {
			return gi.GetComputeInstances(&kind)
		})
		if unsupported(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, handle := range handles {
			info, err := ask(c.task, "ComputeInstanceGetInfo", handle.GetInfo)
			if absent(err) {
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

// computeProfiles lists the kinds of compute instances that a GPU instance
// takes. They depend on the GPU instance, so they are asked of it and never
// guessed from its profile (kubernetes-sigs/dra-driver-nvidia-gpu#1480).
func (c *gpuHandle) computeProfiles(gi nvml.GpuInstance) ([]nvml.ComputeInstanceProfileInfo, error) {
	var all []nvml.ComputeInstanceProfileInfo
	for enum := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		kind, err := ask(c.task, "GpuInstanceGetComputeInstanceProfileInfo", func() (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			return gi.GetComputeInstanceProfileInfo(enum, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		})
		if unsupported(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if kind.InstanceCount > 0 {
			all = append(all, kind)
		}
	}
	return all, nil
}

// migDevice is what CUDA programs use: a compute instance with a UUID.
type migDevice struct {
	instance, compute int
	uuid              string
}

// migDevices lists the MIG devices of the GPU with the ids of the instances
// that they stand for. These ids are the only way from an instance to its UUID:
// the device in a compute instance's own info is the parent.
func (c *gpuHandle) migDevices() ([]migDevice, error) {
	count, err := ask(c.task, "DeviceGetMaxMigDeviceCount", c.device.GetMaxMigDeviceCount)
	if unsupported(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []migDevice
	for index := range count {
		m, err := c.migDevice(index)
		if absent(err) {
			continue // the indexes of what was destroyed stay empty
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (c *gpuHandle) migDevice(index int) (migDevice, error) {
	var m migDevice
	device, err := ask(c.task, "DeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
		return c.device.GetMigDeviceHandleByIndex(index)
	})
	if err != nil {
		return m, err
	}
	if m.instance, err = ask(c.task, "DeviceGetGpuInstanceId", device.GetGpuInstanceId); err != nil {
		return m, err
	}
	if m.compute, err = ask(c.task, "DeviceGetComputeInstanceId", device.GetComputeInstanceId); err != nil {
		return m, err
	}
	m.uuid, err = ask(c.task, "DeviceGetUUID", device.GetUUID)
	return m, err
}
