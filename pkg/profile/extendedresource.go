package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// noDevice is the kind of an extended resource that means no device.
const noDevice v1beta1.ExtendedResourceDevice = "None"

// auto reports whether the layout of the GPU decides which device an extended resource stands for.
func auto(r v1beta1.ExtendedResource) bool {
	return r.Device == v1beta1.DeviceAuto || r.Device == v1beta1.DeviceAutoReplica
}

// meaning is what the vendor's extended resource means with the layout of the GPU, whether or not that
// is offered. AutoReplica keeps its name for a share of a partition.
func (d Desired) meaning() v1beta1.ExtendedResource {
	r := d.ExtendedResource
	if !auto(r) {
		return r
	}
	switch profiles := d.Layout.partitions(); {
	case len(profiles) > 1:
		return v1beta1.ExtendedResource{Device: noDevice}
	case len(profiles) == 1 && r.Device == v1beta1.DeviceAuto:
		return v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: profiles[0]}
	case len(profiles) == 1:
		return v1beta1.ExtendedResource{Device: r.Device, Profile: profiles[0]}
	case r.Device == v1beta1.DeviceAutoReplica:
		return v1beta1.ExtendedResource{Device: v1beta1.DeviceGPUReplica}
	}
	return v1beta1.ExtendedResource{Device: v1beta1.DeviceGPU}
}

// Means reports whether the vendor's extended resource stands for a placement.
func (d Desired) Means(p gpu.Placement) bool {
	replica := p.Share != nil && p.Share.By == gpu.ByFraction
	whole := p.Base().Type == gpu.TypeGPU
	switch r := d.meaning(); r.Device {
	case noDevice:
		return false
	case v1beta1.DeviceGPUReplica:
		return replica && whole
	case v1beta1.DevicePartition:
		return p.Share == nil && !whole && p.Profile == r.Profile
	case v1beta1.DeviceAutoReplica:
		return replica && !whole && p.Profile == r.Profile
	}
	return p.Type == gpu.TypeGPU
}

// ExtendedResourceText says what the vendor's extended resource means, for people.
func (d Desired) ExtendedResourceText() string { return meaningText(d.meaning()) }

// MIGResource returns the extended resource nvidia.com/mig-<profile> for a device that it stands
// for, empty for others: a partition, or a replica of one.
func (d Desired) MIGResource(p gpu.Placement) string {
	base := p.Base()
	if base.Type != gpu.TypeMIG {
		return ""
	}
	replicas := d.MIGReplicas && slices.Contains(d.Partitions, base.Profile)
	if replicas && p.Share != nil && p.Share.By == gpu.ByFraction || !replicas && p.Share == nil {
		return MIGResourcePrefix + strings.ReplaceAll(base.Profile, "+", ".")
	}
	return ""
}

// MIGResourcePrefix is the beginning of the extended resources of MIG partitions. NVIDIA's
// device plugin spells the + of a profile as a dot.
const MIGResourcePrefix = "nvidia.com/mig-"

// SharedPartitions returns the profiles of partitions that are shared, and how.
func (d Desired) SharedPartitions() []SharedPartition {
	all := lists.Map(d.Partitions, func(profile string) SharedPartition {
		return SharedPartition{Profile: profile, Bases: d.PartitionBases}
	})
	if r := d.meaning(); r.Device == v1beta1.DeviceAutoReplica && !slices.Contains(d.Partitions, r.Profile) {
		all = append(all, SharedPartition{Profile: r.Profile, Bases: []gpu.Basis{gpu.ByFraction}})
	}
	for i := range all {
		all[i].Replicas = d.Replicas
		if n, own := d.PartitionReplicas[all[i].Profile]; own {
			all[i].Replicas = n
		}
	}
	return all
}

// SharedPartition is a profile of partitions that are shared.
type SharedPartition struct {
	Profile string
	// Bases are the units of the shares, in the order in which they are offered.
	Bases []gpu.Basis
	// Replicas is the number of shares without an amount that fill a partition.
	Replicas int
}

// partitions are the profiles of the partitions if the GPU is offered only in partitions of named
// profiles.
func (s Layout) partitions() []string {
	switch {
	case s.Partitioning == PartitioningStatic:
		profiles := lists.Map(s.Static, func(p gpu.Placement) string { return p.Profile })
		slices.Sort(profiles)
		return slices.Compact(profiles)
	case s.Partitioning == PartitioningDynamic && s.NoWhole:
		return s.Profiles
	case s.Compute != "" && s.Compute != wholeMode:
		return []string{strings.ToLower(s.Compute)}
	}
	return nil
}
