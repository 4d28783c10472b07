package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Legacy says what a vendor's extended resource means on a GPU.
type Legacy struct {
	// Kind is the kind of device.
	Kind LegacyKind `json:"as"`
	// Profile is the profile of the partitions, for LegacyPartition and
	// LegacyPartitionReplica; empty: the only profile of the layout. A GPU without
	// partitions then has whole GPUs or their replicas instead, as with strategy single of
	// NVIDIA's device plugin.
	Profile string `json:"profile,omitempty"`
}

// LegacyKind is the kind of devices that a vendor's extended resource means.
type LegacyKind string

// The kinds of devices that a vendor's extended resource can mean.
const (
	// LegacyWhole is the whole GPU.
	LegacyWhole LegacyKind = "Whole"
	// LegacyReplica is one replica of the whole GPU: a share by fraction without an amount.
	LegacyReplica LegacyKind = "Replica"
	// LegacyPartition is a partition of one profile.
	LegacyPartition LegacyKind = "Partition"
	// LegacyPartitionReplica is one replica of such a partition.
	LegacyPartitionReplica LegacyKind = "PartitionReplica"
	// legacyNone is no device.
	legacyNone LegacyKind = "None"
)

// legacy is what the vendor's extended resource means with the layout of the GPU.
func (d Desired) legacy() Legacy {
	l := d.Legacy
	if l.Profile != "" || l.Kind != LegacyPartition && l.Kind != LegacyPartitionReplica {
		return l
	}
	switch profiles := d.Layout.partitions(); {
	case len(profiles) > 1:
		return Legacy{Kind: legacyNone}
	case len(profiles) == 1:
		return Legacy{Kind: l.Kind, Profile: profiles[0]}
	case l.Kind == LegacyPartitionReplica:
		return Legacy{Kind: LegacyReplica}
	}
	return Legacy{Kind: LegacyWhole}
}

// Means reports whether the vendor's extended resource stands for a placement.
func (d Desired) Means(p gpu.Placement) bool {
	replica := p.Share != nil && p.Share.By == gpu.ByFraction
	whole := p.Base().Type == gpu.TypeGPU
	switch l := d.legacy(); l.Kind {
	case legacyNone:
		return false
	case LegacyReplica:
		return replica && whole
	case LegacyPartition:
		return p.Share == nil && !whole && p.Profile == l.Profile
	case LegacyPartitionReplica:
		return replica && !whole && p.Profile == l.Profile
	}
	return p.Type == gpu.TypeGPU
}

// LegacyMeaning says what the vendor's extended resource means, for people.
func (d Desired) LegacyMeaning() string { return d.legacy().String() }

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

// SharedPartitions returns the profiles of partitions that are shared, and whether by fraction.
func (d Desired) SharedPartitions() []SharedPartition {
	var all []SharedPartition
	for _, profile := range d.Partitions {
		all = append(all, SharedPartition{Profile: profile, Fractions: d.PartitionFractions})
	}
	if l := d.legacy(); l.Kind == LegacyPartitionReplica {
		i := slices.IndexFunc(all, func(p SharedPartition) bool { return p.Profile == l.Profile })
		if i < 0 {
			all = append(all, SharedPartition{Profile: l.Profile})
			i = len(all) - 1
		}
		all[i].Fractions = true
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
	// Fractions: by fraction, beside by memory.
	Fractions bool
	// Replicas is the number of shares without an amount that fill a partition.
	Replicas int
}

// partitions are the profiles of the partitions if the GPU is only offered in partitions. Without
// restrictions, those of a GPU that is partitioned on demand are unknown, so there are none.
func (s Layout) partitions() []string {
	switch {
	case s.Partitioning == PartitioningStatic:
		var profiles []string
		for _, p := range s.Static {
			profiles = append(profiles, p.Profile)
		}
		slices.Sort(profiles)
		return slices.Compact(profiles)
	case s.Partitioning == PartitioningDynamic && s.NoWhole:
		return s.Profiles
	case s.Compute != "" && s.Compute != wholeMode:
		return []string{strings.ToLower(s.Compute)}
	}
	return nil
}
