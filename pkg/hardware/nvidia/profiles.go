package nvidia

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// profilesBeyond is how many numbers after the enumeration that we were built
// with are asked for too, so that a profile of a newer driver is seen.
const profilesBeyond = 8

// profiles lists the kinds of GPU instances that the GPU offers, without
// their positions. It works with MIG mode off. A GPU without MIG has none.
//
// A profile that the driver lists a second time under another number is
// dropped: the device name must say which of them is meant.
func (c *gpuHandle) profiles() ([]mig.Profile, error) {
	if c.known != nil {
		return c.known, nil
	}
	total, err := c.totalMemory()
	if err != nil {
		return nil, err
	}
	var all []mig.Profile
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT + profilesBeyond {
		p, err := c.profile(enum, total)
		if unsupported(err) || absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(q mig.Profile) bool { return q.ID == p.ID || q.Name == p.Name }) {
			continue
		}
		all = append(all, p)
	}
	c.known = all
	return all, nil
}

func (c *gpuHandle) profile(enum int, totalBytes uint64) (mig.Profile, error) {
	info, err := ask(c.task, "DeviceGetGpuInstanceProfileInfo", func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
		return c.device.GetGpuInstanceProfileInfo(enum)
	})
	if err != nil {
		return mig.Profile{}, err
	}
	p := mig.Profile{
		ID:              info.Id,
		Slices:          int(info.SliceCount),
		Memory:          int64(info.MemorySizeMB) << 20,
		Multiprocessors: int64(info.MultiprocessorCount),
		Engines:         enginesOf(info),
		Max:             int(info.InstanceCount),
	}
	if p.Name, err = c.nameTold(enum); err != nil {
		return mig.Profile{}, err
	}
	if p.Name == "" {
		p.Name = mig.ProfileName(p.Slices, variantOf(enum), info.MemorySizeMB, totalBytes)
	}
	return p, nil
}

// profileTeller is a device handle that is not the C library's. go-nvml's handler
// for versioned answers can only call C, so others answer here.
type profileTeller interface {
	GetGpuInstanceProfileInfoV3(enum int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
}

// nameTold is the profile's name as the driver tells it since R525, empty when
// it does not.
func (c *gpuHandle) nameTold(enum int) (string, error) {
	if device, ok := c.device.(profileTeller); ok {
		v3, err := ask(c.task, "DeviceGetGpuInstanceProfileInfoV", func() (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
			return device.GetGpuInstanceProfileInfoV3(enum)
		})
		return toldName(v3.Name[:]), err
	}
	// To call a function that the library lacks would end the process.
	extensions := c.nvml.Extensions()
	if extensions == nil || extensions.LookupSymbol("nvmlDeviceGetGpuInstanceProfileInfoV") != nil {
		return "", nil //nolint:nilerr // no symbol, no name
	}
	handler := c.device.GetGpuInstanceProfileInfoV(enum)
	v3, err := ask(c.task, "DeviceGetGpuInstanceProfileInfoV", handler.V3)
	if err == nil {
		return toldName(v3.Name[:]), nil
	}
	if c.Context().Err() != nil {
		return "", err
	}
	v2, err := ask(c.task, "DeviceGetGpuInstanceProfileInfoV", handler.V2)
	if err == nil {
		return toldName(v2.Name[:]), nil
	}
	return "", c.Context().Err()
}

// withSpans adds the positions to the profiles.
func (c *gpuHandle) withSpans(known []mig.Profile) ([]mig.Profile, error) {
	profiles := slices.Clone(known)
	for i, p := range profiles {
		possible, err := ask(c.task, "DeviceGetGpuInstancePossiblePlacements", func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return c.device.GetGpuInstancePossiblePlacements(profileInfo(p))
		})
		if err != nil && !unsupported(err) {
			return nil, fmt.Errorf("placements of %s: %w", p.Name, err)
		}
		for _, at := range possible {
			s := mig.Span{Start: int(at.Start), Size: int(at.Size)}
			if s.Size > 0 && !slices.Contains(profiles[i].Spans, s) {
				profiles[i].Spans = append(profiles[i].Spans, s)
			}
		}
	}
	return profiles, nil
}

// profileInfo is the profile as go-nvml's calls want it: they read the id, and the
// number of instances to size their answer.
func profileInfo(p mig.Profile) *nvml.GpuInstanceProfileInfo {
	return &nvml.GpuInstanceProfileInfo{
		Id:            p.ID,
		SliceCount:    uint32(p.Slices),
		InstanceCount: uint32(p.Max),
	}
}

func enginesOf(info nvml.GpuInstanceProfileInfo) map[string]int64 {
	engines := map[string]int64{}
	for engine, n := range map[string]uint32{
		mig.CopyEngines: info.CopyEngineCount,
		mig.Decoders:    info.DecoderCount,
		mig.Encoders:    info.EncoderCount,
		mig.JPEGEngines: info.JpegCount,
		mig.OFAEngines:  info.OfaCount,
	} {
		if n > 0 {
			engines[engine] = int64(n)
		}
	}
	return engines
}

// totalMemory is the GPU's memory in bytes, what the driver keeps included.
func (c *gpuHandle) totalMemory() (uint64, error) {
	memory, err := ask(c.task, "DeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) { return c.device.GetMemoryInfo() })
	return memory.Total, err
}

// wholeMemory is usableMemory with MIG off, which is how the whole GPU is used. The
// driver reserves another amount while MIG is on; what is published must not follow
// it, or every switch would rewrite the slices and change the size of shares. After a
// start with MIG on, the amount of then counts until MIG is off for the first time.
func (c *gpuHandle) wholeMemory(migOn bool) (int64, error) {
	version, err := ask(c.task, "SystemGetDriverVersion", c.nvml.SystemGetDriverVersion)
	if err != nil {
		return 0, err
	}
	uuid, err := ask(c.task, "DeviceGetUUID", c.device.GetUUID)
	if err != nil {
		return 0, err
	}
	key := uuid + " " + version
	if known, ok := c.driver.memoryOf(key); ok && migOn {
		return known, nil
	}
	memory, err := c.usableMemory()
	if err != nil {
		return 0, err
	}
	c.driver.rememberMemory(key, memory)
	return memory, nil
}

func (d *Driver) memoryOf(key string) (int64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	memory, ok := d.memory[key]
	return memory, ok
}

func (d *Driver) rememberMemory(key string, memory int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory[key] = memory
}

// usableMemory is what a process on the whole GPU can use, in bytes: the total
// less what the driver keeps for itself, where the driver says how much that is.
func (c *gpuHandle) usableMemory() (int64, error) {
	v2, err := ask(c.task, "DeviceGetMemoryInfo_v2", func() (nvml.Memory_v2, nvml.Return) { return c.device.GetMemoryInfo_v2() })
	if err == nil && v2.Reserved < v2.Total {
		return int64(v2.Total - v2.Reserved), nil
	}
	if err != nil && !unsupported(err) && !errors.Is(err, nvml.ERROR_ARGUMENT_VERSION_MISMATCH) {
		return 0, err
	}
	total, err := c.totalMemory()
	return int64(total), err
}
