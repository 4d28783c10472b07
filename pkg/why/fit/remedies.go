package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Remedies returns what users can do: first the remedy of each verdict, then remedies that only some
// nodes allow.
func Remedies(nodes []Node) (out []Remedy) {
	add := func(text, command string) { out = append(out, Remedy{Text: text, Command: command}) }
	counts := CountsOf(nodes)
	for _, v := range verdicts {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Verdict == v.Verdict && n.helps(counts, nodes) })
		switch {
		case i < 0 || v.remedy == "":
		case v.Verdict == Excluded && nodes[i].cordoned:
			add(nodes[i].Name+" has the devices; when it no longer needs to be cordoned:", "kubectl uncordon "+nodes[i].Name)
		case v.Verdict == Excluded && nodes[i].unlisted:
			add("let the plugin of "+nodes[i].Name+" write GPU memory and compute: it is of an older release, or gpuResources.enabled is false.", "")
		case v.Verdict == Excluded && nodes[i].crowded:
			add("delete the pods on "+nodes[i].Name+" that request more than they hold, and create them again. How much all request:", "kubectl tranche node "+nodes[i].Name)
		default:
			add(strings.ReplaceAll(v.remedy, "NODE", nodes[i].Name), strings.ReplaceAll(v.command, "NODE", nodes[i].Name))
		}
	}
	first := func(f func(Node) bool) (Node, bool) {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Verdict != Fits && f(n) })
		return nodes[max(i, 0)], i >= 0
	}
	if len(nodes) == 0 {
		return out
	}
	if n, ok := first(func(n Node) bool { return n.nearest() != nil }); ok {
		near := n.nearest()
		add(fmt.Sprintf("free a GPU in another mode: %s on %s has the fewest holders (%s). The GPU is then switched for this pod automatically.",
			near.GPU, n.Name, strings.Join(NamesOf(near.Holders), "; ")), "")
	}
	if n, ok := first(func(n Node) bool { return (n.Verdict == Full || n.Verdict == NotTogether) && len(n.Free) > 0 }); ok {
		add(fmt.Sprintf("or ask for what is free now: %s on %s.", strings.Join(FreeTexts(n.Free[:min(len(n.Free), maxNames)]), " or "), n.Name), "")
	}
	var rules []string
	for _, n := range nodes {
		for _, r := range n.Requests {
			for _, t := range r.Taints {
				rules = lists.Union(rules, t.Rules...)
			}
		}
	}
	for _, rule := range rules {
		add("when the reason for the taint is resolved, remove it:", "kubectl delete devicetaintrule "+rule)
	}
	if n, ok := first(func(n Node) bool { return n.Profile != nil && n.Profile.State == v1beta1.Failed }); ok {
		add(fmt.Sprintf("to see why %s could not be switched:", n.Name), "kubectl tranche switches "+n.Name)
	}
	if n, ok := first(func(n Node) bool {
		return n.Verdict == Lacking && !n.excluded && n.Profile != nil && n.Profile.Restricts() && !n.Profile.Switching()
	}); ok {
		add(fmt.Sprintf("or have %s follow a profile that offers it (kubectl tranche profiles lists them):", n.Name), "kubectl tranche set-profile "+n.Name+" PROFILE --wait")
	}
	return out
}

// FreeTexts returns what is free for people: "1g.10gb ×3".
func FreeTexts(free []cluster.Fit) (out []string) {
	return lists.Map(free, func(f cluster.Fit) string { return fmt.Sprintf("%s ×%d", f.Label, f.Count) })
}

// helps reports whether the remedy of its verdict helps for a node.
func (n Node) helps(counts Counts, nodes []Node) bool {
	short := func(r Request) bool { return r.Verdict != Fits }
	switch n.Verdict {
	case Excluded: // the node has the devices. If they are held, it helps only if no other remedy does
		last := counts[Excluded]+counts[Lacking] == len(nodes) && !slices.ContainsFunc(nodes, Node.freeButExcluded)
		lacks := slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Verdict == Lacking })
		return n.freeButExcluded() || last && len(n.Requests) > 0 && !lacks
	case Lacking:
		return counts[Lacking] == len(nodes)
	case Full: // one holder is enough, unless all GPUs are in another mode
		return slices.ContainsFunc(n.Requests, func(r Request) bool { return short(r) && (r.Nearest == nil || r.sameMode) })
	case Tainted: // taints of rules have their own remedy
		return slices.ContainsFunc(n.Requests, func(r Request) bool {
			return len(r.Taints) > 0 && !slices.ContainsFunc(r.Taints, func(t cluster.Taint) bool { return len(t.Rules) > 0 })
		})
	case Fits, SelectorFails, Unclear, NotTogether, Switching, Unusable, Never:
	}
	return true
}

// freeButExcluded reports whether a node to which the pod has no access has free devices for it.
func (n Node) freeButExcluded() bool {
	return n.Verdict == Excluded && len(n.Requests) > 0 && !slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Verdict != Fits })
}

// nearest returns the GPU in another mode with the fewest holders, or nil if freeing it would not help.
func (n Node) nearest() *Nearest {
	if n.excluded || n.Verdict == Never {
		return nil
	}
	for _, r := range n.Requests {
		if r.Verdict != Fits && r.Nearest != nil {
			return r.Nearest
		}
	}
	return nil
}
