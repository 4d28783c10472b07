package names

// DriverName is the name of the DRA driver. It is the domain of all unqualified
// attributes and capacities and the driver in every allocation result.
const DriverName = "gpu.tranche.dev"

// PoolName returns the name of a node's pool, which contains the devices of all its GPUs. It is the
// node's name, so who has a pool has its node.
// Autoscalers expect one pool per node: cluster-autoscaler takes a node's
// utilization from its fullest pool, and Karpenter considers a driver ready when it
// has published one complete pool.
func PoolName(node string) string { return node }

// The attributes of devices. Unqualified names are in the driver's domain; a selector reads them
// with device.attributes["gpu.tranche.dev"].?type.orValue("").
const (
	AttributeType           = "type"
	AttributeVendor         = "vendor"
	AttributeProductName    = "productName"
	AttributeArchitecture   = "architecture"
	AttributeUUID           = "uuid"
	AttributeParentUUID     = "parentUUID"
	AttributeProfile        = "profile"
	AttributePlacementStart = "placementStart"
	// AttributePartitionIndex is the index of an AMD partition among those of its
	// mode, from 0.
	AttributePartitionIndex = "partitionIndex"
	// AttributeMemoryPartition is the memory mode of an AMD GPU, as amd-smi spells it:
	// "NPS1".
	AttributeMemoryPartition = "memoryPartition"
	// AttributeComputePartition is "SPX" for a whole AMD GPU that can be partitioned. For a
	// partition, the profile is the mode; publishing both would add 4 KB to the slices of a
	// node with eight GPUs.
	AttributeComputePartition = "computePartition"
	AttributeIsolation        = "isolation"
	// AttributeExtendedResourceName is the extended resource that the device serves on this
	// node ("nvidia.com/gpu"). The device classes gpu-extended-* select by it.
	AttributeExtendedResourceName = "extendedResourceName"
	// AttributeDriverVersion is a string, because "580.159.04" is not a semantic version.
	AttributeDriverVersion = "driverVersion"
)

// The attributes that only shares have.
const (
	// AttributeShare is the unit of the share: "memory" or "fraction".
	AttributeShareUnit = "share"
	// AttributeSharing is the sharing strategy: "timeslicing" or "mps".
	AttributeSharingStrategy = "sharing"
)

// The capacities of devices. Claims consume a part of those of share devices.
const (
	// CapacityMemory is in bytes.
	CapacityMemory = "memory"
	// CapacityComputeUnits is the number of SMs or CUs.
	CapacityComputeUnits = "computeUnits"
	// CapacityFraction is 1, of which a claim takes thousandths.
	CapacityFraction = "fraction"
	// CapacityCompute is 100, of which a claim takes whole percents. It is published only where
	// it is enforced.
	CapacityComputePercent = "compute"
	// CapacityClients is how many clients the device has for all its shares.
	CapacityClients = "clients"
)

// CounterMemory counts bytes; all other counters count pieces. Every GPU has it and
// every device consumes it. Devices that need the whole GPU consume all of it.
const CounterMemory = "memory"
