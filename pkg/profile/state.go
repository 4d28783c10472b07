package profile

import (
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Desired is the desired state of one GPU. Files on nodes contain it: the JSON keys do not change.
type Desired struct {
	// Profile is the name of the PartitionProfile.
	Profile string `json:"profile,omitempty"`
	// Layout is how the GPU is partitioned.
	Layout Layout `json:"layout,omitzero"`
	// Unchanged: Layout is the one that the GPU already had.
	Unchanged bool `json:"unchanged,omitempty"`
	// Shared: shares of the whole GPU are published.
	Shared bool `json:"shared,omitempty"`
	// Sharing is how the GPU, and its partitions, are shared.
	gpu.Sharing
	// Partitions are the profiles of partitions that are shared ("3g.40gb", "cpx").
	Partitions []string `json:"partitions,omitempty"`
	// PartitionBases are the units of the shares of partitions.
	PartitionBases []gpu.Basis `json:"partitionUnits,omitempty"`
	// PartitionReplicas has the replicas of partitions, by profile. Others have those of the
	// GPU.
	PartitionReplicas map[string]int `json:"partitionReplicas,omitempty"`
	// MIGReplicas: nvidia.com/mig-<profile> is a replica of a partition, for Partitions.
	MIGReplicas bool `json:"migReplicas,omitempty"`
	// ExtendedResource is what a pod gets that requests the vendor's extended resource
	// (nvidia.com/gpu, amd.com/gpu).
	ExtendedResource v1beta1.ExtendedResource `json:"extendedResource"`
}

// Default is the desired state of a GPU that no rule selects: ten time-sliced shares of
// the whole GPU.
func Default() Desired {
	return Desired{
		Shared:           true,
		Sharing:          gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: DefaultReplicas, MaxClients: DefaultMaxClients},
		PartitionBases:   []gpu.Basis{gpu.ByMemory},
		ExtendedResource: v1beta1.ExtendedResource{Device: v1beta1.DeviceGPU},
	}
}

const (
	// DefaultReplicas is the number of shares without an amount that fill a GPU.
	DefaultReplicas = v1beta1.DefaultReplicas
	// DefaultMaxClients is the maximum of MPS, for every strategy.
	DefaultMaxClients = gpu.MaxMPSClients
)
