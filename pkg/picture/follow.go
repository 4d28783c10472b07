package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/progress"
)

// follow adds to the nodes what their GPUNodes say of profiles and switches. A node
// that publishes no card now is shown where that has to do with its profile.
func follow(nodes map[string]*Node, in Input) {
	for i := range in.GPUNodes {
		g := &in.GPUNodes[i]
		if !wanted(in.OnlyNodes, g.Name) {
			continue
		}
		far := progress.Of(g)
		n := nodes[g.Name]
		if n == nil {
			if none := g.Status.Node != nil && len(g.Status.Node.Cards) == 0; none || len(far.Sentences(in.Now)) == 0 {
				continue
			}
			n = &Node{Name: g.Name, Cards: []Card{}}
			nodes[g.Name] = n
		}
		n.Profile = &far
		for _, said := range progress.Cards(g) {
			j := slices.IndexFunc(n.Cards, func(c Card) bool { return c.Name == said.Name })
			if j < 0 {
				continue
			}
			c := &n.Cards[j]
			c.HardwareMode, c.Change, c.Pending, c.Problem = said.Mode, said.Change, said.Pending, said.Problem
		}
	}
}

// modes says in which modes the node's cards are, where one word says it of all, or
// where only their memory modes are known.
func modes(n Node) string {
	if mode, same := hardwareMode(n); same && mode != "" {
		return mode
	}
	return strings.Join(memoryModes(n), ", ")
}

// hardwareMode is that of the first card; same: it is that of all.
func hardwareMode(n Node) (mode string, same bool) {
	if len(n.Cards) == 0 {
		return "", true
	}
	mode = n.Cards[0].HardwareMode
	return mode, !slices.ContainsFunc(n.Cards, func(c Card) bool { return c.HardwareMode != mode })
}

// profileLines says below the node's head what is to be known of its switch.
func (d *drawing) profileLines(n Node) {
	if n.Profile == nil {
		return
	}
	for _, s := range n.Profile.Sentences(d.model.now) {
		st := normal
		if s.Warning {
			st = yellow
		}
		d.flow([]span{plainText("  ")}, words(s.Text, st))
	}
}

// cardModes says in which mode a card is, unless the node's head does, and what
// becomes of it.
func (d *drawing) cardModes(c Card, sayMode bool) {
	if m := c.Mode; m != nil && m.Of > 1 {
		d.detail("", words(fmt.Sprintf("in %s, %d of %d held", m.Name, m.Held, m.Of), normal))
	} else if sayMode && c.HardwareMode != "" {
		d.detail("", words(c.HardwareMode, normal))
	}
	if c.Problem != "" {
		d.detail("problem: ", words(c.Problem, red))
	}
	if c.Change != "" {
		d.detail("changes: ", words(c.Change, yellow))
	}
	if c.Pending != "" {
		d.detail("pending: ", words(c.Pending, normal))
	}
}
