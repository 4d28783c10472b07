package why

import (
	"fmt"
	"slices"
	"strings"
)

// judge sums up what was found about the nodes, and says what can be done.
func (e *Explanation) judge(c *cluster, w wishes) {
	who := e.Namespace + "/" + e.Pod
	with := func(verdicts ...Verdict) []Node {
		return slices.DeleteFunc(slices.Clone(e.Nodes), func(n Node) bool { return !slices.Contains(verdicts, n.Verdict) })
	}
	fit := with(Fits)
	switch {
	case c.in.Classes == nil:
		e.State = Unknown
		e.Summary = who + " has no node yet. Without the DeviceClasses it cannot be told why."
	case c.in.Slices == nil || (len(e.Nodes) == 0 && len(c.slices) > 0):
		e.State = Unknown
		e.Summary = who + " has no node yet. No card of Tranche's is to be seen, so it cannot be told why."
	case len(e.Nodes) == 0:
		e.State = NoRoom
		e.Summary = who + " waits for a card, and no node publishes any."
		e.Remedies = append(e.Remedies, "see whether the plugin runs on the nodes with cards: kubectl -n tranche-system get daemonset tranche-kubelet-plugin")
	case c.in.Partial:
		e.State = Unknown
		e.Summary = who + " has no node yet. Not all claims may be seen, so what looks free may be held."
		if len(fit) == 0 {
			e.State, e.Summary = NoRoom, who+" waits for a device: "+e.reason()
		}
	case len(w.open) == 0:
		e.State = NoRoom
		e.Summary = who + " has its devices and no node yet: it must go where they are."
	case len(fit) > 0:
		e.roomNow(who, fit)
	default:
		e.State = NoRoom
		if len(with(Unclear)) > 0 {
			e.State = Unknown
		}
		e.Summary = who + " waits for a device: " + e.reason()
	}
	if e.State == NoRoom || e.State == Unknown {
		e.remedies(with)
	}
}

// roomNow: the devices would fit, so it is time or something else.
func (e *Explanation) roomNow(who string, fit []Node) {
	e.State = RoomNow
	e.Summary = fmt.Sprintf("%s would get its devices on %s now; the scheduler has not tried again yet.", who, nodeNames(fit))
	for _, q := range e.Quotes {
		if q.Who == scheduler && strings.Contains(q.Message, "Insufficient") {
			e.Summary = fmt.Sprintf("%s would get its devices on %s now. When the scheduler last tried, something else was short; see what it said.", who, nodeNames(fit))
			e.Remedies = append(e.Remedies, "ask for less CPU, memory or whatever the scheduler calls insufficient, or make room for it.")
			return
		}
	}
	e.Remedies = append(e.Remedies, "wait: the scheduler tries again when something changes, and every five minutes at the latest. "+
		"If it goes on, its message tells what else is in the way.")
}

// reason is the common reason of all nodes, or the different ones.
func (e *Explanation) reason() string {
	what := e.wanted()
	words := map[Verdict]string{
		Lacking:  "has no " + what,
		Full:     "has no " + what + " free",
		Tainted:  "has " + what + " on tainted cards only",
		Excluded: "is not open to this pod",
		Together: "cannot give everything at once",
		Unusable: "has no usable card",
		Unclear:  "cannot be judged",
		Fits:     "may have room",
	}
	var parts []string
	for _, v := range []Verdict{Fits, Full, Together, Tainted, Unusable, Excluded, Lacking, Unclear} {
		of := slices.DeleteFunc(slices.Clone(e.Nodes), func(n Node) bool { return n.Verdict != v })
		switch {
		case len(of) == 0:
		case len(of) == len(e.Nodes) && len(of) > 1:
			return "no node " + strings.TrimPrefix(strings.Replace(words[v], "has no ", "has a ", 1), "is not ") + "."
		default:
			parts = append(parts, nodeNames(of)+" "+words[v])
		}
	}
	return strings.Join(parts, "; ") + "."
}

// wanted names the request that fails first on some node.
func (e *Explanation) wanted() string {
	for _, n := range e.Nodes {
		for i, r := range n.Requests {
			if r.Verdict != Fits && i < len(e.Asks) {
				what, _, _ := strings.Cut(e.Asks[i].Text, " (class ")
				what, _, _ = strings.Cut(what, ", or else ")
				return strings.TrimPrefix(what, "1 × ")
			}
		}
	}
	return "such device"
}

func nodeNames(nodes []Node) string {
	const most = 3
	var names []string
	for _, n := range nodes[:min(len(nodes), most)] {
		names = append(names, n.Name)
	}
	if more := len(nodes) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// remedies says what a person can do, the least effort first.
func (e *Explanation) remedies(with func(...Verdict) []Node) {
	add := func(format string, args ...any) { e.Remedies = append(e.Remedies, fmt.Sprintf(format, args...)) }
	if full := with(Full, Together); len(full) > 0 {
		add("wait until one of the holders ends, or delete one of them: the device goes to this pod by itself.")
		if i := slices.IndexFunc(full, func(n Node) bool { return len(n.Free) > 0 }); i >= 0 {
			add("or ask for what is free now: %s on %s.", strings.Join(full[i].Free[:min(len(full[i].Free), maxNames)], " or "), full[i].Name)
		}
	}
	if together := with(Together); len(together) > 0 {
		add("or ask for less at once, or drop the constraint, if the program can do without it.")
	}
	var rules []string
	tainted := false
	for _, n := range e.Nodes {
		for _, r := range n.Requests {
			rules = union(rules, r.Rules...)
			tainted = tainted || (len(r.Taints) > 0 && len(r.Rules) == 0 && r.Verdict != Fits)
		}
	}
	for _, rule := range rules {
		add("when the reason for it is over, remove the taint: kubectl delete devicetaintrule %s", rule)
	}
	if tainted {
		add("the driver set the taint; what for is in the node's events: kubectl describe node %s. The taint goes when the reason does.", with(Tainted, Full, Together, Excluded, Unusable)[0].Name)
	}
	if unusable := with(Unusable); len(unusable) > 0 {
		add("the node's events say why its cards are withheld: kubectl describe node %s", unusable[0].Name)
	}
	if lacking := with(Lacking); len(lacking) == len(e.Nodes) && len(lacking) > 0 {
		add("ask for something that a node has, or add a node whose cards have it. What there is: kubectl tranche")
	}
	if excluded := with(Excluded); len(excluded) > 0 {
		i := slices.IndexFunc(excluded, func(n Node) bool {
			return len(n.Requests) > 0 && !slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Verdict != Fits })
		})
		if i >= 0 {
			add("%s has the devices: let the pod go there (its nodeSelector, affinity and tolerations), or uncordon the node.", excluded[i].Name)
		}
	}
}

// missingRemedy is for a pod whose claim is not there.
func missingRemedy(quotes []Quote) string {
	for _, q := range quotes {
		if strings.Contains(q.Message, "exceeded quota") {
			return "a ResourceQuota refuses the claim: free something in the namespace, or have the quota raised. See kubectl describe quota"
		}
	}
	return "create what is missing; the pod goes on by itself then."
}
