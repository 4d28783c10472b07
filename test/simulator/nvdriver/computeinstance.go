package nvdriver

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// computeInstance is the handle of a compute instance.
type computeInstance struct {
	nvml.ComputeInstance

	parent *gpuInstance
	id     int
	serial uint64
}

func (i *gpuInstance) computeHandle(c *nvstate.ComputeInstance) *computeInstance {
	return &computeInstance{ComputeInstance: missingCompute, parent: i, id: c.ID, serial: c.Serial}
}

// computeProfile looks up a compute profile with NVML's answers for absent
// ones: its slices and where it can start.
func (i *gpuInstance) computeProfile(p *models.Profile, enum int) (size int, starts []int, ret nvml.Return) {
	if enum < 0 || enum >= i.dev.nv.library.computeProfiles {
		return 0, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	size, ok := computeProfiles[enum]
	if ok {
		starts = computeStarts(p, size)
	}
	if len(starts) == 0 {
		return 0, nil, nvml.ERROR_NOT_SUPPORTED
	}
	return size, starts, nvml.SUCCESS
}

// GetComputeInstanceProfileInfo describes a compute profile of this instance.
// Its id equals its number, as nvidia-smi mig -lcip shows.
func (i *gpuInstance) GetComputeInstanceProfileInfo(enum, engines int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	_, p, ret := i.view("GetComputeInstances")
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceProfileInfo{}, ret
	}
	if engines != nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED {
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_INVALID_ARGUMENT
	}
	size, starts, ret := i.computeProfile(p, enum)
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceProfileInfo{}, ret
	}
	return nvml.ComputeInstanceProfileInfo{
		Id: uint32(enum), SliceCount: uint32(size), InstanceCount: uint32(len(starts)),
		MultiprocessorCount:   uint32(multiprocessorsOf(i.dev.gpu().Model, p, size)),
		SharedCopyEngineCount: uint32(p.Engines[models.EngineCopy]), SharedDecoderCount: uint32(p.Engines[models.EngineDecoder]),
		SharedEncoderCount: uint32(p.Engines[models.EngineEncoder]), SharedJpegCount: uint32(p.Engines[models.EngineJPEG]),
		SharedOfaCount: uint32(p.Engines[models.EngineOFA]),
	}, nvml.SUCCESS
}

// GetComputeInstanceProfileInfoV panics, for the reason of
// GetGpuInstanceProfileInfoV.
func (i *gpuInstance) GetComputeInstanceProfileInfoV(int, int) nvml.ComputeInstanceProfileInfoHandler {
	panic("simulated NVIDIA driver: nvml.GpuInstance.GetComputeInstanceProfileInfoV cannot be simulated, its handler calls C: use GetComputeInstanceProfileInfo")
}

// GetComputeInstancePossiblePlacements lists where the profile can start.
func (i *gpuInstance) GetComputeInstancePossiblePlacements(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstancePlacement, nvml.Return) {
	if info == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	_, p, ret := i.view("GetComputeInstances")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	size, starts, ret := i.computeProfile(p, int(info.Id))
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var placements []nvml.ComputeInstancePlacement
	for _, s := range starts {
		placements = append(placements, nvml.ComputeInstancePlacement{Start: uint32(s), Size: uint32(size)})
	}
	return placements, nvml.SUCCESS
}

