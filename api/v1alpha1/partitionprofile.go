package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PartitionProfile is what an administrator wants of the GPUs of a node. A node
// follows the profile that its label tranche.dev/profile names, otherwise the
// profile named default.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pp
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a node's label tranche.dev/profile names the profile, and a label has at most 63 characters: choose a shorter name"
// +kubebuilder:printcolumn:name="MIG",type=string,JSONPath=`.spec.rules[*].mig.mode`
// +kubebuilder:printcolumn:name="Compute",type=string,JSONPath=`.spec.rules[*].amd.computePartition`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.rules[*].amd.memoryPartition`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.rules[*].sharing.strategy`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.spec.rules[*].sharing.replicas`
// +kubebuilder:printcolumn:name="After Deadline",type=string,JSONPath=`.spec.switch.afterDeadline`,priority=1
// +kubebuilder:printcolumn:name="Reboot",type=string,JSONPath=`.spec.switch.reboot`,priority=1
// +kubebuilder:printcolumn:name="From Chart",type=string,JSONPath=`.metadata.labels.tranche\.dev/from-chart`,priority=1
// +kubebuilder:printcolumn:name="Rules",type=string,JSONPath=`.spec.rules`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PartitionProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PartitionProfileSpec `json:"spec"`
}

// PartitionProfileList is a list of PartitionProfiles.
//
// +kubebuilder:object:root=true
type PartitionProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PartitionProfile `json:"items"`
}

// PartitionProfileSpec says what is wanted.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || self.rules.map(r, !has(r.gpus) || !(has(r.gpus.vendor) || has(r.gpus.products) || has(r.gpus.pciAddresses) || has(r.gpus.pciIDs) || has(r.gpus.indexes) || has(r.gpus.count))).indexOf(true) in [-1, size(self.rules) - 1]",message="a rule without GPUs selects every GPU, so those after it hold for none: put it last",fieldPath=".rules"
// +kubebuilder:validation:XValidation:rule="!has(self.switch) || !has(self.switch.drainDeadline) || duration(self.switch.drainDeadline) >= duration('1s') && duration(self.switch.drainDeadline) <= duration('24h')",message="must be 1s to 24h",fieldPath=".switch.drainDeadline"
type PartitionProfileSpec struct {
	// Rules each say something of some GPUs. The first rule that selects a GPU
	// holds for it; a GPU that none selects has the defaults.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Rules []Rule `json:"rules,omitempty"`
	// Switch says how a node gets there.
	//
	// +optional
	Switch *SwitchPolicy `json:"switch,omitempty"`
}

// SwitchPolicy says how a node comes to follow a profile where pods are in the way.
type SwitchPolicy struct {
	// DrainDeadline is how long pods have to leave, their budgets and grace periods
	// included. Default: the controller's, 10 minutes.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	DrainDeadline *metav1.Duration `json:"drainDeadline,omitempty"`
	// AfterDeadline is what happens to pods that are there still: GiveUp leaves the
	// node as it was, Force deletes them, their budgets notwithstanding. Default:
	// GiveUp.
	//
	// +optional
	AfterDeadline AfterDeadline `json:"afterDeadline,omitempty"`
	// Reboot says what happens where a GPU changes only after a reset that is
	// refused: Never puts it back and says RebootRequired, Allowed empties the node
	// of GPU pods and reboots it. Default: Never.
	//
	// +optional
	Reboot Reboot `json:"reboot,omitempty"`
	// NodeTaint also taints the node tranche.dev/repartitioning:NoSchedule meanwhile,
	// which keeps pods without GPUs away, too. Default: false.
	//
	// +optional
	NodeTaint bool `json:"nodeTaint,omitempty"`
	// PauseClients stops monitoring that keeps GPUs busy while they change: what
	// follows the GPU operators' node labels. Default: true.
	//
	// +optional
	PauseClients *bool `json:"pauseClients,omitempty"`
}

// AfterDeadline is what happens to pods that do not leave in time.
//
// +kubebuilder:validation:Enum=GiveUp;Force
type AfterDeadline string

