package fit

import "github.com/tranche-dev/tranche/pkg/cluster"

// Node is a node with its verdict. `kubectl tranche why -o json` prints its JSON form: fields may be
// added, but never change their meaning.
type Node struct {
	Name    string  `json:"name"`
	GPUs    string  `json:"gpus"`
	Verdict Verdict `json:"verdict"`
	// Reasons are sentences about the node as a whole.
	Reasons  []string  `json:"reasons,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	// Free are the devices that the node's GPUs could still provide.
	Free []string `json:"free,omitempty"`
	// Profile is the node's progress with its PartitionProfile, nil without a GPUNode.
	Profile *cluster.Progress `json:"profile,omitempty"`
	// switchTo is the profile of the switch that has tainted the node, if any.
	switchTo *string
	// cordoned is true if the node is cordoned, excluded if the pod cannot run there even without a
	// switch.
	cordoned, excluded bool
}

// Request is what a node has for one request.
type Request struct {
	Claim   string  `json:"claim,omitempty"`
	Request string  `json:"request"`
	Verdict Verdict `json:"verdict"`
	// Places is the number of devices that match. Free, Taken (held or overlapped by held devices) and
	// Tainted are parts of it.
	Places  int `json:"places"`
	Free    int `json:"free"`
	Taken   int `json:"taken"`
	Tainted int `json:"tainted"`
	// Text is the result in words.
	Text string `json:"text"`
	// Holders are the holders of the taken devices: "team-a: train-0, train-1".
	Holders []string `json:"holders,omitempty"`
	Taints  []string `json:"taints,omitempty"`
	// Rules are the DeviceTaintRules behind the taints.
	Rules []string `json:"rules,omitempty"`
	// InMode are the GPUs that claims keep in another mode, Nearest the one of them with the
	// fewest claims.
	InMode  []InMode `json:"inMode,omitempty"`
	Nearest *Nearest `json:"nearest,omitempty"`
	// switchTo is the profile of the switch that has tainted the devices, if any.
	switchTo *string
	// sameMode is true if some GPUs are in the required mode, or have no modes.
	sameMode bool
}

// InMode counts the GPUs that claims keep in a mode without the requested device. An AMD GPU is in one
// mode at a time.
type InMode struct {
	Mode   string `json:"mode"`
	GPUs   int    `json:"gpus"`
	Claims int    `json:"claims"`
}

// Nearest is the GPU that the fewest claims keep in another mode.
type Nearest struct {
	GPU     string   `json:"gpu"`
	Holders []string `json:"holders"`
}

// Ask is a request of a claim.
type Ask struct {
	Claim   string `json:"claim,omitempty"`
	Request string `json:"request"`
	Class   string `json:"class,omitempty"`
	// Text is the request in words: "2 × gpu-mig-1g-10gb.tranche.dev".
	Text string `json:"text"`
}

// Remedy is something that users can do, with the command for it if there is one.
type Remedy struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}
