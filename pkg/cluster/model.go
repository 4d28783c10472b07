package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Summary is what `kubectl tranche` shows. Its JSON form is what
// `kubectl tranche -o json` prints: fields may be added, and never change their
// meaning.
type Summary struct {
	Nodes []Node `json:"nodes"`
	// Lost is held by claims and belongs to a GPU that nobody publishes.
	Lost []Held `json:"lost,omitempty"`
	// Waiting is the claims and pods that want a piece and have none.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Partial is set when not all claims could be read: what looks free may be
	// held by somebody, so nothing is said about free capacity.
	Partial bool `json:"partial,omitempty"`
	// Notes says what could not be read and what that means.
	Notes []string `json:"notes,omitempty"`

	// Only are the nodes that were asked for, none for all.
	Only []string `json:"-"`
	// System is the namespace of Tranche, empty if it is not known.
	System string `json:"-"`
	// Now is when the objects were read.
	Now time.Time `json:"-"`
}

// Node is a machine that publishes GPUs.
type Node struct {
	Name string `json:"name"`
	// State is what a person should know of the node: "NotReady", "cordoned".
	State         string `json:"state,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// Profile is how far the node is with its partition profile, nil where there is
	// no GPUNode.
	Profile *Progress `json:"profile,omitempty"`
	GPUs    []GPU     `json:"gpus"`
}

// GPU is one physical GPU with its pieces.
type GPU struct {
	Name        string `json:"name"`
	Pool        string `json:"pool"`
	Vendor      string `json:"vendor,omitempty"`
	ProductName string `json:"productName,omitempty"`
	PCIBusID    string `json:"pciBusID,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	// driver is the driver's version, which the node shows once for all GPUs.
	driver string
	// Positions is into how many equal parts the bar is divided: the memory
	// slices of the GPU, or 1 where it cannot be partitioned.
	Positions int `json:"positions"`
	// Bar covers all positions from left to right, without gaps.
	Bar []Segment `json:"bar"`
	// Mode is set while somebody holds a piece of a GPU all of which is in one
	// mode at a time.
	Mode *Mode `json:"mode,omitempty"`
	// MemoryMode is that of a GPU which knows several: "NPS1".
	MemoryMode string `json:"memoryMode,omitempty"`
	// HardwareMode is that of the hardware now, as the node's plugin reports it:
	// "MIG on", "CPX NPS1".
	HardwareMode string `json:"hardwareMode,omitempty"`
	// Change is what the node's switch changes of the GPU.
	Change string `json:"change,omitempty"`
	// Pending is what of the node's profile waits until claims are released.
	Pending string `json:"pending,omitempty"`
	// Problem is what is wrong with the GPU.
	Problem string `json:"problem,omitempty"`
	// Held is the devices in use, in the order of the bar.
	Held []Held `json:"held,omitempty"`
	// Fits says how often each placement would still fit, each counted alone.
	Fits []Fit `json:"fits,omitempty"`
	// Taints keeps new claims from (some of) the devices of the GPU.
	Taints []Taint `json:"taints,omitempty"`
	// Incomplete says which part of the pool is missing. The scheduler does not
	// use such a GPU.
	Incomplete string `json:"incomplete,omitempty"`
}

// Mode is the compute mode of a GPU, which decides what else it can offer.
type Mode struct {
	// Name is the vendor's: "CPX".
	Name string `json:"name"`
	// Held is how many of the Of pieces that the mode has somebody holds.
	Held int `json:"held"`
	Of   int `json:"of"`
}

// State is what a part of a bar is.
type State string

// The states of a part of a bar.
const (
	// Free can still be given to a claim.
	Free State = "free"
	// Taken is held by a claim.
	Taken State = "held"
	// Blocked would be free but for a taint.
	Blocked State = "blocked"
	// Leftover is held by nobody and of no use: every placement that would take it
	// needs something that is held. Seven 1g partitions leave one memory slice
	// in eight.
	Leftover State = "leftover"
	// Unknown is free as far as one may see: not all claims could be read, or
	// the GPU is not published in full.
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

// Held is a device that somebody holds.
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
	// Left is what nobody has of a shared device, by capacity, as quantities. It is
	// left out where not all holders are known.
	Left map[string]string `json:"left,omitempty"`
}

// Holder is a claim with the pods that use it.
type Holder struct {
	Namespace string   `json:"namespace"`
	Claim     string   `json:"claim"`
	Pods      []string `json:"pods,omitempty"`
	// Admin access looks at a device without holding it.
	Admin bool `json:"admin,omitempty"`
	// Consumed is the part of a shared device that the claim has.
	Consumed map[string]string `json:"consumed,omitempty"`
	// Hidden is set for holders outside the namespace that was asked for; the
	// names are left out.
	Hidden bool `json:"hidden,omitempty"`

	// consumed is what the claim has, whoever may see it.
	consumed map[string]resource.Quantity
}

// Fit says how many more devices of one kind fit, if no other kind is taken.
type Fit struct {
	Label string `json:"label"`
	Count int    `json:"count"`

	// Whole: it is the whole GPU. Positions is how many positions a device of the kind takes.
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
