package fit

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Outcome is a Verdict with its causes.
type Outcome struct {
	Verdict
	causes []*Cause
}

// Outcome returns the outcome of a node.
func (n Node) Outcome() Outcome {
	if n.Verdict != Excluded && n.Verdict != Lacking {
		return Outcome{Verdict: n.Verdict}
	}
	return Outcome{n.Verdict, n.causes}
}

// Equal reports whether two outcomes are the same.
func (o Outcome) Equal(other Outcome) bool { return reflect.DeepEqual(o, other) }

// Tally counts nodes by verdict, with the causes of the verdicts. It names no node, and nothing of another
// namespace.
type Tally struct {
	Counts
	causes map[Verdict][]counted
}

// counted is a cause with the number of nodes.
type counted struct {
	*Cause
	nodes int
}

// TallyOf counts nodes.
func TallyOf(nodes []Node) Tally {
	var t Tally
	for _, n := range nodes {
		t.Add(n.Outcome(), 1)
	}
	return t
}

// Add counts nodes with an outcome.
func (t *Tally) Add(o Outcome, nodes int) {
	if t.Counts == nil {
		*t = Tally{Counts{}, map[Verdict][]counted{}}
	}
	t.Counts[o.Verdict] += nodes
	all := t.causes[o.Verdict]
	for _, c := range o.causes {
		c := *c
		c.devices *= nodes
		if same := lists.Find(all, func(b *counted) bool { return b.about == c.about }); same != nil {
			*same = counted{same.merged(&c), same.nodes + nodes}
		} else {
			all = append(all, counted{&c, nodes})
		}
	}
	t.causes[o.Verdict] = all
}

// maxCauses is the maximum number of causes to name.
const maxCauses = 3

// String returns why no node serves the pod: what all nodes lack, or why those with the devices do not admit
// the pod. Otherwise it is how many nodes fit, and why the others do not: "0 of 3 nodes fit: 2 full, 1 tainted".
func (t Tally) String() string { return t.text(nil) }

// Summary returns the same as Tally.String, with the names of the nodes that it counts.
func Summary(nodes []Node) string {
	named := map[Verdict][]string{}
	for _, n := range nodes {
		named[n.Verdict] = append(named[n.Verdict], n.Name)
	}
	return TallyOf(nodes).text(named)
}

func (t Tally) text(named map[Verdict][]string) string {
	v := t.closest()
	if len(t.causes[v]) == 0 {
		return t.Counts.text(named)
	}
	causes := slices.Clone(t.causes[v])
	slices.SortFunc(causes, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.about, b.about))
	})
	var common, some []string
	for _, c := range causes {
		if c.nodes == t.Counts[v] {
			common = append(common, c.String())
		} else {
			some = append(some, fmt.Sprintf("on %d of %d nodes, %s", c.nodes, t.Counts[v], c))
		}
	}
	if len(common) == 0 {
		common = some
	}
	out := strings.Join(common[:min(len(common), maxCauses)], "; ")
	if v == Excluded {
		out = "the nodes with such devices do not admit the pod: " + out
	}
	return out
}

// closest returns the verdict of the nodes that are closest to serving the pod.
func (c Counts) closest() Verdict {
	for _, v := range verdicts {
		if c[v.Verdict] > 0 {
			return v.Verdict
		}
	}
	return Lacking
}

// The maximum lengths of parts of an event, so that the API server accepts it, in bytes.
const maxAsked, maxCause = 200, 500

// Note returns the text of an event on a waiting pod.
func Note(pod types.NamespacedName, asks []demand.Ask, t Tally) string {
	return fmt.Sprintf("Waits for %s: %s. %s", text.Cut(demand.Asked(asks), maxAsked), text.Cut(t.String(), maxCause), Details(pod))
}

// Details ends the text of an event with the command that says more.
func Details(pod types.NamespacedName) string {
	return fmt.Sprintf("For details: kubectl tranche why %s -n %s", pod.Name, pod.Namespace)
}
