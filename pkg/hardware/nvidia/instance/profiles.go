package instance

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// profilesBeyond is how many numbers after the enumeration that we were built
// with are asked for too, so that a profile of a newer driver is seen.
const profilesBeyond = 8

// profiles is Profiles without their positions.
//
// A profile that the driver lists a second time under another number is
// dropped: the device name must say which of them is meant.
func (c *GPU) profiles() ([]mig.Profile, error) {
	if c.known != nil {
		return c.known, nil
	}
	total, err := c.TotalMemory()
	if err != nil {
		return nil, err
	}
	var all []mig.Profile
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT + profilesBeyond {
		p, err := c.profile(enum, total)
		if session.Unsupported(err) || session.Absent(err) {
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

func (c *GPU) profile(enum int, totalBytes uint64) (mig.Profile, error) {
	info, err := session.Ask(c.Task, "DeviceGetGpuInstanceProfileInfo", func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
		return c.Device.GetGpuInstanceProfileInfo(enum)
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
func (c *GPU) nameTold(enum int) (string, error) {
	if device, ok := c.Device.(profileTeller); ok {
		v3, err := session.Ask(c.Task, "DeviceGetGpuInstanceProfileInfoV", func() (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
			return device.GetGpuInstanceProfileInfoV3(enum)
		})
		return toldName(v3.Name[:]), err
	}
	// To call a function that the library lacks would end the process.
	extensions := c.NVML.Extensions()
	if extensions == nil || extensions.LookupSymbol("nvmlDeviceGetGpuInstanceProfileInfoV") != nil {
		return "", nil //nolint:nilerr // no symbol, no name
	}
	handler := c.Device.GetGpuInstanceProfileInfoV(enum)
	v3, err := session.Ask(c.Task, "DeviceGetGpuInstanceProfileInfoV", handler.V3)
	if err == nil {
		return toldName(v3.Name[:]), nil
	}
	if c.Context().Err() != nil {
		return "", err
	}
	v2, err := session.Ask(c.Task, "DeviceGetGpuInstanceProfileInfoV", handler.V2)
	if err == nil {
		return toldName(v2.Name[:]), nil
	}
	return "", c.Context().Err()
}

// Profiles lists the kinds of GPU instances that the GPU offers, with their positions. It
// works with MIG mode off. A GPU without MIG has none.
func (c *GPU) Profiles() ([]mig.Profile, error) {
	known, err := c.profiles()
	if err != nil {
		return nil, err
	}
	profiles := slices.Clone(known)
	for i, p := range profiles {
		possible, err := session.Ask(c.Task, "DeviceGetGpuInstancePossiblePlacements", func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return c.Device.GetGpuInstancePossiblePlacements(profileInfo(p))
		})
		if err != nil && !session.Unsupported(err) {
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
