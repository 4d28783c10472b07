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
}

// Rule says what is wanted of some cards.
type Rule struct {
	// Cards selects them. All that it names must fit; without it the rule is for
	// every card.
	//
	// +optional
	Cards *CardSelector `json:"cards,omitempty"`
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
