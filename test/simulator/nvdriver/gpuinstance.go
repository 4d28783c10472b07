package nvdriver

import (
	"cmp"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// gpuInstance is the handle of a GPU instance. It goes stale when the instance
// is destroyed, even if another gets the same id.
type gpuInstance struct {
	nvml.GpuInstance

	dev    *device
	id     int
	serial uint64
}

// instanceHandle makes a handle of an instance of a state.
func (d *device) instanceHandle(i *nvstate.GPUInstance) *gpuInstance {
	return &gpuInstance{GpuInstance: missingInstance, dev: d, id: i.ID, serial: i.Serial}
}

// CreateGpuInstance lets the driver choose the placement.
func (d *device) CreateGpuInstance(info *nvml.GpuInstanceProfileInfo) (nvml.GpuInstance, nvml.Return) {
	return d.createInstance(info, nil)
}

// CreateGpuInstanceWithPlacement creates a GPU instance at a placement: NOT_SUPPORTED
// without MIG mode, INVALID_ARGUMENT for a profile or placement that the GPU
// does not have, INSUFFICIENT_RESOURCES when slices or engines are taken.
func (d *device) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, placement *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	if placement == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return d.createInstance(info, placement)
}

func (d *device) createInstance(info *nvml.GpuInstanceProfileInfo, placement *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	if info == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	var created *gpuInstance
	ret := d.change("CreateGpuInstance", d.nv.inventory.Delays.CreateGPUInstance, func(st *nvstate.State, g *nvstate.GPU) nvml.Return {
		m := d.gpu().Model
		if !g.MIGMode {
			return nvml.ERROR_NOT_SUPPORTED
		}
		p, ok := profileByID(m, info.Id)
		if !ok {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		start, ret := d.placeInstance(g, p, placement)
		if ret != nvml.SUCCESS {
			return ret
		}
		i := nvstate.GPUInstance{ID: instanceID(m, p, start), Profile: p.ID, Start: start, Serial: st.NextSerial()}
		g.Instances = append(g.Instances, i)
		slices.SortFunc(g.Instances, func(a, b nvstate.GPUInstance) int { return cmp.Compare(a.ID, b.ID) })
		created = d.instanceHandle(&i)
		return nvml.SUCCESS
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return created, nvml.SUCCESS
}

func (d *device) placeInstance(g *nvstate.GPU, p *models.Profile, wanted *nvml.GpuInstancePlacement) (int, nvml.Return) {
	m := d.gpu().Model
	if wanted == nil {
		start, ok := chooseStart(m, g.Instances, p)
		if !ok {
			return 0, nvml.ERROR_INSUFFICIENT_RESOURCES
		}
		return start, nvml.SUCCESS
	}
	if int(wanted.Size) != p.Size || !slices.Contains(p.Starts, int(wanted.Start)) {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	if !fits(m, g.Instances, p, int(wanted.Start)) {
		return 0, nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	return int(wanted.Start), nvml.SUCCESS
}

// GetGpuInstances lists the instances of one profile; those of another profile
// with the same slices are not among them.
func (d *device) GetGpuInstances(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	if info != nil && info.InstanceCount == 0 {
		return nil, nvml.ERROR_INVALID_ARGUMENT // go-nvml sizes its buffer by it
	}
	g, p, ret := d.viewMIG("GetGpuInstances", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	instances := []nvml.GpuInstance{}
	for i := range g.Instances {
		if g.Instances[i].Profile == p.ID {
			instances = append(instances, d.instanceHandle(&g.Instances[i]))
		}
	}
	return instances, nvml.SUCCESS
}

// GetGpuInstanceById finds an instance by its id on the GPU; with MIG mode off there is none.
func (d *device) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) {
	g, ret := d.view("GetGpuInstances")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	if !d.gpu().Model.HasMIG() {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	i, ok := g.Instance(id)
	if !ok {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return d.instanceHandle(i), nvml.SUCCESS
}

// find returns the instance of the handle in a state, INVALID_ARGUMENT if the
// handle is stale.
func (i *gpuInstance) find(g *nvstate.GPU) (*nvstate.GPUInstance, *models.Profile, nvml.Return) {
	inst, ok := g.Instance(i.id)
	if !ok || inst.Serial != i.serial {
		return nil, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	p, ok := profileByID(i.dev.gpu().Model, uint32(inst.Profile))
	if !ok {
		return nil, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return inst, p, nvml.SUCCESS
}

func (i *gpuInstance) view(call string) (*nvstate.GPUInstance, *models.Profile, nvml.Return) {
	g, ret := i.dev.view(call)
	if ret != nvml.SUCCESS {
		return nil, nil, ret
	}
	return i.find(g)
}

// GetInfo returns id, profile id and placement.
func (i *gpuInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	inst, p, ret := i.view("GetGpuInstances")
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceInfo{}, ret
	}
	return nvml.GpuInstanceInfo{
		Device: i.dev, Id: uint32(inst.ID), ProfileId: uint32(inst.Profile),
		Placement: nvml.GpuInstancePlacement{Start: uint32(inst.Start), Size: uint32(p.Size)},
	}, nvml.SUCCESS
}

// Destroy is refused with IN_USE while compute instances or processes exist.
func (i *gpuInstance) Destroy() nvml.Return {
	d := i.dev
	return d.change("GpuInstanceDestroy", d.nv.inventory.Delays.DestroyGPUInstance, func(st *nvstate.State, g *nvstate.GPU) nvml.Return {
		inst, _, ret := i.find(g)
		if ret != nvml.SUCCESS {
			return ret
		}
		if len(inst.Compute) > 0 || len(d.clientsOf(st, i.id)) > 0 {
			return nvml.ERROR_IN_USE
		}
		g.Instances = slices.DeleteFunc(g.Instances, func(x nvstate.GPUInstance) bool { return x.ID == i.id })
		return nvml.SUCCESS
	})
}
