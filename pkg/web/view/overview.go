package view

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Totals are the numbers at the top of the page.
type Totals struct {
	Nodes, GPUs int
	// Full, Part and Empty count GPUs by how much of their memory is held.
	Full, Part, Empty int
	Memory, Held      int64
	// Switching and Failed count nodes, Problems GPUs.
	Switching, Failed, Problems int
	Waiting                     int
}

// Percent is how much of the memory is held.
func (t Totals) Percent() int { return percent(t.Held, t.Memory) }

func percent(part, of int64) int {
	if of <= 0 {
		return 0
	}
	return int(float64(part)/float64(of)*100 + 0.5)
}

// Group is the nodes with the same GPUs.
type Group struct {
	Model string
	Nodes []*Node
	GPUs  int
	// Memory is that of all GPUs in bytes, Held what claims hold of it.
	Memory, Held int64
	// Fits is how much more fits on all nodes, each kind counted alone.
	Fits []cluster.Fit
}

// Percent is how much of the memory is held.
func (g Group) Percent() int { return percent(g.Held, g.Memory) }

// TotalsOf sums up the nodes.
func TotalsOf(v Viewer, s *Snapshot) Totals {
	t := Totals{Nodes: len(s.Nodes), Waiting: len(s.Waiting)}
	for _, n := range s.Nodes {
		n = v.Outline(n)
		t.GPUs += len(n.Cells)
		t.Memory += n.Memory
		t.Held += n.Held
		if p := n.Profile; p != nil {
			if p.Switching() {
				t.Switching++
			}
			if p.State == v1alpha1.Failed {
				t.Failed++
			}
		}
		for _, c := range n.Cells {
			switch c.Level {
			case 0:
				t.Empty++
			case Levels:
				t.Full++
			default:
				t.Part++
			}
			if c.Mark == Problem {
				t.Problems++
			}
		}
	}
	return t
}

// GroupsOf are the nodes by the model of their GPUs, the largest group first.
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
		g.Memory += n.Memory
		g.Held += n.Held
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

// Moving are the nodes that are being switched, and those whose last switch failed.
func Moving(s *Snapshot) (switching, failed []*Node) {
	for _, n := range s.Nodes {
		switch {
		case n.Profile == nil:
		case n.Profile.Switching():
			switching = append(switching, n)
		case n.Profile.State == v1alpha1.Failed:
			failed = append(failed, n)
		}
	}
	return switching, failed
}
