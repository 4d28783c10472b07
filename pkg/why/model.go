package why

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Input contains the API objects that an explanation is derived from.
type Input struct {
	cluster.Objects
	Pod *corev1.Pod
	// Templates are the claim templates of the pod's namespace, nil if they could not be
	// read.
	Templates []resourceapi.ResourceClaimTemplate
	// Namespace is the pod's namespace, or nil if it could not be read.
	Namespace *corev1.Namespace
	// Translated are the values of the namespace label tranche.dev/translate for which the chart has
	// admission policies, nil if they could not be read.
	Translated []string
	// Events are those of the pod's namespace, NodeEvents those about nodes.
	Events     []corev1.Event
	NodeEvents []corev1.Event
	// Storage has the objects behind the pod's volumes.
	Storage demand.Storage
	// Quotas are those of the pod's namespace.
	Quotas []corev1.ResourceQuota
	// Workloads are Kueue's Workloads in the pod's namespace.
	Workloads []Workload
}

func (in *Input) demand() *demand.Demand {
	return demand.Of(demand.Input{Pod: in.Pod, Claims: in.Claims, Templates: in.Templates, Classes: in.Classes, Storage: in.Storage})
}

// State is the machine-readable state of a pod or of its owner.
type State string

// The states of a pod, and of an owner.
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
	// NoRoom: it fits on no node at present.
	NoRoom State = "NoRoom"
	// RoomNow: its devices would fit now.
	RoomNow State = "RoomNow"
	// VolumeNotReady: it waits for a PersistentVolumeClaim.
	VolumeNotReady State = "VolumeNotReady"
	// Preempting: the scheduler makes room for it on a node.
	Preempting State = "Preempting"
	// OtherDriver: it asks only for devices of other drivers.
	OtherDriver State = "OtherDriver"
	// SchedulerSilent: the scheduler that it names has not reported anything.
	SchedulerSilent State = "SchedulerSilent"
	// Unknown: the reason cannot be determined, because objects could not be read.
	Unknown State = "Unknown"
	// Starting: it has its devices and a node, but does not run yet.
	Starting State = "Starting"
	// Terminating: it is being deleted.
	Terminating State = "Terminating"
	// Unscheduled and NotReady are states of pods in the explanation of their owner.
	Unscheduled State = "Unscheduled"
	NotReady    State = names.ReasonNotReady
	// Suspended: spec.suspend of an owner is true, and Kueue does not manage it.
	Suspended State = "Suspended"
	// NotAdmitted: Kueue has not admitted it, for the reason in Workload.
	NotAdmitted State = "NotAdmitted"
	// PodsRefused: the API server rejects its pods.
	PodsRefused State = "PodsRefused"
	// NoPods: it has no pods, for an unknown reason.
	NoPods State = "NoPods"
	// Idle: it wants no pods.
	Idle State = "Idle"
	// Waiting: some of its pods do not run.
	Waiting State = "Waiting"
	// Unused is the state of a ResourceClaim that no pod uses, Allocated of one that has its devices.
	Unused    State = "Unused"
	Allocated State = "Allocated"
)

// Explanation explains why a pod does not run. `-o json` prints its JSON form.
type Explanation struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"podName"`
	State     State  `json:"state"`
	// Answer is the reason of the controller's event if the pod waits for its claims. It is empty if
	// the pod waits for something else, or the reason could not be determined.
	Answer string `json:"reason,omitempty"`
	// Summary is the explanation in a sentence.
	Summary string `json:"message"`
	// Holds are the devices that the pod has.
	Holds []Holding `json:"devices,omitempty"`
	// Asks are the pod's unallocated requests.
	Asks []demand.Ask `json:"requests,omitempty"`
	// Nodes are those that publish GPUs.
	Nodes []fit.Node `json:"nodes,omitempty"`
	// MissingTemplate is a ResourceClaimTemplate that the pod waits for and that the controller creates.
	MissingTemplate *MissingTemplate `json:"missingTemplate,omitempty"`
	// Exceeded are the quotas that the pod's objects would exceed.
	Exceeded []QuotaUsed `json:"exceededQuotas,omitempty"`
	// Quotes are messages of Kubernetes components, unchanged.
	Quotes []Quote `json:"quotes,omitempty"`
	// Remedies are what users can do, the best first.
	Remedies []fit.Remedy `json:"remedies,omitempty"`
	// Unread is what the explanation depends on and could not be read.
	Unread []text.Unread `json:"unread,omitempty"`
}

func (e *Explanation) remedy(text, command string) {
	e.Remedies = append(e.Remedies, fit.Remedy{Text: text, Command: command})
}

// Holding is a device that a claim of the pod holds.
type Holding struct {
	Claim  string `json:"claimName"`
	Device string `json:"name"`
	cluster.DeviceKind
	// Pool has the name of the node.
	Pool string `json:"nodeName"`
	// Problems are why the pod cannot use the device.
	Problems []v1beta1.GPUProblem `json:"problems,omitempty"`
}

// Quote is an event or a condition.
type Quote struct {
	// Who says whose message it is, and about which object. Component is the reporting component.
	Who       string                 `json:"-"`
	Component string                 `json:"reportingComponent,omitempty"`
	Object    corev1.ObjectReference `json:"involvedObject"`
	Reason    string                 `json:"reason,omitempty"`
	// Time is the time at which it was last reported, if that is known. Age is how long ago that was.
	Time    *metav1.Time `json:"lastReportTime,omitempty"`
	Age     string       `json:"-"`
	Count   int32        `json:"count,omitempty"`
	Message string       `json:"message"`
}
