package overview

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Totals are the numbers at the top of the page.
type Totals struct {
	Nodes, GPUs int
	// Full, Part and Empty count GPUs by how much of their memory is held.
	Full, Part, Empty int
	Memory            Memory
	// Switching and Failed count nodes, Problems GPUs.
	Switching, Failed, Problems int
	Waiting                     int
}

// Group is the nodes with the same GPUs.
type Group struct {
	Model  string
	Nodes  []*Node
	GPUs   int
	Memory Memory
	// Fits is how much more fits on all nodes, each kind counted alone.
	Fits []cluster.Fit
}

// TotalsOf sums up the nodes.
func TotalsOf(v Viewer, s *Snapshot) Totals {
	t := Totals{Nodes: len(s.Nodes), Waiting: len(s.Waiting)}
	for _, n := range s.Nodes {
		n = v.Outline(n)
		t.GPUs += len(n.Cells)
		t.Memory.add(n.Memory)
		full, part, empty, marks := n.count()
		t.Full, t.Part, t.Empty, t.Problems = t.Full+full, t.Part+part, t.Empty+empty, t.Problems+marks[MarkProblem]
	}
	if !v.NoProfiles {
		switching, failed := Moving(s)
		t.Switching, t.Failed = len(switching), len(failed)
	}
	return t
}

// GroupsOf returns the nodes by the model of their GPUs, the largest group first.
func GroupsOf(s *Snapshot) []Group {
	at := map[string]int{}
	var out []Group
	fits := map[string][]cluster.GPU{}
	for _, n := range s.Nodes {
		i, ok := at[n.Model]
		if !ok {
			i = len(out)
			at[n.Model] = i
			out = append(out, Group{Model: n.Model})
		}
		g := &out[i]
		g.Nodes = append(g.Nodes, n)
		g.GPUs += len(n.Cells)
		g.Memory.add(n.Memory)
		if n.TakesPods() {
			fits[n.Model] = append(fits[n.Model], cluster.GPU{Fits: n.Fits})
		}
	}
	for i := range out {
		out[i].Fits = cluster.Plain(cluster.Sum(fits[out[i].Model]))
	}
	slices.SortStableFunc(out, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Model, b.Model))
	})
	return out
}

// Moving returns the nodes that are being switched, and those whose last switch failed.
func Moving(s *Snapshot) (switching, failed []*Node) {
	for _, n := range s.Nodes {
		switch {
		case n.Profile == nil:
		case n.Profile.Switching():
			switching = append(switching, n)
		case n.Profile.State == v1beta1.Failed:
			failed = append(failed, n)
		}
	}
	return switching, failed
}
