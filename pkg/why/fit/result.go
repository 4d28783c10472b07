package fit

import "github.com/tranche-dev/tranche/pkg/cluster"

// Node is a node with its verdict. The JSON form of this and of its parts is what `kubectl tranche why -o
// json` prints: fields may be added, and never change their meaning.
type Node struct {
	Name    string  `json:"name"`
	GPUs    string  `json:"gpus"`
	Verdict Verdict `json:"verdict"`
	// Reasons are sentences about the node as a whole.
	Reasons  []string  `json:"reasons,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	// Free is what the node's GPUs could still give.
	Free []string `json:"free,omitempty"`
	// Profile is the node's progress with its PartitionProfile, nil without a GPUNode.
	Profile *cluster.Progress `json:"profile,omitempty"`
	// switchTo is the profile of the switch that has tainted the node, nil if none has.
	switchTo *string
	// cordoned: the node is cordoned. excluded: the pod may not go there, even without a switch.
	cordoned, excluded bool
}

// Request is what a node has for one request.
type Request struct {
	Claim   string  `json:"claim,omitempty"`
	Request string  `json:"request"`
	Verdict Verdict `json:"verdict"`
	// Places is how many devices would do, of which so many are free, taken (by
	// themselves or by what overlaps them) and tainted.
	Places  int `json:"places"`
	Free    int `json:"free"`
	Taken   int `json:"taken"`
	Tainted int `json:"tainted"`
	// Text says it in words.
	Text string `json:"text"`
	// Holders are those who have what is taken: "team-a: train-0, train-1".
	Holders []string `json:"holders,omitempty"`
	Taints  []string `json:"taints,omitempty"`
	// Rules are the DeviceTaintRules behind the taints.
	Rules []string `json:"rules,omitempty"`
	// InMode are the GPUs that claims keep in another mode, Nearest the one of them with the
	// fewest claims.
	InMode  []InMode `json:"inMode,omitempty"`
	Nearest *Nearest `json:"nearest,omitempty"`
	// switchTo is the profile of the switch that has tainted the devices, nil if none has.
	switchTo *string
	// sameMode: some GPUs are in the right mode, or have no modes.
	sameMode bool
}

// InMode are GPUs that have the requested device, but not in the mode in which claims keep them: an
// AMD GPU is in one mode at a time.
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
	// Text says the request in words: "2 × gpu-mig-1g-10gb.tranche.dev".
	Text string `json:"text"`
}

// Remedy is something to do, with the command for it where there is one.
type Remedy struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}
