package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Levels is how many levels a cell of the heat map has, beside empty.
const Levels = 8

// Cell is a GPU in the heat map.
type Cell struct {
	GPU string
	// Level says how much of its memory is held, from 0 to Levels.
	Level int
	// Mark is what else there is to say.
	Mark Mark
	// Open: something still fits.
	Open bool
}

// Mark is the state of a GPU, beside how full it is.
type Mark string

// The marks, the most important first.
const (
	// MarkProblem: the GPU is out of service, or its plugin reports a problem.
	MarkProblem Mark = "problem"
	// MarkSwitching: the switch of the node changes it.
	MarkSwitching Mark = "switching"
	// MarkBlocked: a taint keeps new claims away, or the node takes no pods.
	MarkBlocked Mark = "blocked"
	// MarkUnknown: its free capacity is not known.
	MarkUnknown Mark = "unknown"
	// MarkPlain: nothing.
	MarkPlain Mark = ""
)

// NewNode adds what the heat map shows.
func NewNode(n cluster.Node) *Node {
	out := &Node{Node: n, Model: ModelOf(&n), Fits: cluster.Sum(n.GPUs)}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		out.Memory.add(MemoryOf(g))
		open := n.TakesPods() && (len(g.Fits) > 0 || slices.ContainsFunc(g.Shares, hasRoom))
		out.Cells = append(out.Cells, Cell{GPU: g.Name, Level: levelOf(g), Mark: mark(&n, g), Open: open})
	}
	return out
}

// hasRoom reports whether a share that names no amount fits.
func hasRoom(s cluster.Shares) bool { return s.Room(gpu.Amount{}) > 0 }

// levelOf says how full a GPU is. A shared device counts with what its claims have of it, if that is
// known.
func levelOf(g *cluster.GPU) int {
	of := *g
	of.MemoryBytes = cmp.Or(of.MemoryBytes, 1<<40) // the fraction is the same for any
	held := float64(MemoryOf(&of).HeldBytes) / float64(of.MemoryBytes)
	if held <= 0 {
		return 0
	}
	return min(Levels, max(1, int(held*Levels+0.5)))
}

// mark returns the most important thing to say about a GPU.
func mark(n *cluster.Node, g *cluster.GPU) Mark {
	p := n.Profile
	has := func(state cluster.State) bool {
		return slices.ContainsFunc(g.Bar, func(s cluster.Segment) bool { return s.Positions(state) > 0 })
	}
	tainted := func(key string) bool {
		return slices.ContainsFunc(g.Taints, func(t cluster.Taint) bool { return t.Key == key })
	}
	switch {
	case g.Problem != "", tainted(names.TaintUnhealthy):
		return MarkProblem
	case p != nil && p.Switching() && (g.Change != "" || p.KeepsOff(g.Name)), tainted(names.TaintSwitching):
		return MarkSwitching
	case g.MissingSlices > 0, has(cluster.Unknown):
		return MarkUnknown
	case !n.TakesPods(), has(cluster.Blocked) && !has(cluster.Free):
		return MarkBlocked
	}
	return MarkPlain
}

// States returns the words by which the node is found: free, full, switching, problem, blocked,
// pending.
func (n *Node) States() []string {
	var out []string
	add := func(word string, when bool) {
		if when && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	open := slices.ContainsFunc(n.Cells, func(c Cell) bool { return c.Open })
	unknown := slices.ContainsFunc(n.Cells, func(c Cell) bool { return c.Mark == MarkUnknown })
	add("free", open)
	add("full", !open && !unknown && len(n.Cells) > 0)
	for _, m := range []Mark{MarkProblem, MarkSwitching, MarkBlocked, MarkUnknown} {
		add(string(m), slices.ContainsFunc(n.Cells, func(c Cell) bool { return c.Mark == m }))
	}
	if p := n.Profile; p != nil {
		add("switching", p.Switching())
		add("problem", p.State == v1beta1.Failed || p.Conflict != "")
	}
	add("problem", n.NotReady() || len(n.Lost) > 0)
	return out
}

// Says describes the node in a line, for those who do not see the cells.
func (n *Node) Says() string {
	full, part, empty, marks := n.count()
	var facts []string
	add := func(count int, what string) {
		if count > 0 {
			facts = append(facts, fmt.Sprintf("%d %s", count, what))
		}
	}
	add(full, "full")
	add(part, "in part held")
	add(empty, "empty")
	add(marks[MarkProblem], "with a problem")
	add(marks[MarkSwitching], "being switched")
	add(marks[MarkBlocked], "blocked")
	add(marks[MarkUnknown], "not known")
	text := n.Name + ": " + n.Model
	if len(facts) > 0 {
		text += "; " + strings.Join(facts, ", ")
	}
	if state := n.State(); state != "" {
		text += " (" + state + ")"
	}
	return text
}

// count counts the GPUs by how full they are, and by their marks.
func (n *Node) count() (full, part, empty int, marks map[Mark]int) {
	marks = map[Mark]int{}
	for _, c := range n.Cells {
		switch c.Level {
		case 0:
			empty++
		case Levels:
			full++
		default:
			part++
		}
		marks[c.Mark]++
	}
	return full, part, empty, marks
}
