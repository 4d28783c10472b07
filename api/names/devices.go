package names

import "strings"

// DriverName is the name of the DRA driver. It is the domain of all unqualified
// attributes and capacities and the driver in every allocation result.
const DriverName = "gpu.tranche.dev"

// PoolName returns the name of a node's pool, which contains the devices of all its GPUs. It is the
// node's name, so who has a pool has its node.
// Autoscalers expect one pool per node: cluster-autoscaler takes a node's
// utilization from its fullest pool, and Karpenter considers a driver ready when it
// has published one complete pool.
func PoolName(node string) string { return node }

// Unqualified removes the driver's domain, which is optional in names of capacities.
func Unqualified(capacity string) string { return strings.TrimPrefix(capacity, DriverName+"/") }

// The attributes of devices. Unqualified names are in the driver's domain; a selector reads them
// with device.attributes["gpu.tranche.dev"].?type.orValue(""). Claim status data and container
// metadata use the same names. Each attribute costs the scheduler memory on every device.
const (
	AttributeType        = "type"
	AttributeVendor      = "vendor"
	AttributeProductName = "productName"
	// AttributeArchitecture is the vendor's name of the chip generation, in the vendor's
	// spelling: "Hopper", "gfx942".
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
	// AttributePartitionable is true for a whole GPU that can be partitioned on this node,
	// whatever its profile offers. It is absent otherwise.
	AttributePartitionable = "partitionable"
	// AttributeLinkGroup is equal for whole GPUs of a node of which each has a direct link to each
	// of the others: NVLink, also through NVSwitches, or XGMI. It is absent if there is none, or if
	// the driver does not tell.
	AttributeLinkGroup = "linkGroup"
	AttributeIsolation = "isolation"
	// AttributeExtendedResourceName is the extended resource that the device serves on this node
	// ("nvidia.com/gpu"). The device classes gpu-extended-* select by it.
	AttributeExtendedResourceName = "extendedResourceName"
	// AttributeDriverVersion is the version of the kernel driver: 580.159.4 for "580.159.04". A
	// driver whose version is not three numbers at most has none.
	AttributeDriverVersion = "driverVersion"
	// AttributeCUDAComputeCapability is the CUDA compute capability of an NVIDIA GPU: 9.0.0.
	AttributeCUDAComputeCapability = "cudaComputeCapability"
	// AttributeCUDADriverVersion is the newest CUDA version that an NVIDIA driver supports: 13.0.0.
	AttributeCUDADriverVersion = "cudaDriverVersion"
)

// The attributes that only shares have.
const (
	// AttributeShareUnit is what a share is measured in: "Memory" or "Fraction".
	AttributeShareUnit = "shareUnit"
	// AttributeSharingStrategy is how holders take turns: "TimeSlicing" or "MPS".
	AttributeSharingStrategy = "sharingStrategy"
	// AttributeMaxMemoryLimitPercent is the largest memory limit of a claim, in percent of what it
	// requests. It is absent where the limit is the request.
	AttributeMaxMemoryLimitPercent = "maxMemoryLimitPercent"
)

// AttributeMemoryLimit is the most memory of a share that a claim can have, if that is more than its part.
// Only claim status data (a quantity) and container metadata (bytes) have it.
const AttributeMemoryLimit = "memoryLimit"

// The capacities of devices. Claims consume a part of those of share devices.
const (
	// CapacityMemory is in bytes.
	CapacityMemory = "memory"
	// CapacityComputeUnits is the number of SMs or CUs.
	CapacityComputeUnits = "computeUnits"
	// CapacityFraction is 1, of which a claim takes thousandths.
	CapacityFraction = "fraction"
	// CapacityComputePercent is 100, of which a claim takes whole percents. It is published only
	// where it is enforced.
	CapacityComputePercent = "computePercent"
	// CapacityClients is how many clients the device has for all its shares.
	CapacityClients = "clients"
)

// CounterMemory counts bytes; all other counters count pieces. Every GPU has it and
// every device consumes it. Devices that need the whole GPU consume all of it.
const CounterMemory = "memory"
