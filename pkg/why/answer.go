package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// Answer is why a pod waits for its claims, as a word. The controller writes an event with it on the
// pod, and those who may not read all objects learn from that.
type Answer string

// The answers about a node and about all of them. None: the devices are not the reason.
const (
	None               Answer = ""
	ClaimNotCreated    Answer = names.EventClaimNotCreated
	RequestInvalid     Answer = names.EventRequestInvalid
	SelectorFails      Answer = names.EventSelectorFails
	DevicesHeld        Answer = names.EventDevicesHeld
	DevicesNotTogether Answer = names.EventDevicesNotTogether
	NodesSwitching     Answer = names.EventNodesSwitching
	DevicesTainted     Answer = names.EventDevicesTainted
	GPUsUnusable       Answer = names.EventGPUsUnusable
	NodesExcluded      Answer = names.EventNodesExcluded
	TooMuchForANode    Answer = names.EventTooMuchForANode
	NoSuchDevice       Answer = names.EventNoSuchDevice
)

// DevicesFree is the reason of the event that ends an answer.
const DevicesFree Answer = names.EventDevicesFree

// unknown is for a node that could not be judged.
const unknown Answer = "Unknown"

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
	{GPUsUnusable, "has GPUs that cannot be used now", "have GPUs that cannot be used now"},
	{NodesExcluded, "is not open to this pod", "are not open to this pod"},
	{TooMuchForANode, "could never give everything", "could never give everything"},
	{NoSuchDevice, "has no such device", "have no such device"},
}

// isAnswer tells whether the reason of an event is an answer.
func isAnswer(reason string) bool {
	return reason == string(ClaimNotCreated) || reason == string(RequestInvalid) ||
		slices.ContainsFunc(perNode, func(p answerWords) bool { return string(p.Answer) == reason })
}

// Answers are the answers about nodes.
func Answers() []Answer {
	out := make([]Answer, len(perNode))
	for i := range perNode {
		out[i] = perNode[i].Answer
	}
	return out
}

// answer is the verdict about a node as an answer.
func (n Node) answer() Answer {
	if n.Verdict != Fits && n.switching && !n.barred {
		return NodesSwitching
	}
	switch n.Verdict {
	case Fits:
	case Full:
		return DevicesHeld
	case Together:
		return DevicesNotTogether
	case Tainted:
		return DevicesTainted
	case Unusable:
		return GPUsUnusable
	case Excluded:
		return NodesExcluded
	case Never:
		return TooMuchForANode
	case Lacking:
		return NoSuchDevice
	case Unclear:
		if slices.ContainsFunc(n.Requests, func(r Request) bool { return r.badSelector }) {
			return SelectorFails
		}
		return unknown
	}
	return None
}

// OfDevices tells whether an answer follows from devices that there are, and so is true whoever else
// could serve the request.
func (a Answer) OfDevices() bool {
	return a == DevicesHeld || a == DevicesNotTogether || a == DevicesTainted || a == NodesSwitching
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
		nodes[n.answer()]++
	}
	if a := Common(nodes); a.OfDevices() || !e.others {
		return a
	}
	return None
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

// Renewal is how often the controller writes an answer again that has not changed.
const Renewal = 45 * time.Minute

// stale is the age from which an event is no answer any more: the controller would have renewed it.
const stale = time.Hour

// told is the controller's latest answer about the pod, nil if it said since then that devices are free.
func told(in *Input) *corev1.Event {
	var latest *corev1.Event
	for i := range in.Events {
		e := &in.Events[i]
		mine := e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == in.Pod.Name && e.InvolvedObject.UID == in.Pod.UID
		said := isAnswer(e.Reason) || e.Reason == string(DevicesFree)
		if component(*e) == names.ControllerName && mine && said && (latest == nil || last(*e).After(last(*latest))) {
			latest = e
		}
	}
	if latest == nil || !isAnswer(latest.Reason) || !in.Now.IsZero() && in.Now.Sub(last(*latest)) > stale {
		return nil
	}
	return latest
}
