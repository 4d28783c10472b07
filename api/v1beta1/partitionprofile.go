package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PartitionProfile is the desired state of the GPUs of a node. It applies to nodes whose GPUNode
// names it in spec.profileName, which the controller sets from the label tranche.dev/profile; then
// to those that a PartitionPlan selects for it. The profile "default" applies to all other nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pprofile
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a node's label tranche.dev/profile names the profile, and a label has at most 63 characters: choose a shorter name"
// +kubebuilder:printcolumn:name="MIG",type=string,JSONPath=`.spec.rules[*].mig.mode`
// +kubebuilder:printcolumn:name="Compute",type=string,JSONPath=`.spec.rules[*].xcp.computePartition`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.rules[*].xcp.memoryPartition`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.rules[*].sharing.strategy`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.spec.rules[*].sharing.replicas`
// +kubebuilder:printcolumn:name="After Deadline",type=string,JSONPath=`.spec.switch.afterDeadline`,priority=1
// +kubebuilder:printcolumn:name="Reboot",type=string,JSONPath=`.spec.switch.reboot`,priority=1
// +kubebuilder:printcolumn:name="Created From",type=string,JSONPath=`.metadata.labels.tranche\.dev/created-from`,priority=1
// +kubebuilder:printcolumn:name="Rules",type=string,JSONPath=`.spec.rules`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PartitionProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the GPUs.
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

// PartitionProfileSpec is the desired state of GPUs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || self.rules.map(r, !has(r.gpus) || !(has(r.gpus.vendor) || has(r.gpus.productNames) || has(r.gpus.pciBusIDs) || has(r.gpus.pciIDs) || has(r.gpus.indexes) || has(r.gpus.migSupport) || has(r.gpus.count))).indexOf(true) in [-1, size(self.rules) - 1]",message="a rule without GPUs selects every GPU, so those after it hold for none: put it last",fieldPath=".rules"
// +kubebuilder:validation:XValidation:rule="!has(self.switch) || !has(self.switch.drainDeadline) || duration(self.switch.drainDeadline) >= duration('1s') && duration(self.switch.drainDeadline) <= duration('24h')",message="must be 1s to 24h",fieldPath=".switch.drainDeadline"
type PartitionProfileSpec struct {
	// Rules are settings for sets of GPUs. The first rule that selects a GPU applies to
	// it. A GPU that no rule selects has the defaults. Default: no rules.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Rules []Rule `json:"rules,omitempty"`
	// Switch defines how nodes are switched to the profile. Default: the default of each field.
	//
	// +optional
	Switch *SwitchPolicy `json:"switch,omitempty"`
}

// SwitchPolicy defines how nodes are switched to a profile while pods use their GPUs.
type SwitchPolicy struct {
	// DrainDeadline is the time for pods to be evicted and terminate, including waits for
	// disruption budgets and grace periods. Default: the controller's, 10 minutes.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	DrainDeadline *metav1.Duration `json:"drainDeadline,omitempty"`
	// AfterDeadline is what happens if pods remain after the deadline. GiveUp leaves the
	// node unchanged. Force deletes the pods regardless of their disruption budgets.
	// Default: the controller's, GiveUp.
	//
	// +optional
	AfterDeadline AfterDeadline `json:"afterDeadline,omitempty"`
	// Reboot is what happens if a GPU changes only after a reset, and the reset is refused.
	// Never rolls back with the reason RebootRequired. IfRequired drains all GPUs of the node
	// and reboots it. Default: the controller's, Never.
	//
	// +optional
	Reboot Reboot `json:"reboot,omitempty"`
	// NodeTaintEffect is the effect of the taint tranche.dev/switching on the node during
	// the switch. NoSchedule also affects pods without GPUs. With None, only the devices are
	// tainted. Default: None.
	//
	// +optional
	NodeTaintEffect NodeTaintEffect `json:"nodeTaintEffect,omitempty"`
	// PauseMonitoring is true if monitoring pods that keep GPUs busy are stopped during the
	// switch, by the node labels of the GPU operators. Default: true.
	//
	// +optional
	PauseMonitoring *bool `json:"pauseMonitoring,omitempty"`
}

// AfterDeadline is what happens if pods remain after the deadline.
//
// +kubebuilder:validation:Enum=GiveUp;Force
type AfterDeadline string

// What can happen if pods remain after the deadline.
const (
	GiveUp AfterDeadline = "GiveUp"
	Force  AfterDeadline = "Force"
)

// Reboot defines whether a switch may reboot the node.
//
// +kubebuilder:validation:Enum=Never;IfRequired
type Reboot string

