package profile

import (
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Desired is the desired state of one GPU.
type Desired struct {
	// Profile is the name of the PartitionProfile that says so, for people.
	Profile string
	// Shape is how the GPU is cut.
	Shape Shape
	// Shared publishes shares of the whole GPU.
	Shared bool
	// Sharing is how they, and shares of partitions, are held.
	gpu.Sharing
	// Partitions are the profiles whose placements are shared, too ("3g.40gb",
	// "cpx"), by memory.
	Partitions []string
	// PartitionFractions publishes shares by fraction of them, too.
	PartitionFractions bool
	// Legacy is what a pod gets that asks for the vendor's old resource
	// (nvidia.com/gpu, amd.com/gpu).
	Legacy Legacy
}

// Legacy says what a vendor's old resource means on a GPU.
type Legacy struct {
	// Kind says of what kind it is.
	Kind LegacyKind
	// Profile is that of the partitions, for LegacyPartition.
	Profile string
}

// LegacyKind says of what kind the devices are that a vendor's old resource
// stands for.
type LegacyKind string

// What a vendor's old resource can mean.
const (
	// LegacyWhole is the whole GPU.
	LegacyWhole LegacyKind = "Whole"
	// LegacyReplica is one replica of the whole GPU: a share by fraction that
	// names no amount.
	LegacyReplica LegacyKind = "Replica"
	// LegacyPartition is a partition of one profile.
	LegacyPartition LegacyKind = "Partition"
)

// Default is the desired state of a GPU that no rule selects: shares of the whole GPU,
// ten of which fill it, that take turns.
func Default() Desired {
	return Desired{
		Shared:  true,
		Sharing: gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: DefaultReplicas, MaxClients: DefaultMaxClients},
		Legacy:  Legacy{Kind: LegacyWhole},
	}
}

const (
	// DefaultReplicas is how many shares that name no amount fill a GPU.
	DefaultReplicas = 10
	// DefaultMaxClients is what MPS can serve, whether it does or not.
	DefaultMaxClients = gpu.MaxMPSClients
)
