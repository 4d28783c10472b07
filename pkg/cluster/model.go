package cluster

import (
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Summary is what `kubectl tranche` shows. `-o json` prints its JSON form.
type Summary struct {
	Nodes []Node `json:"nodes"`
	// Lost are devices that claims hold, of GPUs that are not published.
	Lost []Held `json:"lostDevices,omitempty"`
	// Waiting are the claims and pods that wait for a device.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Unread is what could not be read.
	Unread []text.Unread `json:"unread,omitempty"`

	// Partial is set if not all claims could be read: devices that look free may be held, so
	// free capacity is left out.
	Partial bool `json:"-"`

	// Only are the selected nodes, nil for all. Selector is the label selector that chose them.
	Only     []string `json:"-"`
	Selector string   `json:"-"`
	// System is the namespace of Tranche, empty if it is not known.
	System string `json:"-"`
	// Now is when the objects were read.
	Now time.Time `json:"-"`
}

// GPUCount returns how many GPUs the nodes have.
func (s *Summary) GPUCount() (n int) {
	for i := range s.Nodes {
		n += len(s.Nodes[i].GPUs)
	}
	return n
}

// Node is a machine that publishes GPUs.
type Node struct {
	Name string `json:"name"`
	// Ready is what the kubelet says of the node, nil if the node could not be read.
	Ready    *bool `json:"ready,omitempty"`
	Cordoned bool  `json:"unschedulable,omitempty"`
	// Status is the status of the node's GPUNode, nil without one. Profile is the progress that it says.
	Status  *v1beta1.GPUNodeStatus `json:"status,omitempty"`
	Profile *Progress              `json:"-"`
	GPUs    []GPU                  `json:"gpus"`
}

// Bytes is an amount of memory. Its JSON form is a quantity: "80Gi".
type Bytes int64

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	return resource.NewQuantity(int64(b), resource.BinarySI).MarshalJSON()
}

// GPU is one physical GPU with its devices.
type GPU struct {
	Name          string `json:"name"`
	Vendor        string `json:"vendor,omitempty"`
	ProductName   string `json:"productName,omitempty"`
	PCIBusID      string `json:"pciBusID,omitempty"`
	UUID          string `json:"uuid,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	MemoryBytes   Bytes  `json:"memory,omitempty"`
	// Positions is into how many equal parts the bar is divided: the memory
	// slices of the GPU, or 1 where it cannot be partitioned.
	Positions int `json:"-"`
	// Bar covers all positions from left to right, without gaps.
	Bar []Segment `json:"-"`
	// Mode is set while a claim holds a partition of a GPU with compute modes.
	Mode *Mode `json:"-"`
	// MemoryMode is the memory mode of a GPU that has several: "NPS1".
	MemoryMode string `json:"memoryPartition,omitempty"`
	GPUState   `json:"-"`
	// Held are the held devices, in the order of the bar.
	Held []Held `json:"devices,omitempty"`
	// Fits says how often each placement would still fit, each counted alone.
	Fits []Fit `json:"freeDevices,omitempty"`
	// Shares is the room on shared devices, which is an amount.
	Shares []Shares `json:"-"`
	// Taints are the taints of the devices of the GPU.
	Taints []Taint `json:"taints,omitempty"`
	// MissingSlices is how many of its ResourceSlices are missing. The scheduler does not use such a GPU.
	MissingSlices int64 `json:"missingResourceSlices,omitempty"`
}

// Mode is the compute mode of a GPU, which decides what else it can offer.
type Mode struct {
	// Name is the vendor's: "CPX".
	Name string
	// Held is how many of the Of partitions of the mode are held.
	Held, Of int
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
	Start, Size int
	State       State
	Label       string
	// Left is the fraction of a shared device that claims have left, and Rest its state. Left is 0 for
	// other devices.
	Left float64
	Rest State
}

// Positions returns how many positions of the segment are in a state: a fraction of a shared device.
func (s *Segment) Positions(in State) float64 {
	n := 0.0
	if s.State == in {
		n = float64(s.Size) * (1 - s.Left)
	}
	if s.Left > 0 && s.Rest == in {
		n += float64(s.Size) * s.Left
	}
	return n
}

// DeviceKind is a kind of devices, by their attributes. Of a device that is not published, only the
// label is known.
type DeviceKind struct {
	// Label names the kind for people: the profile, or "whole GPU".
	Label   string   `json:"-"`
	Type    gpu.Type `json:"type,omitempty"`
	Profile string   `json:"profile,omitempty"`
	// ShareUnit is the unit of shares, empty for other kinds.
	ShareUnit gpu.Basis `json:"shareUnit,omitempty"`
}

// Held is a device that claims hold.
type Held struct {
	Device string `json:"name"`
	DeviceKind
	// Pool has the name of the node.
	Pool string `json:"nodeName"`
	// Positions of the bar that the device takes.
	Positions []int `json:"-"`
	// Unpublished is set when a claim holds a device that is not in the slices.
	Unpublished bool     `json:"unpublished,omitempty"`
	Holders     []Holder `json:"holders"`
	// Left is the free amount of a shared device. It is left out if holders may be missing.
	Left Amounts `json:"freeCapacity,omitempty"`
}

// Holder is a claim with the pods that use it, and with what else it is reserved for.
type Holder struct {
	Namespace string     `json:"namespace,omitempty"`
	Claim     string     `json:"claimName,omitempty"`
	Pods      []string   `json:"podNames,omitempty"`
	Others    []Consumer `json:"otherConsumers,omitempty"`
	// Admin is true if the claim has admin access, which does not hold the device.
	Admin bool `json:"adminAccess,omitempty"`
	// Consumed is what the claim has of a shared device.
	Consumed Amounts `json:"consumedCapacity,omitempty"`
	// Hidden is set for holders in other namespaces, whose names are left out.
	Hidden bool `json:"hidden,omitempty"`
}

// Consumer is what a claim is reserved for, as in its status.
type Consumer struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Resource string `json:"resource"`
	Name     string `json:"name"`
}

// Fit is how many more devices of one kind fit, if no others are allocated.
type Fit struct {
	DeviceKind
	Count int `json:"count"`
	// Positions is how many positions a device of the kind takes, Memory how much memory it has.
	Positions int   `json:"-"`
	Memory    Bytes `json:"-"`
}

// Taint is a taint on one or more devices of a GPU.
type Taint struct {
	Key    string                        `json:"key"`
	Value  string                        `json:"value,omitempty"`
	Effect resourceapi.DeviceTaintEffect `json:"effect"`
	// Devices is how many of the GPU's devices have the taint, Of how many
	// there are.
	Devices int `json:"deviceCount,omitempty"`
	Of      int `json:"-"`
	// Rules are the DeviceTaintRules that set it; none when the driver did.
	Rules []string `json:"deviceTaintRuleNames,omitempty"`
}

// String returns the taint as kubectl writes it: "key=value:effect".
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// Waiting is a claim without an allocation, or a pod that waits for an extended
// resource of ours (then there is no claim yet).
type Waiting struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claimName,omitempty"`
	Pod       string `json:"podName,omitempty"`
	// Since is when the pod was created, or a claim whose pod is not known.
	Since time.Time `json:"-"`
	// Scheduler is what the scheduler last said about the pod, empty if it has said nothing.
	Scheduler string `json:"-"`
}