// What can happen to pods that do not leave in time.
const (
	GiveUp AfterDeadline = "GiveUp"
	Force  AfterDeadline = "Force"
)

// Reboot says whether a switch may reboot the node.
//
// +kubebuilder:validation:Enum=Never;Allowed
type Reboot string

// Whether a switch may reboot the node.
const (
	RebootNever   Reboot = "Never"
	RebootAllowed Reboot = "Allowed"
)

// MIG says how NVIDIA GPUs are cut. On GPUs that cannot be cut only Disabled and an
// unrestricted Dynamic fit.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Static' || has(self.partitions)",message="is missing: mode Static makes the partitions that it names",fieldPath=".partitions",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || has(self.mode) && self.mode == 'Static'",message="is for mode Static only; for Dynamic say profiles",fieldPath=".partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || self.partitions.filter(p, !has(p.count)).size() <= 1",message="one profile can fill what is left: give the others a count",fieldPath=".partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.profiles) || !has(self.mode) || self.mode == 'Dynamic'",message="is for mode Dynamic only; for Static say partitions",fieldPath=".profiles"
// +kubebuilder:validation:XValidation:rule="!has(self.wholeGPUs) || !has(self.mode) || self.mode == 'Dynamic'",message="is for mode Dynamic only",fieldPath=".wholeGPUs"
type MIG struct {
	// Mode is Dynamic (partitions are made when claims ask for them), Static (they
	// are made now and stay) or Disabled (there are none). Default: Dynamic.
	//
	// +optional
	Mode MIGMode `json:"mode,omitempty"`
	// Profiles are those that claims can have, for Dynamic. Without it all of the
	// GPU's. A name may leave out the memory: 1g stands for the GPU's smallest
	// profile of one slice.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[1-9][0-9]*g(\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?)?$`
	Profiles []string `json:"profiles,omitempty"`
	// WholeGPUs says whether claims can have the GPU uncut, too, for Dynamic.
	// Default: true.
	//
	// +optional
	WholeGPUs *bool `json:"wholeGPUs,omitempty"`
	// Partitions are those that are made, for Static. Each profile is there once.
	//
	// +optional
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Partitions []StaticPartition `json:"partitions,omitempty"`
}

// MIGMode says when partitions are made.
//
// +kubebuilder:validation:Enum=Dynamic;Static;Disabled
type MIGMode string

// When partitions are made.
const (
	MIGDynamic MIGMode = "Dynamic"
	MIGStatic  MIGMode = "Static"
	// MIGDisabled is not Off, which YAML takes for false.
	MIGDisabled MIGMode = "Disabled"
)

