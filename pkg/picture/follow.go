package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// modes says in which modes the node's cards are, where one word says it of all, or
// where only their memory modes are known.
func modes(n cluster.Node) string {
	if mode, same := hardwareMode(n); same && mode != "" {
		return mode
	}
	return strings.Join(memoryModes(n), ", ")
}

// hardwareMode is that of the first card; same: it is that of all.
func hardwareMode(n cluster.Node) (mode string, same bool) {
	if len(n.Cards) == 0 {
		return "", true
	}
	mode = n.Cards[0].HardwareMode
	return mode, !slices.ContainsFunc(n.Cards, func(c cluster.Card) bool { return c.HardwareMode != mode })
}

// profileLines says below the node's head what is to be known of its switch.
func (d *drawing) profileLines(n cluster.Node) {
	if n.Profile == nil {
		return
	}
	for _, s := range n.Profile.Sentences(d.model.Now) {
		st := normal
		if s.Warning {
			st = yellow
		}
		d.flow([]span{plainText("  ")}, words(s.Text, st))
	}
}

// cardModes says in which mode a card is, unless the node's head does, and what
// becomes of it.
func (d *drawing) cardModes(c cluster.Card, sayMode bool) {
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
