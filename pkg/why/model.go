package why

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Input is what the API server says. Whatever could not be read is left out, and
// said in Notes.
type Input struct {
	cluster.Objects
	Pod *corev1.Pod
	// Templates are the claim templates of the pod's namespace, nil if they could not be
	// read.
	Templates []resourceapi.ResourceClaimTemplate
	// Events of the pod's namespace, NodeEvents those about nodes.
	Events     []corev1.Event
	NodeEvents []corev1.Event
}

func (in *Input) demand() demand.Demand {
	return demand.Of(demand.Input{Pod: in.Pod, Claims: in.Claims, Templates: in.Templates, Classes: in.Classes})
}

// State is what became of the pod, for programs.
type State string

// The states of a pod.
const (
	// Running and Finished need no explanation.
	Running  State = "Running"
	Finished State = "Finished"
	// Absent: there is no such pod.
	Absent State = "Absent"
	// Gated: the scheduler is told not to look at it yet.
	Gated State = "Gated"
	// NoDevices: it asks for nothing that DRA hands out.
	NoDevices State = "NoDevices"
	// ClaimMissing: a claim that the pod names is not there.
	ClaimMissing State = "ClaimMissing"
	// Invalid: no node could ever satisfy the claim as it is written.
	Invalid State = "Invalid"
	// NoRoom: it fits on no node now.
	NoRoom State = "NoRoom"
	// RoomNow: devices would fit now.
	RoomNow State = "RoomNow"
	// Unknown: too little could be read to tell.
	Unknown State = "Unknown"
	// Starting: it has its devices and a node and does not run yet.
	Starting State = "Starting"
	// Terminating: it is being deleted.
	Terminating State = "Terminating"
)

// Explanation is the answer. Its JSON form is what `-o json` prints: fields may be
// added, and never change their meaning.
type Explanation struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	State     State  `json:"state"`
	// Summary is the answer in a sentence.
	Summary string `json:"summary"`
	// Holds is what the pod has.
	Holds []Holding `json:"holds,omitempty"`
	// Asks is what the pod wants and has not.
	Asks []Ask `json:"asks,omitempty"`
	// Nodes are those that publish GPUs.
	Nodes []Node `json:"nodes,omitempty"`
	// Quotes are what other parts of Kubernetes said, word for word.
	Quotes []Quote `json:"quotes,omitempty"`
	// Remedies is what a person can do, the best first.
	Remedies []Remedy `json:"remedies,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Remedy is something to do, with the command for it where there is one.
type Remedy struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}

func (e *Explanation) remedy(text, command string) {
	e.Remedies = append(e.Remedies, Remedy{Text: text, Command: command})
}

// Holding is a device that a claim of the pod holds.
type Holding struct {
	Claim  string `json:"claim"`
	Label  string `json:"label"`
	Device string `json:"device"`
	Pool   string `json:"pool"`
	// Health is what the driver says of it, empty when it says nothing or all
	// is well.
	Health string `json:"health,omitempty"`
}

// Ask is a request of a claim.
type Ask struct {
	Claim   string `json:"claim,omitempty"`
	Request string `json:"request"`
	Class   string `json:"class,omitempty"`
	// Text says the request in words: "2 × 1g.10gb".
	Text string `json:"text"`
	// first is the first choice.
	first want
}

// Verdict is whether a node can serve the pod.
type Verdict string

// The verdicts about a node, or about a request on a node.
const (
	Fits     Verdict = "Fits"
	Excluded Verdict = "Excluded" // the pod may not go there
	Lacking  Verdict = "Lacking"  // no such device
	Full     Verdict = "Full"
	Tainted  Verdict = "Tainted"
	Together Verdict = "Together" // each request alone would fit
	Never    Verdict = "Never"    // not even if nobody held anything
	Unusable Verdict = "Unusable" // its GPUs are withheld or published in part
	Unclear  Verdict = "Unclear"
)

// Node is what is said about a node.
type Node struct {
	Name    string  `json:"name"`
	GPUs    string  `json:"gpus"`
	Verdict Verdict `json:"verdict"`
	// Reasons are sentences about the node as a whole.
	Reasons  []string  `json:"reasons,omitempty"`
	Requests []Request `json:"requests,omitempty"`
	// Free is what the node's GPUs could still give.
	Free []string `json:"free,omitempty"`
	// Profile is how far the node is with its partition profile, nil where there is
	// no GPUNode.
	Profile *cluster.Progress `json:"profile,omitempty"`
	// switchTo is the profile of the switch that has tainted the node, nil if none has.
	switchTo *string
	// switching: the switch keeps the pod off. cordoned: so does the node's cordon.
	// withheld: the plugin publishes nothing of some of its GPUs.
	switching, cordoned, withheld bool
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
	// InMode are the GPUs that others keep in another mode, Nearest the one of
	// them that would be free first.
	InMode  []InMode `json:"inMode,omitempty"`
	Nearest *Nearest `json:"nearest,omitempty"`
	// switchTo is the profile of the switch that has tainted the devices, nil if none has.
	switchTo *string
	// badSelector: it cannot be judged because a selector cannot be evaluated.
	badSelector bool
	// sameMode: some GPUs are in the right mode, or have no modes.
	sameMode bool
}

// Quote is an event or a condition.
type Quote struct {
	Who    string `json:"who"`
	Reason string `json:"reason,omitempty"`
	// Age is how long ago it was said last, empty when that is not known.
	Age     string `json:"age,omitempty"`
	Count   int32  `json:"count,omitempty"`
	Message string `json:"message"`
}