// Whether a switch may reboot the node.
const (
	RebootNever      Reboot = "Never"
	RebootIfRequired Reboot = "IfRequired"
)

// NodeTaintEffect is the effect of the taint of a node during a switch.
//
// +kubebuilder:validation:Enum=None;NoSchedule
type NodeTaintEffect string

// Effects of the taint of a node.
const (
	NodeTaintNone       NodeTaintEffect = "None"
	NodeTaintNoSchedule NodeTaintEffect = "NoSchedule"
)

// MIG defines how NVIDIA GPUs are partitioned. GPUs without MIG accept only Disabled, and
// Dynamic without restrictions.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'Static' || has(self.partitions)",message="is missing: mode Static makes the partitions that it names",fieldPath=".partitions",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || self.mode == 'Static'",message="is for mode Static only; for Dynamic use profiles",fieldPath=".partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.partitions) || self.partitions.filter(p, !has(p.count)).size() <= 1",message="one profile can fill what is left: give the others a count",fieldPath=".partitions"
// +kubebuilder:validation:XValidation:rule="!has(self.profiles) || self.mode == 'Dynamic'",message="is for mode Dynamic only; for Static say partitions",fieldPath=".profiles"
// +kubebuilder:validation:XValidation:rule="!has(self.wholeGPUs) || self.mode == 'Dynamic'",message="is for mode Dynamic only",fieldPath=".wholeGPUs"
type MIG struct {
	// Mode is Dynamic (partitions are created when claims request them), Static (they are
	// created when the profile is applied, and stay), NoPartitions (MIG mode is on, there are
	// no partitions, and claims cannot use the GPU) or Disabled (MIG mode is off).
	// Default: Dynamic.
	//
	// +optional
	// +kubebuilder:default=Dynamic
	Mode MIGMode `json:"mode,omitempty"`
	// Profiles are the MIG profiles that claims can have, for Dynamic. Default: all
	// profiles of the GPU. A name can omit the memory: 1g means the GPU's smallest profile
	// of one slice.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[1-9][0-9]*g(\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?)?$`
	Profiles []string `json:"profiles,omitempty"`
	// WholeGPUs is true if claims can also have the whole GPU, for Dynamic. Default: true.
	//
	// +optional
	WholeGPUs *bool `json:"wholeGPUs,omitempty"`
	// Partitions are the partitions to create, for Static, which requires them. List each
	// profile once.
	//
	// +optional
	// +listType=map
	// +listMapKey=profile
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Partitions []StaticPartition `json:"partitions,omitempty"`
}

// MIGMode defines when partitions are created.
//
// +kubebuilder:validation:Enum=Dynamic;Static;NoPartitions;Disabled
type MIGMode string

// When partitions are created.
const (
	MIGDynamic MIGMode = "Dynamic"
	MIGStatic  MIGMode = "Static"
	// MIGNoPartitions: MIG mode is on, and claims cannot use the GPU.
	MIGNoPartitions MIGMode = "NoPartitions"
	// MIGDisabled is not called Off, which YAML reads as false.
	MIGDisabled MIGMode = "Disabled"
)

