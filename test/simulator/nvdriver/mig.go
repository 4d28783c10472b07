package nvdriver

import (
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/gofrs/flock"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// change begins a call that alters the GPU: one at a time for each GPU
// across all processes, checked and written under the lock of the state, and
// then as long as the hardware takes. The new state is visible before the call
// returns, as it is when a process dies inside the real call and the driver
// finishes it all the same.
func (d *device) change(call string, delay time.Duration, fn func(*nvstate.State, *nvstate.GPU) nvml.Return) nvml.Return {
	lock := flock.New(filepath.Join(d.nv.root, "gpu-"+strconv.Itoa(d.index)+".lock"))
	if err := lock.Lock(); err != nil {
		return d.nv.unexpected(call, err)
	}
	defer lock.Close()
	if ret := d.check(call); ret != nvml.SUCCESS {
		return ret
	}
	err := d.nv.store.Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			return nil, nvstate.ErrNone(d.nv.root)
		}
		g, ok := st.GPU(d.gpu().PCI)
		if !ok {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		before := nvfiles.Capabilities(d.index, g)
		if ret := fn(st, g); ret != nvml.SUCCESS {
			return nil, ret
		}
		return st, d.nv.files.MoveCapabilities(st, before, nvfiles.Capabilities(d.index, g))
	})
	var ret nvml.Return
	switch {
	case err == nil:
		d.nv.sleep(delay)
		return nvml.SUCCESS
	case errors.As(err, &ret):
		return ret
	default:
		return d.nv.unexpected(call, err)
	}
}

// GetMigMode returns the mode now and the mode after the next reset.
func (d *device) GetMigMode() (current, pending int, ret nvml.Return) {
	g, ret := d.view("GetMigMode")
	if ret != nvml.SUCCESS {
		return 0, 0, d.lostAsUnknown(ret)
	}
	if !d.gpu().Model.HasMIG() {
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	return migMode(g.MIGMode), migMode(g.PendingMIGMode), nvml.SUCCESS
}

// lostAsUnknown is the answer of calls for which nvml.h documents ERROR_UNKNOWN "on any
// unexpected error" and no ERROR_GPU_IS_LOST.
func (d *device) lostAsUnknown(ret nvml.Return) nvml.Return {
	if ret == nvml.ERROR_GPU_IS_LOST && d.reachable() == ret {
		return nvml.ERROR_UNKNOWN
	}
	return ret
}

func migMode(on bool) int {
	if on {
		return nvml.DEVICE_MIG_ENABLE
	}
	return nvml.DEVICE_MIG_DISABLE
}

// SetMigMode asks for a mode. As in nvml.h the call succeeds when the wish was
// noted; whether it holds is in the first result, the activation status:
//   - IN_USE while the GPU has clients; the wish stays pending;
//   - on Ampere the call resets the GPU, as nvml.h has it ("may unbind or reset the
//     device"), and answers RESET_REQUIRED where that cannot be done, as in a virtual
//     machine that the GPU was passed to; then the wish waits for the next reset,
//     load of the driver or reboot;
//   - SUCCESS from Hopper on.
//
// Switching off while instances exist is refused outright with IN_USE. A call that fails says nothing
// of an activation: kubernetes-sigs/dra-driver-nvidia-gpu, which takes the two results for each other,
// has seen a status of SUCCESS then, and a mode that stays on (#852).
func (d *device) SetMigMode(mode int) (activation, ret nvml.Return) {
	if mode != nvml.DEVICE_MIG_ENABLE && mode != nvml.DEVICE_MIG_DISABLE {
		return nvml.SUCCESS, nvml.ERROR_INVALID_ARGUMENT
	}
	if !d.gpu().Model.HasMIG() {
		return nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED
	}
	on := mode == nvml.DEVICE_MIG_ENABLE
	faults, file := d.nv.faults.Read()
	ret = d.change("SetMigMode", d.nv.inventory.Delays.SetMIGMode, func(st *nvstate.State, g *nvstate.GPU) nvml.Return {
		if !on && len(g.Instances) > 0 {
			return nvml.ERROR_IN_USE
		}
		g.PendingMIGMode = on
		switch {
		case g.MIGMode == on:
		case len(d.clients(st)) > 0:
			activation = nvml.ERROR_IN_USE
		case d.gpu().Model.KeepsMIGMode() && st.NextReset(faults.Resets, g.PCI, file).Refused:
			activation = nvml.ERROR_RESET_REQUIRED
		case d.gpu().Model.KeepsMIGMode():
			g.Reset()
		default:
			g.MIGMode = on
		}
		return nvml.SUCCESS
	})
	return activation, ret
}

// profile looks up a profile by number with NVML's answers for absent ones.
// The GPU answers whatever its MIG mode (seen on an H200 with MIG disabled).
func (d *device) profile(enum int) (*models.Profile, nvml.Return) {
	if ret := d.check("GetGpuInstanceProfileInfo"); ret != nvml.SUCCESS {
		return nil, ret
	}
	if enum < 0 || enum >= d.nv.library.gpuProfiles {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	p, ok := profileByEnum(d.gpu().Model, enum)
	if !ok {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	return p, nvml.SUCCESS
}

// GetGpuInstanceProfileInfo describes a profile, whatever the MIG mode.
func (d *device) GetGpuInstanceProfileInfo(enum int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	p, ret := d.profile(enum)
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceProfileInfo{}, ret
	}
	return nvml.GpuInstanceProfileInfo{
		Id: uint32(p.ID), SliceCount: uint32(p.ComputeSlices), InstanceCount: uint32(p.MaxInstances),
		MultiprocessorCount: uint32(p.Multiprocessors), CopyEngineCount: uint32(p.Engines[models.EngineCopy]),
		DecoderCount: uint32(p.Engines[models.EngineDecoder]), EncoderCount: uint32(p.Engines[models.EngineEncoder]),
		JpegCount: uint32(p.Engines[models.EngineJPEG]), OfaCount: uint32(p.Engines[models.EngineOFA]), MemorySizeMB: p.MemoryMiB,
	}, nvml.SUCCESS
}

// GetGpuInstanceProfileInfoV3 is what GetGpuInstanceProfileInfoV(enum).V3()
// answers on real hardware; it carries the profile's name. go-nvml's handler
// holds an unexported pointer of the C library and cannot be made here.
func (d *device) GetGpuInstanceProfileInfoV3(enum int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
	v1, ret := d.GetGpuInstanceProfileInfo(enum)
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceProfileInfo_v3{}, ret
	}
	if !d.nv.library.newProfiles {
		return nvml.GpuInstanceProfileInfo_v3{}, nvml.ERROR_INVALID_ARGUMENT // "if info->version is invalid" (nvml.h)
	}
	p, _ := profileByEnum(d.gpu().Model, enum)
	info := nvml.GpuInstanceProfileInfo_v3{
		Id: v1.Id, SliceCount: v1.SliceCount, InstanceCount: v1.InstanceCount,
		MultiprocessorCount: v1.MultiprocessorCount, CopyEngineCount: v1.CopyEngineCount,
		DecoderCount: v1.DecoderCount, EncoderCount: v1.EncoderCount,
		JpegCount: v1.JpegCount, OfaCount: v1.OfaCount, MemorySizeMB: v1.MemorySizeMB,
	}
	info.Version = nvml.STRUCT_VERSION(info, 3)
	setString(info.Name[:], "MIG "+p.Name)
	if hasGraphics(p) {
		info.Capabilities = nvml.GPU_INSTANCE_PROFILE_CAPS_GFX
	}
	return info, nvml.SUCCESS
}

// GetGpuInstanceProfileInfoV2 is version 2 of the same, which every library has.
func (d *device) GetGpuInstanceProfileInfoV2(enum int) (nvml.GpuInstanceProfileInfo_v2, nvml.Return) {
	v1, ret := d.GetGpuInstanceProfileInfo(enum)
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceProfileInfo_v2{}, ret
	}
	p, _ := profileByEnum(d.gpu().Model, enum)
	info := nvml.GpuInstanceProfileInfo_v2{
		Id: v1.Id, SliceCount: v1.SliceCount, InstanceCount: v1.InstanceCount,
		MultiprocessorCount: v1.MultiprocessorCount, MemorySizeMB: v1.MemorySizeMB,
	}
	info.Version = nvml.STRUCT_VERSION(info, 2)
	setString(info.Name[:], "MIG "+p.Name)
	return info, nvml.SUCCESS
}

