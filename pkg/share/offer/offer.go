package offer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const (
	// MPSServerMemory is what one MPS server keeps of a GPU, in bytes, whether it
	// has clients or not. Measured on an H200 with driver 580.159.04.
	MPSServerMemory = 66 * gpu.MiB
	// MaxDevices is how many devices a GPU can have, shares and all others
	// together: the API allows no more in a slice whose devices take of counters.
	MaxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
)

// Devices returns the share devices of a GPU, in the order in which they follow
// its other placements: those of partitions, then those of the whole GPU, each
// time memory before fraction. limits says that an MPS daemon was seen to work on
// the node; only shares of whole NVIDIA GPUs are kept to their memory by one.
//
// What cannot be had is left out, and the error says what that is and why; what is
// returned beside it can be published all the same.
func Devices(g *gpu.GPU, c profile.Desired, limits bool) ([]gpu.Placement, error) {
	if !c.Shared && len(c.Partitions) == 0 {
		return nil, nil
	}
	if err := shareable(g, c); err != nil {
		return nil, err
	}
	whole, wholeErr := ofWhole(g, c, limits)
	parts, partsErr := ofPartitions(g, c)
	if n := len(g.Placements) + len(parts) + len(whole); n > MaxDevices && len(parts) > 0 {
		partsErr = errors.Join(partsErr, fmt.Errorf(
			"GPU %s: with the shares that profile %q wants of its partitions (%s) it has %d devices, and the API allows %d for a GPU: no shares of its partitions are published; share fewer profiles",
			g.Name(), c.Profile, strings.Join(c.Partitions, ", "), n, MaxDevices))
		parts = nil
	}
	if n := len(g.Placements) + len(whole); n > MaxDevices {
		return nil, errors.Join(partsErr, fmt.Errorf(
			"GPU %s: with its shares by profile %q it has %d devices, and the API allows %d for a GPU: no shares of it are published",
			g.Name(), c.Profile, n, MaxDevices))
	}
	return append(parts, whole...), errors.Join(partsErr, wholeErr)
}

// shareable finds what keeps every share off a GPU.
func shareable(g *gpu.GPU, c profile.Desired) error {
	switch {
	case c.Strategy == gpu.MPS && g.Vendor != gpu.NVIDIA:
		return fmt.Errorf("GPU %s: profile %q shares it by strategy %s, which NVIDIA's GPUs know only: no shares of it are published; give the GPUs of %s a rule of their own with strategy %s",
			g.Name(), c.Profile, c.Strategy, g.Vendor.Title(), gpu.TimeSlicing)
	case c.Replicas < 1 || c.Replicas > gpu.WholeFraction:
		return fmt.Errorf("GPU %s: profile %q wants %d replicas, and a GPU has from 1 to %d: no shares of it are published",
			g.Name(), c.Profile, c.Replicas, gpu.WholeFraction)
	case c.MaxClients < 1:
		return fmt.Errorf("GPU %s: profile %q allows %d clients, and a share takes one: no shares of it are published",
			g.Name(), c.Profile, c.MaxClients)
	}
	return nil
}

// ofWhole are the shares of the whole GPU, if it can be had whole.
func ofWhole(g *gpu.GPU, c profile.Desired, limits bool) ([]gpu.Placement, error) {
	base, ok := g.Placement(g.Name())
	if !c.Shared || !ok {
		return nil, nil
	}
	sharing := c.Sharing
	sharing.Limits = limits && g.Vendor == gpu.NVIDIA
	if g.Vendor != gpu.NVIDIA {
		sharing.TimeSlice = "" // nobody sets it there
	}
	return sharesOf(g, c, base, sharing, gpu.Bases())
}

// ofPartitions are the shares of the partitions of the profiles that the settings
// name. Nothing but taking turns is known of those: no MPS daemon serves them, and
// a time slice is set for a GPU.
func ofPartitions(g *gpu.GPU, c profile.Desired) ([]gpu.Placement, error) {
	sharing := gpu.Sharing{
		Strategy: gpu.TimeSlicing, Replicas: c.Replicas, MaxClients: c.MaxClients, OneClient: c.OneClient,
	}
	bases := []gpu.Basis{gpu.ByMemory}
	if c.PartitionFractions {
		bases = gpu.Bases()
	}
	var shares []gpu.Placement
	var errs []error
	for i, profile := range c.Partitions {
		// A variant with the engines of the whole GPU is one of a kind, and the plain
		// profile can be shared in its place.
		if strings.Contains(profile, "+") || slices.Contains(c.Partitions[:i], profile) {
			continue
		}
		for _, base := range g.Placements {
			if base.Profile != profile || base.Type == gpu.TypeGPU || base.Share != nil {
				continue
			}
			of, err := sharesOf(g, c, base, sharing, bases)
			if err != nil {
				errs = append(errs, err)
				break // it is the same for all positions
			}
			shares = append(shares, of...)
		}
	}
	return shares, errors.Join(errs...)
}

// sharesOf are the share devices of one placement.
func sharesOf(g *gpu.GPU, c profile.Desired, base gpu.Placement, s gpu.Sharing, bases []gpu.Basis) ([]gpu.Placement, error) {
	kept := keptByMPS(s)
	base.Memory = (base.Memory - kept) / gpu.MiB * gpu.MiB
	// The API wants room for two steps.
	if base.Memory < 2*gpu.MiB || base.Memory/int64(s.Replicas) < gpu.MiB {
		return nil, fmt.Errorf("GPU %s: %s has %d MiB to share after what MPS keeps (%d MiB), too little for the %d replicas of profile %q: it is not shared",
			g.Name(), base.Name(), max(0, base.Memory/gpu.MiB), kept/gpu.MiB, s.Replicas, c.Profile)
	}
	shares := make([]gpu.Placement, 0, len(bases))
	for _, by := range bases {
		shares = append(shares, gpu.ShareOf(base, by, s))
	}
	return shares, nil
}

// keptByMPS is what the MPS servers of a GPU keep of its memory: with the
// strategy MPS there is one, else each claim has its own.
func keptByMPS(s gpu.Sharing) int64 {
	switch {
	case !s.Limits:
		return 0
	case s.Strategy == gpu.MPS:
		return MPSServerMemory
	}
	return int64(s.Replicas) * MPSServerMemory
}