// StaticPartition is a number of partitions of one profile, for each GPU.
type StaticPartition struct {
	// Profile is the name that nvidia-smi mig -lgip shows ("1g.10gb", "1g.10gb+me"). It can
	// omit the memory ("1g").
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*g(\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?)?$`
	Profile string `json:"profile"`
	// Count is the number of partitions. Default: as many as fit beside the others; only
	// one entry of a list can omit it.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count *int32 `json:"count,omitempty"`
}

// XCP sets the modes of AMD GPUs. AMD's driver calls a partition of a GPU an XCP.
type XCP struct {
	// ComputePartition is the compute mode of the GPUs; SPX is the whole GPU. Default: the
	// mode that claims need.
	//
	// +optional
	// +kubebuilder:validation:Enum=SPX;DPX;TPX;QPX;CPX
	ComputePartition string `json:"computePartition,omitempty"`
	// MemoryPartition is the memory mode. All GPUs of a node share it, and a change reloads
	// the driver. Default: the mode does not change.
	//
	// +optional
	// +kubebuilder:validation:Enum=NPS1;NPS2;NPS4;NPS8
	MemoryPartition string `json:"memoryPartition,omitempty"`
}

// Rule is the desired state of a set of GPUs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mig) || !has(self.gpus) || !has(self.gpus.vendor) || self.gpus.vendor == 'nvidia'",message="is for NVIDIA's GPUs, and the rule is for those of AMD; use xcp.computePartition",fieldPath=".mig"
// +kubebuilder:validation:XValidation:rule="!has(self.xcp) || !has(self.gpus) || !has(self.gpus.vendor) || self.gpus.vendor == 'amd'",message="is for AMD's GPUs, and the rule is for those of NVIDIA; use mig",fieldPath=".xcp"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.gpus) || !has(self.gpus.vendor) || self.gpus.vendor == 'nvidia' || !(self.sharing.strategy == 'MPS' || has(self.sharing.timeSlice))",message="AMD's GPUs have neither strategy MPS nor a timeSlice: leave them out",fieldPath=".sharing"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || !has(self.sharing.partitions) || !has(self.gpus) || !has(self.gpus.vendor) || self.sharing.partitions.profiles.all(p, (self.gpus.vendor == 'amd') == p.endsWith('px'))",message="partitions.profiles has a profile of the other vendor's GPUs: set gpus.vendor to the vendor of these profiles",fieldPath=".sharing"
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResource) || !has(self.extendedResource.profile) || !has(self.gpus) || !has(self.gpus.vendor) || (self.gpus.vendor == 'amd') == self.extendedResource.profile.endsWith('px')",message="is a profile of the other vendor's GPUs",fieldPath=".extendedResource.profile"
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResource) || self.extendedResource.device != 'GPUReplica' || !has(self.sharing) || self.sharing.wholeGPUs",message="is GPUReplica, and sharing.wholeGPUs is false: there are no replicas",fieldPath=".extendedResource.device"
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResource) || self.extendedResource.device != 'GPUReplica' || !has(self.mig) || !(self.mig.mode in ['Static', 'NoPartitions'] || has(self.mig.wholeGPUs) && !self.mig.wholeGPUs)",message="is GPUReplica, a share of the whole GPU, which mig does not offer",fieldPath=".extendedResource.device"
// +kubebuilder:validation:XValidation:rule="!has(self.mig) || !has(self.unchanged) || !self.unchanged",message="changes GPUs, and unchanged keeps them as they are: leave one out",fieldPath=".mig"
// +kubebuilder:validation:XValidation:rule="!has(self.xcp) || !has(self.unchanged) || !self.unchanged",message="changes GPUs, and unchanged keeps them as they are: leave one out",fieldPath=".xcp"
// +kubebuilder:validation:XValidation:rule="!has(self.gpus) || !has(self.gpus.migSupport) || !has(self.xcp)",message="is for AMD's GPUs, and gpus.migSupport selects those of NVIDIA",fieldPath=".xcp"
// +kubebuilder:validation:XValidation:rule="!has(self.extendedResource) || self.extendedResource.device != 'AutoReplica' || !has(self.sharing) || self.sharing.strategy != 'MPS'",message="is AutoReplica, and strategy MPS is for whole GPUs; use TimeSlicing, or GPUReplica",fieldPath=".extendedResource.device"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || self.sharing.strategy != 'MPS' && !has(self.sharing.timeSlice) || self.sharing.wholeGPUs && !(has(self.mig) && (self.mig.mode in ['Static', 'NoPartitions'] || has(self.mig.wholeGPUs) && !self.mig.wholeGPUs))",message="has strategy MPS or a timeSlice, which are for shares of whole GPUs, and sharing.wholeGPUs or mig excludes these: leave them out",fieldPath=".sharing"
// +kubebuilder:validation:XValidation:rule="!has(self.sharing) || self.sharing.wholeGPUs || has(self.sharing.partitions) || has(self.extendedResource) && self.extendedResource.device == 'AutoReplica' || self.sharing.replicas == 10 && !has(self.sharing.maxClients) && !(has(self.sharing.failRequestsGreaterThanOne) && self.sharing.failRequestsGreaterThanOne)",message="has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares: set wholeGPUs or partitions, or leave them out",fieldPath=".sharing"
// +kubebuilder:validation:XValidation:rule="!has(self.mig) || !(self.mig.mode in ['Disabled', 'NoPartitions']) || !has(self.sharing) || !has(self.sharing.partitions) || self.sharing.partitions.profiles.all(p, p.endsWith('px'))",message="partitions.profiles has MIG profiles, and mig.mode excludes partitions: leave them out",fieldPath=".sharing"
type Rule struct {
	// GPUs selects the GPUs. A GPU must match all of its fields. Default: every GPU.
	//
	// +optional
	GPUs *GPUSelector `json:"gpus,omitempty"`
	// Unchanged is true if the GPUs keep their partitions and modes. Without a previous
	// profile, these are the defaults. Default: false.
	//
	// +optional
	Unchanged bool `json:"unchanged,omitempty"`
	// MIG defines how NVIDIA GPUs are partitioned. Default: on demand.
	//
	// +optional
	MIG *MIG `json:"mig,omitempty"`
	// XCP sets the modes of AMD GPUs, which define their partitions. Default: the modes that claims need.
	//
	// +optional
	XCP *XCP `json:"xcp,omitempty"`
	// Sharing defines whether and how several claims share a GPU. Default: the default of each
	// field.
	//
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
	// ExtendedResource defines what a pod gets that requests the vendor's extended resource
	// (nvidia.com/gpu, amd.com/gpu), where the chart's extendedResources serve it.
	// Default: a whole GPU.
	//
	// +optional
	ExtendedResource *ExtendedResource `json:"extendedResource,omitempty"`
}

// ExtendedResource defines which device a unit of a vendor's extended resource is.
//
// +kubebuilder:validation:XValidation:rule="has(self.profile) == (self.device == 'Partition')",message="is for device: Partition, which needs it",fieldPath=".profile"
type ExtendedResource struct {
	// Device is GPU (a whole GPU), GPUReplica (a share of it by fraction), Partition (one of the
	// profile), Auto or AutoReplica (on GPUs offered only in partitions of one profile, a partition
	// or a share of it by fraction; on GPUs offered whole, GPU or GPUReplica; no other GPUs fit, nor
	// those of one vendor on which it differs).
	Device ExtendedResourceDevice `json:"device"`
	// Profile is the profile of the partition ("1g.10gb", "cpx"), for Partition, which requires it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]*g\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?|dpx|tpx|qpx|cpx)$`
	Profile string `json:"profile,omitempty"`
}