// GetGpuInstanceProfileInfoV panics: see GetGpuInstanceProfileInfoV3.
func (d *device) GetGpuInstanceProfileInfoV(int) nvml.GpuInstanceProfileInfoHandler {
	panic("simulated NVIDIA driver: nvml.Device.GetGpuInstanceProfileInfoV cannot be simulated, its handler calls C: assert the device to GetGpuInstanceProfileInfoV3(int) first")
}

// GetGpuInstancePossiblePlacements lists where instances of the profile can
// start, "regardless of whether MIG is enabled or not" (nvml.h) and of what is
// taken.
func (d *device) GetGpuInstancePossiblePlacements(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
	if info == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	if ret := d.check("GetGpuInstancePossiblePlacements"); ret != nvml.SUCCESS {
		return nil, ret
	}
	p, ok := profileByID(d.gpu().Model, info.Id)
	if !ok {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	placements := make([]nvml.GpuInstancePlacement, 0, len(p.Starts))
	for _, s := range p.Starts {
		placements = append(placements, nvml.GpuInstancePlacement{Start: uint32(s), Size: uint32(p.Size)})
	}
	return placements, nvml.SUCCESS
}

// GetGpuInstanceRemainingCapacity counts how many more instances of the
// profile fit beside those that exist.
func (d *device) GetGpuInstanceRemainingCapacity(info *nvml.GpuInstanceProfileInfo) (int, nvml.Return) {
	g, p, ret := d.viewMIG("GetGpuInstances", info)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return remaining(d.gpu().Model, g.Instances, p), nvml.SUCCESS
}

// viewMIG begins a reading call about a profile. MIG mode need not be on: then no instance exists
// (seen on an H100, realdriver.md).
func (d *device) viewMIG(call string, info *nvml.GpuInstanceProfileInfo) (*nvstate.GPU, *models.Profile, nvml.Return) {
	if info == nil {
		return nil, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	g, ret := d.view(call)
	if ret != nvml.SUCCESS {
		return nil, nil, ret
	}
	if !d.gpu().Model.HasMIG() {
		return nil, nil, nvml.ERROR_NOT_SUPPORTED
	}
	p, ok := profileByID(d.gpu().Model, info.Id)
	if !ok {
		return nil, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return g, p, nvml.SUCCESS
}
