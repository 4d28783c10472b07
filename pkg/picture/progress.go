package picture

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// DrawNode writes how far a node is, with its cards, for a width in columns.
func DrawNode(node string, n cluster.Progress, cards []cluster.CardProgress, width int, now time.Time) string {
	var out strings.Builder
	title := n.Title()
	if title == "" {
		title = "no profile is wanted"
	}
	out.WriteString(wrap("", node+": "+title+namedBy(n), 0, width))
	sentences := n.Sentences(now)
	for _, s := range sentences {
		out.WriteString(wrap("  ", s.Text, 2, width))
	}
	if len(sentences) == 0 && n.Kept != "" {
		out.WriteString(wrap("  ", cluster.Sentence(n.Kept), 2, width))
	}
	if len(cards) == 0 {
		return out.String()
	}
	t := &table{head: []string{"CARD", "MODE", "REMARKS"}}
	for _, c := range cards {
		t.rows = append(t.rows, []string{c.Name, c.Mode, remarks(c)})
	}
	return out.String() + "\n" + t.draw(width)
}

// namedBy says who named the profile that is wanted.
func namedBy(n cluster.Progress) string {
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
func remarks(c cluster.CardProgress) string {
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

// DrawProfiles writes profiles as a table of a width in columns.
func DrawProfiles(profiles []cluster.Profile, width int) string {
	if len(profiles) == 0 {
		return "There are no PartitionProfiles.\n"
	}
	t := &table{head: []string{"PROFILE", "WANTED BY", "FOLLOWED BY", "WHAT IT SAYS"}}
	for _, p := range profiles {
		t.rows = append(t.rows, []string{p.Name, count(p.Wanted), count(p.Followed), p.Says})
	}
	return t.draw(width)
}

func count(nodes []string) string {
	switch len(nodes) {
	case 0:
		return "-"
	case 1:
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", len(nodes))
}

// DrawSwitches writes a history as a table of a width in columns, and above it what
// is under way.
func DrawSwitches(s cluster.Switches, width int, now time.Time) string {
	var out strings.Builder
	switch {
	case s.Now.Switching():
		out.WriteString(wrap("", fmt.Sprintf("%s, from %s to %s. %s", s.Node, cluster.ProfileName(s.Now.From), cluster.ProfileName(s.Now.To), s.Now.Doings(now)), 0, width) + "\n")
	case s.Now.State == v1alpha1.Failed:
		out.WriteString(wrap("", s.Node+": "+s.Now.Failure(now), 0, width) + "\n")
	}
	if len(s.History) == 0 {
		out.WriteString(wrap("", fmt.Sprintf("No switch of %s is over yet.", s.Node), 0, width))
		return out.String()
	}
	t := &table{head: []string{"STARTED (UTC)", "TOOK", "FROM", "TO", "RESULT", "EVICTED", "REASON"}}
	for i := range s.History {
		r := &s.History[i]
		took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second / 10)
		text := r.Reason
		if r.Message != "" {
			text = strings.TrimPrefix(text+": "+r.Message, ": ")
		}
		t.rows = append(t.rows, []string{r.Started.Format(time.DateTime), took.String(), cmp.Or(r.From, "-"), cmp.Or(r.To, "-"),
			r.Result, strconv.Itoa(int(r.Evicted)), text})
	}
	out.WriteString(t.draw(width))
	return out.String()
}