// StaticPartition is a number of partitions of one profile, on each GPU.
type StaticPartition struct {
	// Profile as nvidia-smi mig -lgip spells it ("1g.10gb", "1g.10gb+me"); the
	// memory may be left out ("1g").
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*g(\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?)?$`
	Profile string `json:"profile"`
	// Count is how many. Without it, as many as fit beside the others; one entry of
	// a list can do that.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count *int32 `json:"count,omitempty"`
}

// AMD says in which modes AMD GPUs are.
type AMD struct {
	// ComputePartition is the mode that the GPUs are put into and kept in; SPX is
	// the whole GPU. Without it the mode follows the claims.
	//
	// +optional
	// +kubebuilder:validation:Enum=SPX;DPX;TPX;QPX;CPX
	ComputePartition string `json:"computePartition,omitempty"`
	// MemoryPartition is the memory mode. All GPUs of a node share it, and a change
	// loads the driver anew. Without it the mode stays as it is.
	//
	// +optional
	// +kubebuilder:validation:Enum=NPS1;NPS2;NPS4;NPS8
	MemoryPartition string `json:"memoryPartition,omitempty"`
}

// Rule says what is wanted of some GPUs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mig) || !has(self.gpus) || !has(self.gpus.vendor) || self.gpus.vendor == 'nvidia'",message="is for NVIDIA's GPUs, and the rule is for those of AMD; say amd.computePartition",fieldPath=".mig"
// +kubebuilder:validation:XValidation:rule="!has(self.amd) || !has(self.gpus) || !has(self.gpus.vendor) || self.gpus.vendor == 'amd'",message="is for AMD's GPUs, and the rule is for those of NVIDIA; say mig",fieldPath=".amd"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.gpus) || !has(self.gpus.vendor) || self.gpus.vendor == 'nvidia' || !(has(self.sharing.strategy) && self.sharing.strategy == 'MPS' || has(self.sharing.timeSlice))",message="AMD's GPUs have neither strategy MPS nor a timeSlice: leave them out",fieldPath=".sharing"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.sharing.partitions) || !has(self.gpus) || !has(self.gpus.vendor) || self.sharing.partitions.profiles.all(p, (self.gpus.vendor == 'amd') == p.endsWith('px'))",message="partitions.profiles has a profile of the other vendor's GPUs: the rule's GPUs.vendor is of those that it names",fieldPath=".sharing"
// +kubebuilder:validation:XValidation:rule="!has(self.legacyResource) || self.legacyResource in ['Whole', 'Replica'] || !has(self.gpus) || !has(self.gpus.vendor) || (self.gpus.vendor == 'amd') == self.legacyResource.endsWith('px')",message="is a profile of the other vendor's GPUs",fieldPath=".legacyResource"
// +kubebuilder:validation:XValidation:rule="!has(self.legacyResource) || self.legacyResource != 'Replica' || !has(self.sharing) || !has(self.sharing.enabled) || self.sharing.enabled",message="is Replica, and sharing.enabled is false: there are no replicas",fieldPath=".legacyResource"
// +kubebuilder:validation:XValidation:rule="!has(self.legacyResource) || self.legacyResource != 'Replica' || !has(self.mig) || !(has(self.mig.mode) && self.mig.mode == 'Static' || has(self.mig.wholeGPUs) && !self.mig.wholeGPUs)",message="is Replica, a share of the whole GPU, which mig does not offer",fieldPath=".legacyResource"
type Rule struct {
	// GPUs selects them. All that it names must fit; without it the rule is for
	// every GPU.
	//
	// +optional
	GPUs *GPUSelector `json:"gpus,omitempty"`
	// MIG says how NVIDIA GPUs are cut. Without it partitions are made on demand.
	//
	// +optional
	MIG *MIG `json:"mig,omitempty"`
	// AMD says in which modes AMD GPUs are. Without it they are switched on demand.
	//
	// +optional
	AMD *AMD `json:"amd,omitempty"`
	// Sharing says whether and how several claims hold one GPU at once.
	//
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
	// LegacyResource is what a pod gets that asks for the vendor's old resource
	// (nvidia.com/gpu, amd.com/gpu): Whole, a whole GPU; Replica, a share by
	// fraction of one; or a partition of the profile that it names ("1g.10gb",
	// "cpx"). Default: Whole.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(Whole|Replica|[1-9][0-9]*g\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?|dpx|tpx|qpx|cpx)$`
	LegacyResource string `json:"legacyResource,omitempty"`
}

// GPUSelector selects GPUs. A GPU must fit each list that is there, and fits a
// list by one of its entries.
type GPUSelector struct {
	// Vendor is who made the GPUs.
	//
	// +optional
	// +kubebuilder:validation:Enum=nvidia;amd
	Vendor string `json:"vendor,omitempty"`
	// Products are product names as the GPU's attribute productName has them. *
	// stands for any text, ? for one character. Case does not matter.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Products []string `json:"products,omitempty"`
	// PCIAddresses are PCI addresses: "0000:c1:00.0".
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=16
	// +kubebuilder:validation:items:Pattern=`^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$`
	PCIAddresses []string `json:"pciAddresses,omitempty"`
	// PCIIDs are hexadecimal device and vendor numbers as mig-parted writes them
	// ("0x233010DE"), with those of the subsystem if need be ("0x233010DE:0x16C110DE").
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=21
	// +kubebuilder:validation:items:Pattern=`^0x[0-9A-Fa-f]{8}(:0x[0-9A-Fa-f]{8})?$`
	PCIIDs []string `json:"pciIDs,omitempty"`
	// Count takes only so many of the GPUs that fit and that no earlier rule takes,
	// in the order of their PCI addresses. A node with fewer does not fit the profile.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count *int32 `json:"count,omitempty"`
	// Indexes are places in the enumeration of the vendor's own tools. They can
	// change when a GPU is taken out; PCI addresses do not.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	Indexes []int32 `json:"indexes,omitempty"`
}

