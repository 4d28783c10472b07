package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Verdict is whether a node can serve a pod or a request: Fits, or the reason why not.
type Verdict string

// The verdicts.
const (
	Fits          Verdict = "Fits"
	SelectorFails Verdict = names.EventSelectorFails // a selector cannot be evaluated
	Unclear       Verdict = "Unclear"                // the scheduler could not determine it
	Full          Verdict = "Full"                   // claims hold all such devices
	NotTogether   Verdict = "NotTogether"            // each request alone would fit
	Switching     Verdict = "Switching"              // a switch to another profile keeps pods away
	Tainted       Verdict = "Tainted"                // all such devices are tainted
	Unusable      Verdict = "Unusable"               // its GPUs are withheld or only partially published
	Excluded      Verdict = "Excluded"               // the pod cannot run there
	Never         Verdict = "Never"                  // not even if no device were held
	Lacking       Verdict = "Lacking"                // no such device, whether or not the pod can run there
)

// verdict is a Verdict with its texts.
type verdict struct {
	Verdict
	// event is the reason of the event on a waiting pod, or empty if it gets none.
	event string
	// message follows a number of nodes.
	message string
	// remedy is what users can do, with the command for it. NODE stands for the first such node.
	remedy, command string
}

// verdicts are all verdicts, ordered by how close a node is to serving the pod. The first one that a
// node has is the reason of the pod.
var verdicts = []verdict{
	{Fits, "", "with room now", "", ""},
	{SelectorFails, names.EventSelectorFails, "with a selector that fails",
		`correct the selector: an error in it ends every attempt to schedule the pod. Attributes that some devices lack are read with .?name.orValue("").`, ""},
	{Unclear, "", "undecided", "", ""},
	{Full, names.EventDevicesHeld, "full",
		"wait until holders end: this pod then gets its devices automatically.", ""},
	{NotTogether, names.EventDevicesNotTogether, "without room for everything at once",
		"ask for less at once, or drop the constraint, if the program does not need it; or wait until holders end.", ""},
	{Switching, names.EventNodesSwitching, "being switched to another profile",
		"wait until the switch of NODE ends. To see its progress:", "kubectl tranche switches NODE"},
	{Tainted, names.EventDevicesTainted, "tainted",
		"the events of NODE explain the taints of Tranche's plugin, which removes them when their reason is resolved:", "kubectl describe node NODE"},
	{Unusable, names.EventGPUsUnusable, "without usable GPUs",
		"the node's events explain why its GPUs cannot be used:", "kubectl describe node NODE"},
	{Excluded, names.EventNodesExcluded, "not open to this pod",
		"", ""},
	{Never, names.EventTooMuchForANode, "too small even if empty",
		"waiting does not help: ask for less in one pod, or drop the constraint between its requests, if the program does not need it.", ""},
	{Lacking, names.EventNoSuchDevice, "without such a device",
		"waiting does not help: ask for something that a node has, or add a node whose GPUs have it. What there is:", "kubectl tranche"},
}

// IsEvent reports whether a reason is that of an event on a pod that waits for devices.
func IsEvent(reason string) bool {
	return reason != "" && slices.ContainsFunc(verdicts, func(v verdict) bool { return v.event == reason })
}

// Counts is the number of nodes by verdict.
type Counts map[Verdict]int

// CountsOf counts nodes by verdict.
func CountsOf(nodes []Node) Counts {
	c := Counts{}
	for _, n := range nodes {
		c[n.Verdict]++
	}
	return c
}

// Event returns the reason of the event on a pod, or "" if devices are not, or not certainly, the
// reason. certain is true if only devices of this driver can serve the pod. Otherwise only verdicts
// about existing devices count.
func (c Counts) Event(certain bool) string {
	for _, v := range verdicts {
		if c[v.Verdict] == 0 {
			continue
		}
		if certain || slices.Contains([]Verdict{Full, NotTogether, Switching, Tainted}, v.Verdict) {
			return v.event
		}
		return ""
	}
	if certain {
		return names.EventNoSuchDevice
	}
	return ""
}

const maxNodes = 3

func (c Counts) text(named map[Verdict][]string) string {
	all := 0
	for _, n := range c {
		all += n
	}
	if all == 0 {
		return "no node publishes GPUs"
	}
	why := maps.Clone(c)
	delete(why, Fits)
	return fmt.Sprintf("%d of %d nodes fit: %s", c[Fits], all, strings.Join(why.parts(named), ", "))
}

// Parts returns how many nodes have each verdict: "2 full", "1 tainted".
func (c Counts) Parts() []string { return c.parts(nil) }

func (c Counts) parts(named map[Verdict][]string) (out []string) {
	for _, v := range verdicts {
		if c[v.Verdict] == 0 {
			continue
		}
		part := fmt.Sprintf("%d %s", c[v.Verdict], v.message)
		if named != nil {
			part += " (" + text.List(named[v.Verdict], maxNodes) + ")"
		}
		out = append(out, part)
	}
	return out
}

// Sorted returns nodes, the closest to serving the pod first.
func Sorted(nodes []Node) []Node {
	index := func(n Node) int {
		return slices.IndexFunc(verdicts, func(v verdict) bool { return v.Verdict == n.Verdict })
	}
	return slices.SortedStableFunc(slices.Values(nodes), func(a, b Node) int { return index(a) - index(b) })
}
