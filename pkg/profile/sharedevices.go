package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

const (
	// MPSServerMemory is the memory that one MPS server uses on a GPU, in bytes, with or
	// without clients. Measured on an H200 with driver 580.159.04.
	MPSServerMemory = 66 * gpu.MiB
	// MaxDevices is the maximum number of devices of a GPU, including shares: the API's
	// limit for a slice whose devices consume counters.
	MaxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
)

// ShareDevices returns the share devices of a GPU, to be appended to its other placements: shares of
// partitions, then shares of the whole GPU, by memory before by fraction. limits: MPS daemons
// work on the node, so that the memory of shares of whole NVIDIA GPUs is limited.
//
// The error says which shares are not possible, and why. The returned devices can still be
// published.
func (c Desired) ShareDevices(g *gpu.GPU, limits bool) ([]gpu.Placement, error) {
	if !c.Shared && len(c.SharedPartitions()) == 0 {
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

func shareable(g *gpu.GPU, c Desired) error {
	switch {
	case c.Strategy == gpu.MPS && g.Vendor != gpu.NVIDIA:
		return fmt.Errorf("GPU %s: profile %q shares it by strategy %s, which only NVIDIA's GPUs support: no shares of it are published; add a rule with strategy %s for the GPUs of %s",
			g.Name(), c.Profile, c.Strategy, gpu.TimeSlicing, g.Vendor.Title())
	case c.Replicas < 1 || c.Replicas > gpu.WholeFraction:
		return fmt.Errorf("GPU %s: profile %q has %d replicas, and a GPU can have from 1 to %d: no shares of it are published",
			g.Name(), c.Profile, c.Replicas, gpu.WholeFraction)
	case c.MaxClients < 1:
		return fmt.Errorf("GPU %s: profile %q allows %d clients, and a share takes one: no shares of it are published",
			g.Name(), c.Profile, c.MaxClients)
	}
	return nil
}

// ofWhole returns the shares of the whole GPU, if it can be allocated as a whole.
func ofWhole(g *gpu.GPU, c Desired, limits bool) ([]gpu.Placement, error) {
	base, ok := g.Placement(g.Name())
	if !c.Shared || !ok {
		return nil, nil
	}
	sharing := c.Sharing
	sharing.KernelLimits = c.KernelLimits && base.Memory > 0
	// With time-slicing, one of both is enough: without a daemon, the errors of one claim do not reach others.
	needsMPS := c.Strategy == gpu.MPS || !sharing.KernelLimits
	sharing.Limits = limits && needsMPS && g.Vendor == gpu.NVIDIA && base.Memory > 0
	if !sharing.KernelLimits && !sharing.Limits {
		sharing.MaxMemoryLimitPercent = 0 // nothing limits memory
	}
	if g.Vendor != gpu.NVIDIA {
		sharing.TimeSlice = "" // other vendors have no such setting
	}
	return sharesOf(g, c, base, sharing, gpu.Bases())
}

// ofPartitions returns the shares of the partitions that the settings name. They have neither an
// MPS daemon nor a time slice, which is a setting of the whole GPU.
func ofPartitions(g *gpu.GPU, c Desired) ([]gpu.Placement, error) {
	var shares []gpu.Placement
	var errs []error
	for i, shared := range c.SharedPartitions() {
		// A variant with the engines of the whole GPU is one of a kind, and the plain
		// profile can be shared in its place.
		if strings.Contains(shared.Profile, "+") || slices.Contains(c.Partitions[:min(i, len(c.Partitions))], shared.Profile) {
			continue
		}
		sharing := gpu.Sharing{
			Strategy: gpu.TimeSlicing, Replicas: shared.Replicas, MaxClients: c.MaxClients, FailRequestsGreaterThanOne: c.FailRequestsGreaterThanOne,
		}
		if shared.Replicas != c.Replicas {
			sharing.MaxClients = max(c.MaxClients, shared.Replicas)
		}
		for _, base := range g.Placements {
			if base.Profile != shared.Profile || base.Type == gpu.TypeGPU || base.Share != nil {
				continue
			}
			of, err := sharesOf(g, c, base, sharing, shared.Bases)
			if err != nil {
				errs = append(errs, err)
				break // the same for all positions
			}
			shares = append(shares, of...)
		}
	}
	return shares, errors.Join(errs...)
}

// sharesOf returns the share devices of one placement. A GPU that uses the memory of the host, and
// does not report how much, has shares by fraction only.
func sharesOf(g *gpu.GPU, c Desired, base gpu.Placement, s gpu.Sharing, bases []gpu.Basis) ([]gpu.Placement, error) {
	if base.Memory == 0 {
		if s.Strategy == gpu.MPS || !slices.Contains(bases, gpu.ByFraction) {
			return nil, fmt.Errorf("GPU %s: the driver does not tell how much memory %s has, so shares of it cannot have limits: it is not shared; choose the strategy %s, and shares by fraction",
				g.Name(), base.Name(), gpu.TimeSlicing)
		}
		return []gpu.Placement{gpu.ShareOf(base, gpu.ByFraction, s)}, nil
	}
	kept := keptByMPS(s)
	base.Memory = (base.Memory - kept) / gpu.MiB * gpu.MiB
	// The API requires at least two steps.
	if base.Memory < 2*gpu.MiB || base.Memory/int64(s.Replicas) < gpu.MiB {
		return nil, fmt.Errorf("GPU %s: %s has %d MiB to share besides the memory of MPS servers (%d MiB), too little for the %d replicas of profile %q: it is not shared",
			g.Name(), base.Name(), max(0, base.Memory/gpu.MiB), kept/gpu.MiB, s.Replicas, c.Profile)
	}
	return lists.Map(bases, func(by gpu.Basis) gpu.Placement {
		p := gpu.ShareOf(base, by, s)
		if s.KernelLimits && g.UntestedLimits {
			p.Isolation = gpu.IsolationUntested
		}
		return p
	}), nil
}

// keptByMPS returns the memory of the MPS servers of a GPU: with the strategy MPS there is one,
// otherwise one for each claim.
func keptByMPS(s gpu.Sharing) int64 {
	switch {
	case !s.Limits:
		return 0
	case s.Strategy == gpu.MPS:
		return MPSServerMemory
	}
	return int64(s.Replicas) * MPSServerMemory
}
