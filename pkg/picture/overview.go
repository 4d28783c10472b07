package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
)

// stateWords are the states of nodes in a sentence.
var stateWords = map[overview.State]string{
	overview.Ready: "ready", overview.Pending: "waiting for their turn", overview.Cordoned: "cordoned", overview.Switching: "being switched",
	overview.UnexplainedTaint: "tainted", overview.ProfileNotApplied: "without their profile", overview.Overdue: "overdue", overview.SwitchFailed: "failed",
	overview.Incomplete: "published in part", overview.Unhealthy: "unhealthy", overview.NotReady: "not ready", overview.Gone: "gone",
}

// reasonsSayAll has the states that their reasons name.
var reasonsSayAll = map[overview.State]bool{overview.ProfileNotApplied: true, overview.Overdue: true, overview.SwitchFailed: true, overview.Gone: true}

// memoryParts are the parts of a bar of memory, from left to right.
var memoryParts = []struct {
	char, word string
	style      Style
	bytes      func(overview.Memory) cluster.Bytes
}{
	{"━", "held", Normal, func(m overview.Memory) cluster.Bytes { return m.HeldBytes }},
	{"·", "free", Green, func(m overview.Memory) cluster.Bytes { return m.FreeBytes }},
	{"x", "left over", Dim, func(m overview.Memory) cluster.Bytes { return m.LeftoverBytes }},
	{"!", "blocked", Yellow, func(m overview.Memory) cluster.Bytes { return m.BlockedBytes }},
	{"?", "not known", Dim, func(m overview.Memory) cluster.Bytes { return m.UnknownBytes }},
}

// DrawOverview draws the sums of many nodes. If wide, it adds a line for each node.
func DrawOverview(p *Page, s *cluster.Summary, wide bool) {
	d := newDrawing(p, s, wide)
	if len(s.Nodes) == 0 {
		d.empty()
	} else {
		d.overview(overview.Of(s))
	}
	d.waiting()
	d.Unread(s.Unread)
	if len(s.Nodes) > 0 {
		d.overviewLegend()
	}
}

func (d *drawing) overview(o overview.Overview) {
	var states []string
	for _, s := range o.States {
		states = append(states, fmt.Sprintf("%d %s", s.Count, stateWords[s.State]))
	}
	head := fmt.Sprintf("%s, %s: ", text.Count(len(d.summary.Nodes), "node"), text.Count(d.summary.GPUCount(), "GPU"))
	d.Flow([]Span{Phrase(head, Bold)}, List(states, Normal)...)
	for _, m := range o.Models {
		d.Blank()
		d.model(m, o.Partial)
	}
	d.trouble(o.Trouble)
	if d.wide {
		d.nodeTable()
	}
}

func (d *drawing) model(m overview.Model, partial bool) {
	counted := []string{text.Count(m.Nodes, "node"), text.Count(m.GPUs, "GPU")}
	if m.Unused != nil {
		counted = append(counted, fmt.Sprintf("%d of them unused", *m.Unused))
	}
	d.Flow([]Span{Phrase(overview.ProductName(m.Name), Bold), plain(": ")}, List(counted, Normal)...)
	const indent = "  "
	counts, width := make([]int64, len(memoryParts)), min(widestRollout, d.Width-len(indent)-2)
	var said []string
	for i, part := range memoryParts {
		if counts[i] = int64(part.bytes(m.Memory)); counts[i] > 0 {
			said = append(said, text.Bytes(counts[i])+" "+part.word)
		}
	}
	bar := []Span{plain(indent + "│")}
	for i, columns := range shareOut(counts, width) {
		bar = append(bar, Phrase(strings.Repeat(memoryParts[i].char, columns), memoryParts[i].style))
	}
	d.Line(append(bar, plain("│"))...)
	d.Flow([]Span{plain(indent + "memory: ")}, List(said, Normal)...)
	var held []string
	for _, h := range m.Held {
		held = append(held, fmt.Sprintf("%s ×%d", h.Label, h.Count))
	}
	if len(held) > 0 {
		d.Flow([]Span{plain(indent + "held:   ")}, List(held, Normal)...)
	}
	free := fitWords(m.Fits)
	if len(free) == 0 && !partial {
		free = []Span{Text("nothing, all GPUs are full or blocked", Normal)}
	}
	if !partial {
		d.Flow([]Span{plain(indent + "free:   ")}, free...)
	}
}

// trouble lists nodes that somebody should look at.
func (d *drawing) trouble(all []overview.Trouble) {
	if len(all) == 0 {
		return
	}
	d.Blank()
	d.Flow(nil, Text(fmt.Sprintf("%s in trouble:", text.Count(len(all), "node")), Red))
	for i, t := range all {
		if i == maxListed && !d.wide {
			d.Wrap("  ", fmt.Sprintf("and %d more, which -o%swide lists", len(all)-i, NoBreak), Yellow)
			break
		}
		var said []Span
		if len(t.Reasons) == 0 || !reasonsSayAll[t.State] {
			said = append(said, Phrase(text.Capital(stateWords[t.State])+".", Yellow))
		}
		for _, reason := range t.Reasons {
			said = append(said, Text(cluster.Sentence(reason), Normal))
		}
		d.Flow([]Span{plain("  "), Phrase(t.Node, Bold), plain(": ")}, said...)
	}
}

// nodeTable has a line for each node.
func (d *drawing) nodeTable() {
	var rows [][]string
	for i := range d.summary.Nodes {
		n := &d.summary.Nodes[i]
		state, _ := overview.StateOf(n, d.summary.Now)
		sums := overview.NewNode(*n)
		free := fmt.Sprintf("%s of %s", text.Bytes(int64(sums.Memory.FreeBytes)), text.Bytes(int64(sums.Memory.TotalBytes)))
		if d.summary.Partial {
			free = "-"
		}
		profile := "-"
		if n.Profile != nil && n.Profile.Title() != "" {
			profile = strings.TrimPrefix(n.Profile.Title(), "profile ")
		}
		rows = append(rows, []string{n.Name, string(state), profile, free, sums.Model})
	}
	d.Blank()
	d.Table([]string{"NODE", "STATE", "PROFILE", "FREE MEMORY", "GPUS"}, rows)
}

func (d *drawing) overviewLegend() {
	var out []string
	for _, part := range memoryParts {
		if slices.ContainsFunc(overview.Of(d.summary).Models, func(m overview.Model) bool { return part.bytes(m.Memory) > 0 }) {
			out = append(out, part.char+" "+part.word)
		}
	}
	said := "Memory: " + strings.Join(out, ", ") + ". Draw a node: kubectl tranche --node " + d.summary.Nodes[0].Name + ". Draw all nodes: --summary=false."
	if !d.wide {
		said += " A line for each node: -o" + NoBreak + "wide."
	}
	d.Blank()
	d.Flow(nil, Text(said, Dim))
}
