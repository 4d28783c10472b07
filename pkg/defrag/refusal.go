package defrag

import "fmt"

// Reason is why there is no plan, for programs.
type Reason string

// The reasons, from those about the waiting pod to those that come closest to a plan.
const (
	// NotWaiting: the pod has a node, is gated, or is being deleted.
	NotWaiting Reason = "NotWaiting"
	// NoDevices: it requests no devices of Tranche.
	NoDevices Reason = "NoDevices"
	// ClaimMissing: a claim, its template or its class does not exist.
	ClaimMissing Reason = "ClaimMissing"
	// Unsupported: something else decides where it can run that is not considered here.
	Unsupported Reason = "Unsupported"
	// FitsNow: a node has room for it.
	FitsNow Reason = "FitsNow"
	// NoNode: no node is open to the pod and has such devices.
	NoNode Reason = "NoNode"
	// NoResources: no node has the CPU or the memory, even without the pods that may move.
	NoResources Reason = "NoResources"
	// NotMovable: pods in its way may not be moved.
	NotMovable Reason = "NotMovable"
	// TooMany: more pods would have to move than a plan may move.
	TooMany Reason = "TooMany"
	// Disruptions: a PodDisruptionBudget does not allow the evictions.
	Disruptions Reason = "Disruptions"
	// NotKept: the room could not be kept for the pod until it is scheduled.
	NotKept Reason = "NotKept"
	// NoPlace: a pod that would have to move fits nowhere else.
	NoPlace Reason = "NoPlace"
	// OutOfTime: the search took too long.
	OutOfTime Reason = "OutOfTime"
)

// reasons are all of them, in this order.
var reasons = []Reason{
	NotWaiting, NoDevices, ClaimMissing, Unsupported, FitsNow, NoNode, NoResources, NotMovable, TooMany, Disruptions, NotKept, NoPlace, OutOfTime,
}

// Refusal says why there is no plan for a pod.
type Refusal struct { //nolint:errname // an answer, which is returned as an error
	Reason Reason `json:"reason"`
	// Words says it in a sentence.
	Words string `json:"words"`
}

func (r *Refusal) String() string { return r.Words }

func (r *Refusal) Error() string { return r.Words }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Words: fmt.Sprintf(format, args...)}
}
