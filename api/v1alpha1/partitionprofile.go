package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PartitionProfile is what an administrator wants of the cards of a node. A node
// follows the profile that its label tranche.dev/profile names, otherwise the
// profile named default.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Products",type=string,JSONPath=`.spec.rules[*].cards.products`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.rules[*].sharing.strategy`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.spec.rules[*].sharing.replicas`
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
type PartitionProfileSpec struct {
	// Rules each say something of some cards. The first rule that selects a card
	// holds for it; a card that none selects has the defaults.
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
	DrainDeadline *metav1.Duration `json:"drainDeadline,omitempty"`
	// AfterDeadline is what happens to pods that are there still: GiveUp leaves the
	// node as it was, Force deletes them, their budgets notwithstanding. Default:
	// GiveUp.
	//
	// +optional
	AfterDeadline AfterDeadline `json:"afterDeadline,omitempty"`
	// Reboot says what happens where a card changes only after a reset that is
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
	// PauseClients stops monitoring that keeps cards busy while they change: what
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

// MIG says how NVIDIA cards are cut. On cards that cannot be cut only Disabled and an
// unrestricted Dynamic fit.
type MIG struct {
	// Mode is Dynamic (partitions are made when claims ask for them), Static (they
	// are made now and stay) or Disabled (there are none). Default: Dynamic.
	//
	// +optional
	Mode MIGMode `json:"mode,omitempty"`
	// Profiles are those that claims can have, for Dynamic. Without it all of the
	// card's. A name may leave out the memory: 1g stands for the card's smallest
	// profile of one slice.
	//
	// +optional
	// +listType=set
	Profiles []string `json:"profiles,omitempty"`
	// WholeCards says whether claims can have the card uncut, too, for Dynamic.
	// Default: true.
	//
	// +optional
	WholeCards *bool `json:"wholeCards,omitempty"`
	// Partitions are those that are made, for Static.
	//
	// +optional
	// +listType=atomic
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

// StaticPartition is a number of partitions of one profile, on each card.
type StaticPartition struct {
	// Profile as nvidia-smi mig -lgip spells it ("1g.10gb", "1g.10gb+me"); the
	// memory may be left out ("1g").
	Profile string `json:"profile"`
	// Count is how many. Without it, as many as fit beside the others; one entry of
	// a list can do that.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count *int32 `json:"count,omitempty"`
}

// AMD says in which modes AMD cards are.
type AMD struct {
	// ComputePartition is the mode that the cards are put into and kept in; SPX is
	// the whole card. Without it the mode follows the claims.
	//
	// +optional
	// +kubebuilder:validation:Enum=SPX;DPX;TPX;QPX;CPX
	ComputePartition string `json:"computePartition,omitempty"`
	// MemoryPartition is the memory mode. All cards of a node share it, and a change
	// loads the driver anew. Without it the mode stays as it is.
	//
	// +optional
	// +kubebuilder:validation:Enum=NPS1;NPS2;NPS4;NPS8
	MemoryPartition string `json:"memoryPartition,omitempty"`
}

// Rule says what is wanted of some cards.
type Rule struct {
	// Cards selects them. All that it names must fit; without it the rule is for
	// every card.
	//
	// +optional
	Cards *CardSelector `json:"cards,omitempty"`
	// MIG says how NVIDIA cards are cut. Without it partitions are made on demand.
	//
	// +optional
	MIG *MIG `json:"mig,omitempty"`
	// AMD says in which modes AMD cards are. Without it they are switched on demand.
	//
	// +optional
	AMD *AMD `json:"amd,omitempty"`
	// Sharing says whether and how several claims hold one card at once.
	//
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
	// LegacyResource is what a pod gets that asks for the vendor's old resource
	// (nvidia.com/gpu, amd.com/gpu): Whole, a whole card; Replica, a share by
	// fraction of one; or a partition of the profile that it names ("1g.10gb",
	// "cpx"). Default: Whole.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^(Whole|Replica|[1-9][0-9]*g\.[1-9][0-9]*gb(\+me|\+me\.all|-me|\+gfx)?|dpx|tpx|qpx|cpx)$`
	LegacyResource string `json:"legacyResource,omitempty"`
}

// CardSelector selects cards. A card must fit each list that is there, and fits a
// list by one of its entries.
type CardSelector struct {
	// Vendor is who made the cards.
	//
	// +optional
	// +kubebuilder:validation:Enum=nvidia;amd
	Vendor string `json:"vendor,omitempty"`
	// Products are product names as the card's attribute productName has them. *
	// stands for any text, ? for one character. Case does not matter.
	//
	// +optional
	// +listType=set
	Products []string `json:"products,omitempty"`
	// PCIAddresses are PCI addresses: "0000:c1:00.0".
	//
	// +optional
	// +listType=set
	PCIAddresses []string `json:"pciAddresses,omitempty"`
	// PCIIDs are hexadecimal device and vendor numbers as mig-parted writes them
	// ("0x233010DE"), with those of the subsystem if need be ("0x233010DE:0x16C110DE").
	//
	// +optional
	// +listType=set
	PCIIDs []string `json:"pciIDs,omitempty"`
	// Count takes only so many of the cards that fit and that no earlier rule takes,
	// in the order of their PCI addresses. A node with fewer does not fit the profile.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int32 `json:"count,omitempty"`
	// Indexes are places in the enumeration of the vendor's own tools. They can
	// change when a card is taken out; PCI addresses do not.
	//
	// +optional
	// +listType=set
	Indexes []int32 `json:"indexes,omitempty"`
}

// Strategy is how the holders of a card take turns.
//
// +kubebuilder:validation:Enum=TimeSlicing;MPS
type Strategy string

// The strategies.
const (
	// TimeSlicing gives the whole card to one process at a time.
	TimeSlicing Strategy = "TimeSlicing"
	// MPS runs processes side by side by NVIDIA's Multi-Process Service.
	MPS Strategy = "MPS"
)

// TimeSlice is how long a process of an NVIDIA card may run before it is another's
// turn.
//
// +kubebuilder:validation:Enum=Default;Short;Medium;Long
type TimeSlice string

// Sharing says how several claims hold one card at once.
type Sharing struct {
	// Enabled offers shares of whole cards. Default: true. Partitions have a list of
	// their own.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Strategy is how holders take turns. MPS needs NVIDIA's cards; on others it
	// changes nothing. Default: TimeSlicing.
	//
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`
	// Replicas is how many shares that name no amount fill a card. Default: 10.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`
	// TimeSlice is the length of a turn, for TimeSlicing on NVIDIA's cards. Without
	// it the driver's own length stays.
	//
	// +optional
	TimeSlice TimeSlice `json:"timeSlice,omitempty"`
	// MaxClients is how many clients a card has for all shares of it together, at
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
	// ExclusiveProcess keeps processes that bypass the MPS daemon off the card, by
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
	// Profiles are the profiles of the partitions ("3g.40gb", "cpx").
	//
	// +listType=set
	Profiles []string `json:"profiles"`
	// Fractions offers them by fraction, too; otherwise by memory only. Default:
	// false.
	//
	// +optional
	Fractions bool `json:"fractions,omitempty"`
}