// Strategy is how the holders of a GPU take turns.
//
// +kubebuilder:validation:Enum=TimeSlicing;MPS
type Strategy string

// The strategies.
const (
	// TimeSlicing gives the whole GPU to one process at a time.
	TimeSlicing Strategy = "TimeSlicing"
	// MPS runs processes side by side by NVIDIA's Multi-Process Service.
	MPS Strategy = "MPS"
)

// TimeSlice is how long a process of an NVIDIA GPU may run before it is another's
// turn.
//
// +kubebuilder:validation:Enum=Default;Short;Medium;Long
type TimeSlice string

// Sharing says how several claims hold one GPU at once.
//
// +kubebuilder:validation:XValidation:rule="(has(self.maxClients) ? self.maxClients : 1000) >= (has(self.replicas) ? self.replicas : 10)",message="is less than replicas (10 unless they are set), and each replica takes a client: raise it, or set fewer replicas",fieldPath=".maxClients"
// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || self.strategy != 'MPS' || !has(self.replicas) || self.replicas <= 48",message="an MPS server takes 48 clients: set at most so many replicas",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || self.strategy != 'MPS' || !has(self.maxClients) || self.maxClients <= 48",message="an MPS server takes 48 clients: set at most so many",fieldPath=".maxClients"
// +kubebuilder:validation:XValidation:rule="!has(self.timeSlice) || !has(self.strategy) || self.strategy != 'MPS'",message="is for strategy TimeSlicing only",fieldPath=".timeSlice"
// +kubebuilder:validation:XValidation:rule="!has(self.exclusiveProcess) || !self.exclusiveProcess || has(self.strategy) && self.strategy == 'MPS'",message="is for strategy MPS only",fieldPath=".exclusiveProcess"
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || !has(self.strategy) || self.strategy != 'MPS'",message="cannot be shared with strategy MPS, which is for whole GPUs; use TimeSlicing",fieldPath=".partitions"
type Sharing struct {
	// Enabled offers shares of whole GPUs. Default: true. Partitions have a list of
	// their own.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Strategy is how holders take turns. MPS needs NVIDIA's GPUs; on others it
	// changes nothing. Default: TimeSlicing.
	//
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`
	// Replicas is how many shares that name no amount fill a GPU. Default: 10.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`
	// TimeSlice is the length of a turn, for TimeSlicing on NVIDIA's GPUs. Without
	// it the driver's own length stays.
	//
	// +optional
	TimeSlice TimeSlice `json:"timeSlice,omitempty"`
	// MaxClients is how many clients a GPU has for all shares of it together, at
	// least as many as replicas. A share takes one unless its claim asks for more.
	// With MPS at most 48. Default: 48, or replicas where that is more.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxClients *int32 `json:"maxClients,omitempty"`
	// OneClient refuses shares that ask for more than one client. Default: false.
	//
	// +optional
	OneClient bool `json:"oneClient,omitempty"`
	// ExclusiveProcess keeps processes that bypass the MPS daemon off the GPU, by
	// the compute mode EXCLUSIVE_PROCESS. For MPS only. Default: false.
	//
	// +optional
	ExclusiveProcess bool `json:"exclusiveProcess,omitempty"`
	// Partitions offers shares of partitions, too. Not with MPS.
	//
	// +optional
	Partitions *SharedPartitions `json:"partitions,omitempty"`
}

// SharedPartitions says which partitions several claims hold at once.
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
	// Fractions offers them by fraction, too; otherwise by memory only. Default:
	// false.
	//
	// +optional
	Fractions bool `json:"fractions,omitempty"`
}
