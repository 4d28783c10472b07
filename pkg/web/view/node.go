package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
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
	// Problem: the GPU is out of service, or its plugin reports a problem.
	Problem Mark = "problem"
	// Switching: the switch of the node changes it.
	Switching Mark = "switching"
	// Blocked: a taint keeps new claims away, or the node takes no pods.
	Blocked Mark = "blocked"
	// Unknown: its free capacity is not known.
	Unknown Mark = "unknown"
	// Plain: nothing.
	Plain Mark = ""
)

// NewNode adds what the heat map shows.
func NewNode(n cluster.Node) *Node {
	out := &Node{Node: n, Model: model(n), Fits: cluster.Sum(n.GPUs)}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		full := Fullness(g)
		out.Memory += g.MemoryBytes
		out.Held += int64(full * float64(g.MemoryBytes))
		out.Cells = append(out.Cells, Cell{GPU: g.Name, Level: level(full), Mark: mark(&n, g), Open: len(g.Fits) > 0 && out.TakesPods()})
	}
	return out
}

// TakesPods tells whether the scheduler puts pods on the node.
func (n *Node) TakesPods() bool { return !n.NotReady && !n.Cordoned }

// model names the GPUs of a node.
func model(n cluster.Node) string {
	if len(n.GPUs) == 0 {
		return "no GPUs are published"
	}
	var products []string
	for _, p := range overview.ProductsOf(&n) {
		products = append(products, p.String())
	}
	return strings.Join(products, ", ")
}

// Fullness is how much of the memory of a GPU claims hold, from 0 to 1. A shared device counts
// with what its claims have of it, if that is known.
func Fullness(g *cluster.GPU) float64 {
	of := *g
	of.MemoryBytes = cmp.Or(of.MemoryBytes, 1<<40) // the fraction is the same for any
	return float64(overview.MemoryOf(&of).HeldBytes) / float64(of.MemoryBytes)
}

func level(full float64) int {
	if full <= 0 {
		return 0
	}
	return min(Levels, max(1, int(full*Levels+0.5)))
}

// mark is the most important thing to say about a GPU.
func mark(n *cluster.Node, g *cluster.GPU) Mark {
	p := n.Profile
	has := func(state cluster.State) bool {
		return slices.ContainsFunc(g.Bar, func(s cluster.Segment) bool { return s.State == state })
	}
	tainted := func(key string) bool {
		return slices.ContainsFunc(g.Taints, func(t cluster.Taint) bool { return t.Key == key })
	}
	switch {
	case g.Problem != "", tainted(names.DriverName + "/unhealthy"):
		return Problem
	case p != nil && p.Switching() && (g.Change != "" || p.KeepsOff(g.Name)), tainted(names.TaintRepartitioning):
		return Switching
	case g.Incomplete != "", has(cluster.Unknown):
		return Unknown
	case n.NotReady || n.Cordoned, has(cluster.Blocked) && !has(cluster.Free):
		return Blocked
	}
	return Plain
}

// States are the words by which the node is found: free, full, switching, problem, blocked,
// pending.
func (n *Node) States() []string {
	var out []string
	add := func(word string, when bool) {
		if when && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	open := slices.ContainsFunc(n.Cells, func(c Cell) bool { return c.Open })
	unknown := slices.ContainsFunc(n.Cells, func(c Cell) bool { return c.Mark == Unknown })
	add("free", open)
	add("full", !open && !unknown && len(n.Cells) > 0)
	for _, m := range []Mark{Problem, Switching, Blocked, Unknown} {
		add(string(m), slices.ContainsFunc(n.Cells, func(c Cell) bool { return c.Mark == m }))
	}
	if p := n.Profile; p != nil {
		add("switching", p.Switching())
		add("problem", p.State == v1alpha1.Failed || p.Conflict != "")
	}
	add("problem", n.NotReady || len(n.Lost) > 0)
	return out
}

// Says describes the node in a line, for those who do not see the cells.
func (n *Node) Says() string {
	full, part, empty := 0, 0, 0
	marks := map[Mark]int{}
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
	var facts []string
	add := func(count int, what string) {
		if count > 0 {
			facts = append(facts, fmt.Sprintf("%d %s", count, what))
		}
	}
	add(full, "full")
	add(part, "in part held")
	add(empty, "empty")
	add(marks[Problem], "with a problem")
	add(marks[Switching], "being switched")
	add(marks[Blocked], "blocked")
	add(marks[Unknown], "not known")
	text := fmt.Sprintf("%s: %s", n.Name, n.Model)
	if len(facts) > 0 {
		text += "; " + strings.Join(facts, ", ")
	}
	if n.State != "" {
		text += " (" + n.State + ")"
	}
	return text
}
