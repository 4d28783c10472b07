package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Remedies returns what users can do: first how the fewest holders would make room, then the remedy of each
// verdict, then remedies that only some nodes allow.
func Remedies(nodes []Node) (out []Remedy) {
	add := func(text, command string) { out = append(out, Remedy{Text: text, Command: command}) }
	counts := CountsOf(nodes)
	freed := lists.Find(nodes, func(n *Node) bool { return n.way != nil })
	if freed != nil {
		add(freed.way.text(freed.Name), "")
	}
	for _, v := range verdicts {
		if v.Verdict == Full && freed != nil {
			continue
		}
		if v.Verdict == Excluded {
			out = append(out, opening(nodes)...)
		}
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Verdict == v.Verdict && n.helps(counts, nodes) })
		if i >= 0 && v.remedy != "" {
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
		add(fmt.Sprintf("or have %s, whose profile %s hides devices, follow one that offers it (kubectl tranche profiles lists them):", n.Name, n.Profile.Applied.ProfileName), "kubectl tranche set-profile "+n.Name+" PROFILE --wait")
	}
	return out
}

// FreeTexts returns what is free for people: "1g.10gb ×3".
func FreeTexts(free []cluster.Fit) (out []string) {
	return lists.Map(free, func(f cluster.Fit) string { return fmt.Sprintf("%s ×%d", f.Label, f.Count) })
}

// helps reports whether the remedy of its verdict helps for a node.
func (n Node) helps(counts Counts, nodes []Node) bool {
	switch n.Verdict {
	case Lacking:
		return counts[Lacking] == len(nodes)
	case Tainted: // taints of rules have their own remedy
		return slices.ContainsFunc(n.Requests, func(r Request) bool {
			return len(r.Taints) > 0 && !slices.ContainsFunc(r.Taints, func(t cluster.Taint) bool { return len(t.Rules) > 0 })
		})
	case Fits, SelectorFails, Unclear, Full, NotTogether, Switching, Unusable, Excluded, Never:
	}
	return true
}

// opening returns how the pod can use an excluded node: the one with the fewest causes of those with free
// devices, or of all of them if no other node has the devices.
func opening(nodes []Node) (out []Remedy) {
	excluded := lists.Filter(nodes, Node.freeButExcluded)
	if len(excluded) == 0 && !slices.ContainsFunc(nodes, func(n Node) bool { return n.Verdict != Excluded && n.Verdict != Lacking }) {
		excluded = lists.Filter(nodes, func(n Node) bool { return n.Verdict == Excluded && len(n.Requests) > 0 })
	}
	if len(excluded) == 0 {
		return nil
	}
	n := slices.MinFunc(excluded, func(a, b Node) int { return len(a.causes) - len(b.causes) })
	for _, c := range n.causes {
		if c.remedy.Text != "" {
			out = append(out, c.remedy)
		}
	}
	for _, r := range n.Requests {
		if r.Verdict != Fits {
			out = append(out, Remedy{Text: fmt.Sprintf("besides, on %s: %s", n.Name, r.Text)})
		}
	}
	return out
}

// freeButExcluded reports whether a node to which the pod has no access has free devices for it.
func (n Node) freeButExcluded() bool {
	return n.Verdict == Excluded && len(n.Requests) > 0 && !slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Verdict != Fits })
}