// GetComputeInstanceRemainingCapacity counts how many more fit.
func (i *gpuInstance) GetComputeInstanceRemainingCapacity(info *nvml.ComputeInstanceProfileInfo) (int, nvml.Return) {
	if info == nil {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	inst, p, ret := i.view("GetComputeInstances")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	size, starts, ret := i.computeProfile(p, int(info.Id))
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	free := slices.DeleteFunc(starts, func(s int) bool { return !computeFits(inst, s, size) })
	return len(free), nvml.SUCCESS
}

// CreateComputeInstance takes the first free compute slices.
func (i *gpuInstance) CreateComputeInstance(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
	return i.createCompute(info, nil)
}

// CreateComputeInstanceWithPlacement takes the compute slices named.
func (i *gpuInstance) CreateComputeInstanceWithPlacement(info *nvml.ComputeInstanceProfileInfo, placement *nvml.ComputeInstancePlacement) (nvml.ComputeInstance, nvml.Return) {
	if placement == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return i.createCompute(info, placement)
}

func (i *gpuInstance) createCompute(info *nvml.ComputeInstanceProfileInfo, placement *nvml.ComputeInstancePlacement) (nvml.ComputeInstance, nvml.Return) {
	if info == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	d := i.dev
	var created *computeInstance
	ret := d.change("CreateComputeInstance", d.nv.inventory.Delays.CreateComputeInstance, func(st *nvstate.State, g *nvstate.GPU) nvml.Return {
		inst, p, ret := i.find(g)
		if ret != nvml.SUCCESS {
			return ret
		}
		size, starts, ret := i.computeProfile(p, int(info.Id))
		if ret != nvml.SUCCESS {
			return ret
		}
		if placement != nil {
			if int(placement.Size) != size || !slices.Contains(starts, int(placement.Start)) {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			starts = []int{int(placement.Start)}
		}
		at := slices.IndexFunc(starts, func(s int) bool { return computeFits(inst, s, size) })
		if at < 0 {
			return nvml.ERROR_INSUFFICIENT_RESOURCES
		}
		c := nvstate.ComputeInstance{
			ID: freeComputeID(inst), Profile: int(info.Id), Start: starts[at], Size: size,
			Serial: st.NextSerial(), MIGIndex: freeMIGIndex(g),
		}
		inst.Compute = append(inst.Compute, c)
		created = i.computeHandle(&c)
		return nvml.SUCCESS
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return created, nvml.SUCCESS
}

// GetComputeInstances lists the compute instances of one profile.
func (i *gpuInstance) GetComputeInstances(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
	if info == nil || info.InstanceCount == 0 {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	inst, _, ret := i.view("GetComputeInstances")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	instances := []nvml.ComputeInstance{}
	for j := range inst.Compute {
		if inst.Compute[j].Profile == int(info.Id) {
			instances = append(instances, i.computeHandle(&inst.Compute[j]))
		}
	}
	return instances, nvml.SUCCESS
}

// GetComputeInstanceById finds a compute instance by its id.
func (i *gpuInstance) GetComputeInstanceById(id int) (nvml.ComputeInstance, nvml.Return) {
	inst, _, ret := i.view("GetComputeInstances")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	c, ok := inst.ComputeInstance(id)
	if !ok {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return i.computeHandle(c), nvml.SUCCESS
}

func (c *computeInstance) find(g *nvstate.GPU) (*nvstate.GPUInstance, *nvstate.ComputeInstance, nvml.Return) {
	inst, _, ret := c.parent.find(g)
	if ret != nvml.SUCCESS {
		return nil, nil, ret
	}
	found, ok := inst.ComputeInstance(c.id)
	if !ok || found.Serial != c.serial {
		return nil, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return inst, found, nvml.SUCCESS
}

// GetInfo returns the parents, id, profile id and placement. Device is the
// GPU, not the MIG device (nvml.h: "Parent device"): a caller that takes the
// MIG device's UUID from it gets the GPU's.
func (c *computeInstance) GetInfo() (nvml.ComputeInstanceInfo, nvml.Return) {
	g, ret := c.parent.dev.view("GetComputeInstances")
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceInfo{}, ret
	}
	_, found, ret := c.find(g)
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceInfo{}, ret
	}
	return nvml.ComputeInstanceInfo{
		Device: c.parent.dev, GpuInstance: c.parent, Id: uint32(found.ID), ProfileId: uint32(found.Profile),
		Placement: nvml.ComputeInstancePlacement{Start: uint32(found.Start), Size: uint32(found.Size)},
	}, nvml.SUCCESS
}

// Destroy is refused with IN_USE while processes run in the GPU instance.
func (c *computeInstance) Destroy() nvml.Return {
	d := c.parent.dev
	return d.change("ComputeInstanceDestroy", d.nv.inventory.Delays.DestroyComputeInstance, func(st *nvstate.State, g *nvstate.GPU) nvml.Return {
		inst, _, ret := c.find(g)
		if ret != nvml.SUCCESS {
			return ret
		}
		if len(d.clientsOf(st, inst.ID)) > 0 {
			return nvml.ERROR_IN_USE
		}
		inst.Compute = slices.DeleteFunc(inst.Compute, func(x nvstate.ComputeInstance) bool { return x.ID == c.id })
		return nvml.SUCCESS
	})
}
