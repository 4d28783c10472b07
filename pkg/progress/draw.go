package progress

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// DrawNode writes how far a node is, with its cards, for a width in columns.
func DrawNode(node string, n Node, cards []Card, width int, now time.Time) string {
	var out strings.Builder
	title := n.Title()
	if title == "" {
		title = "no profile is wanted"
	}
	out.WriteString(wrap("", node+": "+title+n.namedBy(), 0, width))
	sentences := n.Sentences(now)
	for _, s := range sentences {
		out.WriteString(wrap("  ", s.Text, 2, width))
	}
	if len(sentences) == 0 && n.Kept != "" {
		out.WriteString(wrap("  ", sentence(n.Kept), 2, width))
	}
	if len(cards) == 0 {
		return out.String()
	}
	t := &table{head: []string{"CARD", "MODE", "REMARKS"}}
	for _, c := range cards {
		t.rows = append(t.rows, []string{c.Name, c.Mode, c.remarks()})
	}
	return out.String() + "\n" + t.draw(width)
}

// namedBy says who named the profile that is wanted.
func (n Node) namedBy() string {
	switch n.Source {
	case v1alpha1.FromLabel:
		return ", named by the node's label " + v1alpha1.ProfileLabel
	case v1alpha1.FromSpec:
		return ", named by the GPUNode's spec.profile"
	case v1alpha1.FromDefault:
		if n.Wanted != "" {
			return ", which is for nodes of which nobody says otherwise"
		}
	}
	return ""
}

// remarks is what is to be known of a card.
func (c Card) remarks() string {
	var out []string
	say := func(head, text string) {
		if text != "" {
			out = append(out, fmt.Sprintf("%s: %s", head, text))
		}
	}
	say("changes", c.Change)
	say("pending", c.Pending)
	say("problem", c.Problem)
	return strings.Join(out, "; ")
}