// ExtendedResourceDevice is the device that a vendor's extended resource means.
//
// +kubebuilder:validation:Enum=GPU;GPUReplica;Partition;Auto;AutoReplica
type ExtendedResourceDevice string

// What a vendor's extended resource can mean.
const (
	DeviceGPU         ExtendedResourceDevice = "GPU"
	DeviceGPUReplica  ExtendedResourceDevice = "GPUReplica"
	DevicePartition   ExtendedResourceDevice = "Partition"
	DeviceAuto        ExtendedResourceDevice = "Auto"
	DeviceAutoReplica ExtendedResourceDevice = "AutoReplica"
)

// GPUSelector selects GPUs. A GPU must match one entry of each list that is set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.migSupport) || !has(self.vendor) || self.vendor == 'nvidia'",message="selects NVIDIA's GPUs, and vendor those of AMD",fieldPath=".migSupport"
type GPUSelector struct {
	// Vendor is the vendor of the GPUs. Default: any.
	//
	// +optional
	// +kubebuilder:validation:Enum=nvidia;amd
	Vendor string `json:"vendor,omitempty"`
	// MIGSupport selects NVIDIA GPUs that support MIG (Capable), or those that do not (Incapable).
	// Default: GPUs of any vendor, regardless of MIG.
	//
	// +optional
	MIGSupport MIGSupport `json:"migSupport,omitempty"`
	// ProductNames are product names as in the device attribute productName. * matches any
	// text, ? one character. Case is ignored. Default: any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[ !#-%'-;=?-\[\]-~]+$`
	ProductNames []string `json:"productNames,omitempty"`
	// PCIBusIDs are PCI addresses, as in the device attribute
	// resource.kubernetes.io/pciBusID: "0000:c1:00.0". Default: any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=16
	// +kubebuilder:validation:items:Pattern=`^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$`
	PCIBusIDs []string `json:"pciBusIDs,omitempty"`
	// PCIIDs are hexadecimal device and vendor numbers as in mig-parted ("0x233010DE"),
	// optionally with those of the subsystem ("0x233010DE:0x16C110DE"). Default: any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=21
	// +kubebuilder:validation:items:Pattern=`^0x[0-9A-Fa-f]{8}(:0x[0-9A-Fa-f]{8})?$`
	PCIIDs []string `json:"pciIDs,omitempty"`
	// Count is the number of GPUs to select, of those that match and that no earlier rule
	// selects, by PCI address. The profile does not fit a node with fewer. Default: all.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count *int32 `json:"count,omitempty"`
	// Indexes are the indexes of GPUs in the vendor's tools. They can change when a GPU is
	// removed; PCI addresses do not. Default: any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	Indexes []int32 `json:"indexes,omitempty"`
}

// MIGSupport defines whether an NVIDIA GPU supports MIG.
//
// +kubebuilder:validation:Enum=Capable;Incapable
type MIGSupport string

// Whether an NVIDIA GPU supports MIG.
const (
	MIGCapable   MIGSupport = "Capable"
	MIGIncapable MIGSupport = "Incapable"
)
