package defrag

import "fmt"

// Reason is why there is no plan, for programs.
type Reason string

// The reasons. A later one means that the search came closer to a plan.
const (
	// NotWaiting: the pod has a node, has scheduling gates, or is being deleted.
	NotWaiting Reason = "NotWaiting"
	// NoDevices: it requests no devices of Tranche.
	NoDevices Reason = "NoDevices"
	// ClaimMissing: a claim, its template or its class does not exist.
	ClaimMissing Reason = "ClaimMissing"
	// Unsupported: whether it fits depends on something that is not computed.
	Unsupported Reason = "Unsupported"
	// Impossible: no move can make room, not even on empty nodes.
	Impossible Reason = "Impossible"
	// FitsNow: it fits on a node without moving any pod.
	FitsNow Reason = "FitsNow"
	// NoNode: no node that admits the pod has such devices.
	NoNode Reason = "NoNode"
	// NoResources: no node has enough CPU or memory, even without the pods that may be moved.
	NoResources Reason = "NoResources"
	// NotMovable: pods that would have to move may not be moved.
	NotMovable Reason = "NotMovable"
	// TooMany: more pods would have to move than a plan may move.
	TooMany Reason = "TooMany"
	// Disruptions: a PodDisruptionBudget does not allow the evictions.
	Disruptions Reason = "Disruptions"
	// NotKept: the devices could not be kept free until the pod is scheduled.
	NotKept Reason = "NotKept"
	// NoPlace: a pod that would have to move fits nowhere else.
	NoPlace Reason = "NoPlace"
	// OutOfTime: the search took too long.
	OutOfTime Reason = "OutOfTime"
)

// reasons are all reasons, in this order.
var reasons = []Reason{
	NotWaiting, NoDevices, ClaimMissing, Unsupported, Impossible, FitsNow, NoNode, NoResources, NotMovable, TooMany, Disruptions, NotKept, NoPlace, OutOfTime,
}

// Refusal says why there is no plan for a pod.
type Refusal struct { //nolint:errname // an answer, which is returned as an error
	Reason Reason `json:"reason"`
	// Message explains the reason to people.
	Message string `json:"message"`
}

func (r *Refusal) String() string { return r.Message }

func (r *Refusal) Error() string { return r.Message }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
