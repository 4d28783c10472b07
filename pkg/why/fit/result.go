package fit

import "github.com/tranche-dev/tranche/pkg/cluster"

// Node is a node with its verdict. `kubectl tranche why -o json` prints its JSON form.
type Node struct {
	Name string `json:"nodeName"`
	// GPUs names the GPUs: "8 × H100".
	GPUs    string  `json:"-"`
	Verdict Verdict `json:"verdict"`
	// Reasons are sentences about the node as a whole.
	Reasons  []string  `json:"messages,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	// Free are the devices that the node's GPUs could still provide.
	Free []cluster.Fit `json:"freeDevices,omitempty"`
	// Profile is the node's progress with its PartitionProfile, nil without a GPUNode.
	Profile *cluster.Progress `json:"-"`
	// switchTo is the profile of the switch that has tainted the node, if any.
	switchTo *string
	// excluded is true if the pod cannot run there even without a switch.
	excluded bool
	// causes are why an excluded node excludes the pod, or what a lacking one lacks.
	causes []*Cause
	// way is how holders would make room, if it takes fewer of them here than on other nodes.
	way *way
}

// Request is what a node has for one request.
type Request struct {
	Claim   string  `json:"claimName,omitempty"`
	Request string  `json:"requestName"`
	Verdict Verdict `json:"verdict"`
	// Places is the number of devices that match. Free, Taken (held or overlapped by held devices) and
	// Tainted are parts of it.
	Places  int `json:"deviceCount"`
	Free    int `json:"freeCount"`
	Taken   int `json:"takenCount"`
	Tainted int `json:"taintedCount"`
	// Text is the result in words.
	Text string `json:"message"`
	// Holders are the holders of the taken devices.
	Holders []cluster.Holder `json:"holders,omitempty"`
	Taints  []cluster.Taint  `json:"taints,omitempty"`
	// InMode are the GPUs that claims keep in another mode.
	InMode []InMode `json:"gpusInOtherModes,omitempty"`
	// switchTo is the profile of the switch that has tainted the devices, if any.
	switchTo *string
	// cause is why a lacking node has no such device.
	cause *Cause
	// ways are the taken devices.
	ways []way
}

// InMode counts the GPUs that claims keep in a mode without the requested device. An AMD GPU is in one
// mode at a time.
type InMode struct {
	Mode   string `json:"computePartition"`
	GPUs   int    `json:"gpuCount"`
	Claims int    `json:"claimCount"`
}

// Remedy is something that users can do, with the command for it if there is one.
type Remedy struct {
	Text    string `json:"message"`
	Command string `json:"command,omitempty"`
}
