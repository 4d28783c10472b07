package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Summary is what `kubectl tranche` shows. Its JSON form is what
// `kubectl tranche -o json` prints: fields may be added, and never change their
// meaning.
type Summary struct {
	Nodes []Node `json:"nodes"`
	// Lost are devices that claims hold, of GPUs that are not published.
	Lost []Held `json:"lost,omitempty"`
	// Waiting are the claims and pods that wait for a device.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Partial is set if not all claims could be read: devices that look free may be held, so
	// free capacity is left out.
	Partial bool `json:"partial,omitempty"`
	// Notes say what could not be read, and the consequence.
	Notes []string `json:"notes,omitempty"`

	// Only are the selected nodes, nil for all. Selector is the label selector that chose them.
	Only     []string `json:"-"`
	Selector string   `json:"-"`
	// System is the namespace of Tranche, empty if it is not known.
	System string `json:"-"`
	// Now is when the objects were read.
	Now time.Time `json:"-"`
}

// Node is a machine that publishes GPUs.
type Node struct {
	Name string `json:"name"`
	// State is the state of the node: "NotReady", "cordoned", empty if it is ready.
	State string `json:"state,omitempty"`
	// NotReady and Cordoned are what State consists of.
	NotReady      bool   `json:"-"`
	Cordoned      bool   `json:"-"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// Profile is the node's progress with its PartitionProfile, nil without a GPUNode.
	Profile *Progress `json:"profile,omitempty"`
	GPUs    []GPU     `json:"gpus"`
}

// GPU is one physical GPU with its devices.
type GPU struct {
	Name        string `json:"name"`
	Pool        string `json:"pool"`
	Vendor      string `json:"vendor,omitempty"`
	ProductName string `json:"productName,omitempty"`
	PCIBusID    string `json:"pciBusID,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	// driver is the version of the driver, which is shown once for the node.
	driver string
	// Positions is into how many equal parts the bar is divided: the memory
	// slices of the GPU, or 1 where it cannot be partitioned.
	Positions int `json:"positions"`
	// Bar covers all positions from left to right, without gaps.
	Bar []Segment `json:"bar"`
	// Mode is set while a claim holds a partition of a GPU with compute modes.
	Mode *Mode `json:"mode,omitempty"`
	// MemoryMode is the memory mode of a GPU that has several: "NPS1".
	MemoryMode string `json:"memoryMode,omitempty"`
	// HardwareMode has the current modes as the node's plugin reports them.
	HardwareMode v1beta1.GPUModes `json:"hardwareMode,omitzero"`
	GPUState
	// Held are the held devices, in the order of the bar.
	Held []Held `json:"held,omitempty"`
	// Fits says how often each placement would still fit, each counted alone.
	Fits []Fit `json:"fits,omitempty"`
	// Shares is the room on shared devices, which is an amount.
	Shares []Shares `json:"-"`
	// Taints are the taints of the devices of the GPU.
	Taints []Taint `json:"taints,omitempty"`
	// Incomplete says how many slices are missing. The scheduler does not use such a GPU.
	Incomplete string `json:"incomplete,omitempty"`
}

// Mode is the compute mode of a GPU, which decides what else it can offer.
type Mode struct {
	// Name is the vendor's: "CPX".
	Name string `json:"name"`
	// Held is how many of the Of partitions of the mode are held.
	Held int `json:"held"`
	Of   int `json:"of"`
}

// State is the state of a position of a bar.
type State string

// The states of positions.
const (
	// Free can be allocated.
	Free State = "free"
	// Taken is held by a claim.
	Taken State = "held"
	// Blocked would be free but for a taint.
	Blocked State = "blocked"
	// Leftover is not held and cannot be allocated: every placement with it overlaps a held
	// one. Seven 1g partitions leave one of eight memory slices.
	Leftover State = "leftover"
	// Unknown looks free, but not all claims could be read, or the GPU is not published
	// completely.
	Unknown State = "unknown"
)

// Segment is a run of positions in one state. A free, blocked or leftover
// segment is one position long; a held one as long as its device.
type Segment struct {
	Start int    `json:"start"`
	Size  int    `json:"size"`
	State State  `json:"state"`
	Label string `json:"label,omitempty"`
}

// Held is a device that claims hold.
type Held struct {
	Device string `json:"device"`
	Pool   string `json:"pool"`
	// Label is the name of the placement: the profile, or "whole GPU".
	Label string `json:"label"`
	Type  string `json:"type,omitempty"`
	// Positions of the bar that the device takes.
	Positions []int `json:"positions,omitempty"`
	// Unpublished is set when a claim holds a device that is not in the slices.
	Unpublished bool     `json:"unpublished,omitempty"`
	Holders     []Holder `json:"holders"`
	// Left is the free amount of a shared device, by capacity. It is left out if holders may be
	// missing.
	Left map[string]string `json:"left,omitempty"`
	// LeftBytes is the memory of it.
	LeftBytes int64 `json:"-"`
}

// Holder is a claim with the pods that use it.
type Holder struct {
	Namespace string   `json:"namespace"`
	Claim     string   `json:"claim"`
	Pods      []string `json:"pods,omitempty"`
	// Admin is true if the claim has admin access, which does not hold the device.
	Admin bool `json:"admin,omitempty"`
	// Consumed is what the claim has of a shared device, by capacity.
	Consumed map[string]string `json:"consumed,omitempty"`
	// Hidden is set for holders in other namespaces, whose names are left out.
	Hidden bool `json:"hidden,omitempty"`

	// consumed is Consumed, also of hidden holders.
	consumed map[string]resource.Quantity
}

// Fit is how many more devices of one kind fit, if no others are allocated.
type Fit struct {
	Label string `json:"label"`
	Count int    `json:"count"`

	// Whole is true for the whole GPU. Positions is how many positions a device of the kind takes.
	Whole     bool `json:"-"`
	Positions int  `json:"-"`
}

// Taint is a taint on one or more devices of a GPU.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
	// Devices is how many of the GPU's devices have the taint, Of how many
	// there are.
	Devices int `json:"devices"`
	Of      int `json:"of"`
	// Rules are the DeviceTaintRules that set it; none when the driver did.
	Rules []string `json:"rules,omitempty"`
}

// Waiting is a claim without an allocation, or a pod that waits for an extended
// resource of ours (then there is no claim yet).
type Waiting struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim,omitempty"`
	Pod       string `json:"pod,omitempty"`
}
