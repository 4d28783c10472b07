package why

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/kueue"
	"github.com/tranche-dev/tranche/pkg/why/quota"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// Input has the objects of the API server. What could not be read is missing, and Notes say so.
type Input struct {
	cluster.Objects
	Pod *corev1.Pod
	// Templates are the claim templates of the pod's namespace, nil if they could not be
	// read.
	Templates []resourceapi.ResourceClaimTemplate
	// Namespace is the pod's, nil if it could not be read.
	Namespace *corev1.Namespace
	// Translated are the values of the namespace label tranche.dev/translate for which the chart has
	// admission policies, nil if they could not be read.
	Translated []string
	// Events of the pod's namespace, NodeEvents those about nodes.
	Events     []corev1.Event
	NodeEvents []corev1.Event
	// Storage has the objects behind the pod's volumes.
	Storage demand.Storage
	// Quotas are those of the pod's namespace.
	Quotas []corev1.ResourceQuota
	// Workloads are Kueue's in the pod's namespace.
	Workloads []kueue.Workload
	// Unread are the kinds that could not be read.
	Unread []unread.Kind
}

func (in *Input) demand() demand.Demand {
	return demand.Of(demand.Input{Pod: in.Pod, Claims: in.Claims, Templates: in.Templates, Classes: in.Classes})
}

// State is the state of the pod, for programs.
type State string

// The states of a pod.
const (
	// Running and Finished need no explanation.
	Running  State = "Running"
	Finished State = "Finished"
	// Absent: there is no such pod.
	Absent State = "Absent"
	// Gated: it has scheduling gates.
	Gated State = "Gated"
	// NoDevices: it requests no devices.
	NoDevices State = "NoDevices"
	// ClaimMissing: a claim of the pod does not exist.
	ClaimMissing State = "ClaimMissing"
	// Invalid: no node can ever satisfy the claim.
	Invalid State = "Invalid"
	// NoRoom: it fits on no node now.
	NoRoom State = "NoRoom"
	// RoomNow: its devices would fit now.
	RoomNow State = "RoomNow"
	// VolumeNotReady: it waits for a PersistentVolumeClaim.
	VolumeNotReady State = "VolumeNotReady"
	// Preempting: the scheduler makes room for it on a node.
	Preempting State = "Preempting"
	// OtherDriver: it asks only for devices of other drivers.
	OtherDriver State = "OtherDriver"
	// SchedulerSilent: the scheduler that it names has not said anything.
	SchedulerSilent State = "SchedulerSilent"
	// Unknown: the reason cannot be determined, because objects could not be read.
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
	// Answer is why it waits for its claims, as the events of the controller say it; empty if it
	// waits for something else, or for a reason that could not be determined.
	Answer Answer `json:"answer,omitempty"`
	// Summary is the answer in a sentence.
	Summary string `json:"summary"`
	// Holds are the devices that the pod has.
	Holds []Holding `json:"holds,omitempty"`
	// Asks are the requests of the pod that are not allocated.
	Asks []Ask `json:"asks,omitempty"`
	// Nodes are those that publish GPUs.
	Nodes []Node `json:"nodes,omitempty"`
	// MissingTemplate is a ResourceClaimTemplate that the pod waits for and the controller would create.
	MissingTemplate *MissingTemplate `json:"missingTemplate,omitempty"`
	// Exceeded are limits of quotas that have no room.
	Exceeded []quota.Used `json:"exceeded,omitempty"`
	// Quotes are messages of Kubernetes components, unchanged.
	Quotes []Quote `json:"quotes,omitempty"`
	// Remedies are what a person can do, the best first.
	Remedies []Remedy `json:"remedies,omitempty"`
	// Unread are the kinds of objects that could not be read and that the answer depends on.
	// Notes say the same in sentences.
	Unread []unread.Kind `json:"unread,omitempty"`
	Notes  []string      `json:"notes,omitempty"`
	// others: other drivers may serve all that it asks for.
	others bool
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
	// Health is the problem that the driver reports, empty if it reports none.
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

// Node explains a node.
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
	// switching: a switch keeps the pod off. cordoned: the node is cordoned. withheld: the
	// plugin does not publish some of its GPUs. barred: it would be Excluded without a switch, too.
	switching, cordoned, withheld, barred bool
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
