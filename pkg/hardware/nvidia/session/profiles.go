package session

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// mostProfiles bounds an enumeration of a library that does not end it.
const mostProfiles = 64

// enumerate asks about each number from 0, until the library says that it does not know the
// number: "the API returns NVML_ERROR_INVALID_ARGUMENT" (nvml.h,
// nvmlDeviceGetGpuInstanceProfileInfo). Which number that is depends on the library: it knows
// fewer than our header if it is older, more if it is newer. Below known, our header's count, a
// number may also be a gap, but every library knows 0: there the code is about another argument.
// A number that the GPU does not have is NOT_SUPPORTED.
func enumerate[T any](known int, ask func(number int) (T, error)) ([]T, error) {
	var all []T
	for number := range mostProfiles {
		one, err := ask(number)
		switch {
		case err == nil:
			all = append(all, one)
		case Unsupported(err):
		case number == 0, !errors.Is(err, nvml.ERROR_INVALID_ARGUMENT):
			return nil, err
		case number >= known:
			return all, nil
		}
	}
	return all, nil
}

// profiles is Profiles without the positions. A profile that the driver lists again under
// another number is dropped, because device names must be unique. So is one with the name of
// another, which happens only where names are computed.
func (g *GPU) profiles() ([]mig.Profile, error) {
	if g.known != nil {
		return g.known, nil
	}
	total, err := g.TotalMemory()
	if err != nil {
		return nil, err
	}
	listed, err := enumerate(nvml.GPU_INSTANCE_PROFILE_COUNT, func(number int) (mig.Profile, error) { return g.profile(number, total) })
	if err != nil {
		return nil, err
	}
	var all []mig.Profile
	for _, p := range listed {
		n := slices.IndexFunc(all, func(q mig.Profile) bool { return q.ID == p.ID || q.Name == p.Name })
		if n < 0 {
			all = append(all, p)
		} else if all[n].ID != p.ID {
			g.Logger.Info("A MIG profile is not offered: another has the same name", "gpu", g.PCIAddress,
				"profile", p.Name, "id", p.ID, "other", all[n].ID)
		}
	}
	g.known = all
	return all, nil
}

func (g *GPU) profile(enum int, totalBytes uint64) (mig.Profile, error) {
	info, err := Ask(g.Task, "DeviceGetGpuInstanceProfileInfo", func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
		return g.Device.GetGpuInstanceProfileInfo(enum)
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
	if p.Name, err = g.nameTold(enum); err != nil {
		return mig.Profile{}, err
	}
	if p.Name == "" {
		p.Name = mig.ProfileName(p.Slices, variantOf(enum), info.MemorySizeMB, totalBytes)
	}
	return p, nil
}

// profileTeller is implemented by simulated devices. go-nvml's handler for versioned
// answers can only call the C library.
type profileTeller interface {
	GetGpuInstanceProfileInfoV2(enum int) (nvml.GpuInstanceProfileInfo_v2, nvml.Return)
	GetGpuInstanceProfileInfoV3(enum int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
}

// nameTold returns the profile's name as drivers since R525 report it, empty for others. A
// library without version 3 of the structure may have version 2.
func (g *GPU) nameTold(enum int) (string, error) {
	var newer func() (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
	var older func() (nvml.GpuInstanceProfileInfo_v2, nvml.Return)
	if device, ok := g.Device.(profileTeller); ok {
		newer = func() (nvml.GpuInstanceProfileInfo_v3, nvml.Return) { return device.GetGpuInstanceProfileInfoV3(enum) }
		older = func() (nvml.GpuInstanceProfileInfo_v2, nvml.Return) { return device.GetGpuInstanceProfileInfoV2(enum) }
	} else if !g.Has("nvmlDeviceGetGpuInstanceProfileInfoV") {
		return "", nil
	} else {
		handler := g.Device.GetGpuInstanceProfileInfoV(enum)
		newer, older = handler.V3, handler.V2
	}
	v3, err := Ask(g.Task, "DeviceGetGpuInstanceProfileInfoV", newer)
	if err == nil {
		return toldName(v3.Name[:]), nil
	}
	if !OldStructure(err) {
		return "", err
	}
	v2, err := Ask(g.Task, "DeviceGetGpuInstanceProfileInfoV", older)
	if err == nil || OldStructure(err) {
		return toldName(v2.Name[:]), nil
	}
	return "", err
}

// Profiles lists the kinds of GPU instances that the GPU offers, with their positions. It
// works with MIG mode off. A GPU without MIG has none.
func (g *GPU) Profiles() ([]mig.Profile, error) {
	known, err := g.profiles()
	if err != nil {
		return nil, err
	}
	profiles := slices.Clone(known)
	for i, p := range profiles {
		possible, err := Ask(g.Task, "DeviceGetGpuInstancePossiblePlacements", func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return g.Device.GetGpuInstancePossiblePlacements(profileInfo(p))
		})
		if err != nil && !Unsupported(err) {
			return nil, fmt.Errorf("placements of %s: %w", p.Name, err)
		}
		profiles[i].Spans = spansOf(possible)
	}
	return profiles, nil
}

// spansOf drops placements without a size, and those that the driver lists again.
func spansOf(possible []nvml.GpuInstancePlacement) (spans []mig.Span) {
	for _, at := range possible {
		s := mig.Span{Start: int(at.Start), Size: int(at.Size)}
		if s.Size > 0 && !slices.Contains(spans, s) {
			spans = append(spans, s)
		}
	}
	return spans
}

// profileInfo returns what go-nvml's calls need of a profile: the id, and the number of
// instances, which determines the size of the answer.
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
