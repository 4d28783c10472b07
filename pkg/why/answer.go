package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Answer is why a pod waits for its claims, as a word. The controller writes an event with it on the
// pod, and those who may not read all objects learn from that.
type Answer string

// The answers about a node and about all of them. None: the devices are not the reason.
const (
	None               Answer = ""
	ClaimNotCreated    Answer = v1alpha1.EventClaimNotCreated
	RequestInvalid     Answer = v1alpha1.EventRequestInvalid
	SelectorFails      Answer = v1alpha1.EventSelectorFails
	DevicesHeld        Answer = v1alpha1.EventDevicesHeld
	DevicesNotTogether Answer = v1alpha1.EventDevicesNotTogether
	NodesSwitching     Answer = v1alpha1.EventNodesSwitching
	DevicesTainted     Answer = v1alpha1.EventDevicesTainted
	GPUsUnusable       Answer = v1alpha1.EventGPUsUnusable
	NodesExcluded      Answer = v1alpha1.EventNodesExcluded
	TooMuchForANode    Answer = v1alpha1.EventTooMuchForANode
	NoSuchDevice       Answer = v1alpha1.EventNoSuchDevice
)

// answerWords are an answer in words, about one node and about several.
type answerWords struct {
	Answer
	one, many string
}

// perNode are the answers about nodes, the one first that says most about what the pod waits for.
var perNode = []answerWords{
	{SelectorFails, "fails on a selector", "fail on a selector"},
	{DevicesHeld, "has none free", "have none free"},
	{DevicesNotTogether, "cannot give everything at once", "cannot give everything at once"},
	{NodesSwitching, "is being switched to another profile", "are being switched to another profile"},
	{DevicesTainted, "has tainted ones only", "have tainted ones only"},
	{GPUsUnusable, "has no usable GPU", "have no usable GPU"},
	{NodesExcluded, "is not open to this pod", "are not open to this pod"},
	{TooMuchForANode, "could never give everything", "could never give everything"},
	{NoSuchDevice, "has no such device", "have no such device"},
}

// isAnswer tells whether the reason of an event is an answer.
func isAnswer(reason string) bool {
	return reason == string(ClaimNotCreated) || reason == string(RequestInvalid) ||
		slices.ContainsFunc(perNode, func(p answerWords) bool { return string(p.Answer) == reason })
}

// Answer is the verdict about a node as an answer.
func (n Node) Answer() Answer {
	if n.Verdict != Fits && n.switching {
		return NodesSwitching
	}
	return map[Verdict]Answer{
		Full: DevicesHeld, Together: DevicesNotTogether, Tainted: DevicesTainted, Unusable: GPUsUnusable,
		Excluded: NodesExcluded, Never: TooMuchForANode, Lacking: NoSuchDevice, Unclear: SelectorFails,
	}[n.Verdict]
}

// answer is the answer of an explanation.
func (e *Explanation) answer() Answer {
	switch {
	case e.Answer != None:
		return e.Answer
	case e.State == ClaimMissing:
		return ClaimNotCreated
	case e.State == Invalid:
		return RequestInvalid
	case e.State != NoRoom:
		return None
	}
	nodes := map[Answer]int{}
	for _, n := range e.Nodes {
		nodes[n.Answer()]++
	}
	return Common(nodes)
}

// OnNode is why a node does not serve the pod. The input needs only the objects that concern the node.
func OnNode(ctx context.Context, in Input, node string) Answer {
	c, d := newWorld(&in), in.demand()
	e := Explanation{}
	e.explainNodes(ctx, c, d, nil)
	for _, n := range e.Nodes {
		if n.Name == node {
			return n.Answer()
		}
	}
	return GPUsUnusable
}

// Common is the answer for a pod from those about all nodes, with how many nodes give each.
func Common(nodes map[Answer]int) Answer {
	if nodes[None] > 0 {
		return None
	}
	for _, p := range perNode {
		if nodes[p.Answer] > 0 {
			return p.Answer
		}
	}
	return NoSuchDevice
}

// Note is the text of an event. It names nothing of another namespace, and no node.
func Note(pod string, asks []Ask, nodes map[Answer]int) string {
	var wants, parts []string
	for _, a := range asks {
		wants = append(wants, a.Text)
	}
	all := 0
	for _, p := range perNode {
		n := nodes[p.Answer]
		all += n
		if n == 1 {
			parts = append(parts, "1 "+p.one)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, p.many))
		}
	}
	where := fmt.Sprintf("Of %d nodes with GPUs, %s.", all, strings.Join(parts, ", "))
	switch all {
	case 0:
		where = "No node publishes GPUs."
	case 1:
		where = "The only node with GPUs " + strings.TrimPrefix(strings.Join(parts, ""), "1 ") + "."
	}
	return fmt.Sprintf("Waits for %s. %s For details: kubectl tranche why %s", strings.Join(wants, "; "), where, pod)
}

// Wants describes what a pod asks for and what no node can change about it: a missing claim, or
// a DeviceClass that does not exist. It is None if the nodes decide.
func Wants(ctx context.Context, in Input) (a Answer, asks []Ask, problem string) {
	c, d := newWorld(&in), in.demand()
	if len(d.Missing) > 0 {
		return ClaimNotCreated, nil, strings.Join(d.Missing, " ")
	}
	if bad := c.invalid(d); len(bad) > 0 {
		return RequestInvalid, nil, strings.Join(bad, " ")
	}
	return None, c.asks(ctx, d), ""
}

// Ours tells whether the pod waits for claims, and whether it is certain that they are for devices of this
// driver: that no node has such a device means nothing otherwise.
func Ours(ctx context.Context, in Input) (waits, certain bool) {
	c, d := newWorld(&in), in.demand()
	certain = true
	for _, claim := range d.Unallocated {
		for _, r := range claim.Spec.Devices.Requests {
			certain = certain && !slices.ContainsFunc(demand.Choices(r), func(ch demand.Choice) bool { return !c.IsOurs(ctx, ch.Class) })
		}
	}
	return len(d.Unallocated)+len(d.Missing) > 0, certain
}

// told is the controller's latest answer about the pod.
func told(in *Input) *corev1.Event {
	var latest *corev1.Event
	for i := range in.Events {
		e := &in.Events[i]
		mine := e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == in.Pod.Name && e.InvolvedObject.UID == in.Pod.UID
		if component(*e) == v1alpha1.ControllerName && mine && isAnswer(e.Reason) && (latest == nil || last(*e).After(last(*latest))) {
			latest = e
		}
	}
	return latest
}
