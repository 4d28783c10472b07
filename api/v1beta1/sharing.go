package v1beta1

// Strategy is how the holders of a GPU share it.
//
// +kubebuilder:validation:Enum=TimeSlicing;MPS
type Strategy string

// The strategies.
const (
	// TimeSlicing runs one process at a time on the GPU.
	TimeSlicing Strategy = "TimeSlicing"
	// MPS runs processes at the same time with NVIDIA's Multi-Process Service.
	MPS Strategy = "MPS"
)

// TimeSlice is how long a process on an NVIDIA GPU can run before the next one.
//
// +kubebuilder:validation:Enum=Default;Short;Medium;Long
type TimeSlice string

// Sharing defines how several claims share a GPU.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxClients) || self.maxClients >= self.replicas",message="is less than replicas (10 unless they are set), and each replica takes a client: raise it, or set fewer replicas",fieldPath=".maxClients"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'MPS' || self.replicas <= 48",message="an MPS server takes 48 clients: set at most so many replicas",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'MPS' || !has(self.maxClients) || self.maxClients <= 48",message="an MPS server takes 48 clients: set at most so many",fieldPath=".maxClients"
// +kubebuilder:validation:XValidation:rule="!has(self.timeSlice) || self.strategy != 'MPS'",message="is for strategy TimeSlicing only",fieldPath=".timeSlice"
// +kubebuilder:validation:XValidation:rule="!has(self.exclusiveProcess) || !self.exclusiveProcess || self.strategy == 'MPS'",message="is for strategy MPS only",fieldPath=".exclusiveProcess"
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || self.strategy != 'MPS'",message="cannot be shared with strategy MPS, which is for whole GPUs; use TimeSlicing",fieldPath=".partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.maxMemoryLimitPercent) || self.maxMemoryLimitPercent == 100 || self.wholeGPUs",message="is for shares of whole GPUs, and wholeGPUs is false: leave it out",fieldPath=".maxMemoryLimitPercent"
type Sharing struct {
	// WholeGPUs is true if shares of whole GPUs are offered. Default: true. For partitions, see
	// partitions.
	//
	// +optional
	// +kubebuilder:default=true
	WholeGPUs *bool `json:"wholeGPUs,omitempty"`
	// Strategy is how holders share the GPU. MPS is for NVIDIA GPUs and has no effect on
	// others. Default: TimeSlicing.
	//
	// +optional
	// +kubebuilder:default=TimeSlicing
	Strategy Strategy `json:"strategy,omitempty"`
	// Replicas is the number of shares without an amount that fill a GPU. Default: 10.
	//
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`
	// TimeSlice is the length of a time slice, for TimeSlicing on NVIDIA GPUs. Default: the
	// driver's.
	//
	// +optional
	TimeSlice TimeSlice `json:"timeSlice,omitempty"`
	// MaxClients is the number of clients of all shares of a GPU together, at least
	// replicas. A share uses one unless its claim requests more. With MPS at most 48.
	// Default: 48, or replicas if that is more.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxClients *int32 `json:"maxClients,omitempty"`
	// FailRequestsGreaterThanOne is true if requests for more than one share, or for more
	// than one client, are rejected. The name is the device plugin's. Default: false.
	//
	// +optional
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
	// ExclusiveProcess is true if processes that bypass the MPS daemon are rejected, with the
	// compute mode EXCLUSIVE_PROCESS. For MPS only. Default: false.
	//
	// +optional
	ExclusiveProcess bool `json:"exclusiveProcess,omitempty"`
	// MaxMemoryLimitPercent is the largest memory limit that a claim can have of a share of a
	// whole GPU, in percent of what it requests. Above 100, the limits of a GPU together can
	// exceed its memory. Default: 100, limits are requests.
	//
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000
	MaxMemoryLimitPercent *int32 `json:"maxMemoryLimitPercent,omitempty"`
	// Partitions are the partitions of which shares are offered. Not with MPS. Default: none.
	//
	// +optional
	Partitions *SharedPartitions `json:"partitions,omitempty"`
}

// SharedPartitions defines which partitions several claims can share.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas.all(r, r.profile in self.profiles)",message="names a profile that is not among profiles",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResource) || self.extendedResource.device != 'PartitionReplica' || 'Fraction' in self.units",message="is PartitionReplica, a share by fraction: add Fraction to units",fieldPath=".extendedResource.device"
type SharedPartitions struct {
	// Profiles are the profiles of the partitions ("3g.40gb", "cpx"), without extra
	// engines.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^([1-9][0-9]*g\.[1-9][0-9]*gb(-me)?|dpx|tpx|qpx|cpx)$`
	Profiles []string `json:"profiles"`
	// Units are what claims can request parts of: Memory (bytes), Fraction (thousandths of a
	// partition), or both. PartitionReplica and AutoReplica need Fraction. Default: Memory.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:default={Memory}
	Units []ShareUnit `json:"units,omitempty"`
	// Replicas are the numbers of replicas by profile. Default: sharing.replicas.
	//
	// +optional
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Replicas []PartitionReplicas `json:"replicas,omitempty"`
	// ExtendedResource defines what a pod gets that requests nvidia.com/mig-<profile>, where
	// the chart's extendedResources.migReplicas.enabled is true. Default: a partition.
	//
	// +optional
	ExtendedResource *PartitionExtendedResource `json:"extendedResource,omitempty"`
}

// ShareUnit is what a share is a part of.
//
// +kubebuilder:validation:Enum=Memory;Fraction
type ShareUnit string

// The units of shares.
const (
	// ByMemory is an amount of memory.
	ByMemory ShareUnit = "Memory"
	// ByFraction is a fraction of the GPU or partition.
	ByFraction ShareUnit = "Fraction"
)

// PartitionReplicas is the number of replicas of the partitions of one profile.
type PartitionReplicas struct {
	// Profile is one of profiles.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]*g\.[1-9][0-9]*gb(-me)?|dpx|tpx|qpx|cpx)$`
	Profile string `json:"profile"`
	// Count is the number of shares without an amount that fill a partition.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count int32 `json:"count"`
}

// PartitionExtendedResource defines which device a unit of nvidia.com/mig-<profile> is.
type PartitionExtendedResource struct {
	// Device is Partition, or PartitionReplica, a share of one by fraction.
	Device PartitionResourceDevice `json:"device"`
}

// PartitionResourceDevice is the device that nvidia.com/mig-<profile> means.
//
// +kubebuilder:validation:Enum=Partition;PartitionReplica
type PartitionResourceDevice string

// What nvidia.com/mig-<profile> can mean.
const (
	MIGDevicePartition        PartitionResourceDevice = "Partition"
	MIGDevicePartitionReplica PartitionResourceDevice = "PartitionReplica"
)
