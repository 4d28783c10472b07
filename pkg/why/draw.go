package why

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/terminal"
)

// Options says what the explanation is written on.
type Options struct {
	terminal.Screen
	// All writes every node; otherwise the likeliest few and the number of the
	// others.
	All bool
}

const (
	minWidth = 40
	// maxNodes is how many nodes are explained without Options.All.
	maxNodes = 6
)

// writing is a text under way.
type writing struct {
	terminal.Page
	all bool
}

// say writes a paragraph behind a head.
func (t *writing) say(head, text string) { t.Wrap(head, text, terminal.Normal) }

// Draw writes the explanation as text.
func Draw(w io.Writer, e *Explanation, o Options) error {
	t := &writing{all: o.All}
	t.Screen = o.Screen
	t.Width = max(minWidth, o.Width)
	t.Wrap("", e.Summary, terminal.Bold)
	t.list("It holds:", len(e.Holds), func(i int) (string, string) {
		h := e.Holds[i]
		text := fmt.Sprintf("%s of %s (claim %s)", h.Device, h.Pool, h.Claim)
		if h.Health != "" {
			text += ": " + h.Health
		}
		return h.Label, text
	})
	t.list("It asks for:", len(e.Asks), func(i int) (string, string) {
		a := e.Asks[i]
		if a.Claim != "" {
			return a.Request, fmt.Sprintf("%s, claim %s", a.Text, a.Claim)
		}
		return a.Request, a.Text
	})
	t.nodes(e)
	for _, q := range e.Quotes {
		t.quote(q)
	}
	if len(e.Remedies) > 0 {
		t.Blank()
		t.Wrap("", "What to do:", terminal.Bold)
		for _, r := range e.Remedies {
			t.say("  - ", r.Text)
			if r.Command != "" { // in one piece, to be copied
				t.Line(terminal.Text("      "+r.Command, terminal.Normal))
			}
		}
	}
	for _, n := range e.Notes {
		t.Blank()
		t.Flow([]terminal.Span{terminal.Phrase("Note: ", terminal.Yellow)}, terminal.Text(n, terminal.Yellow))
	}
	_, err := t.WriteTo(w)
	return err
}

// list writes a heading and, aligned, what the lines are about and what is said.
func (t *writing) list(heading string, n int, line func(int) (string, string)) {
	if n == 0 {
		return
	}
	t.Blank()
	t.say("", heading)
	width := 0
	for i := range n {
		what, _ := line(i)
		width = max(width, terminal.Width(what))
	}
	for i := range n {
		what, text := line(i)
		t.say("  "+terminal.Pad(what, width)+"  ", text)
	}
}

// nodes writes what is said about each node, the likeliest first.
func (t *writing) nodes(e *Explanation) {
	shown, left := likeliest(e.Nodes, t.all)
	for _, n := range shown {
		t.Blank()
		head := n.Name
		if n.GPUs != "" {
			head += ": " + n.GPUs
		}
		t.Wrap("", head, terminal.Bold)
		for _, r := range n.Reasons {
			t.say("  ", capital(r))
		}
		t.requests(n)
		if n.Verdict == Fits && len(n.Requests) > 0 {
			t.say("  ", "The pod's devices fit here now.")
		} else if len(n.Free) > 0 && n.Verdict != Fits {
			t.say("  ", "Free here: "+strings.Join(n.Free, " or ")+".")
		}
	}
	if left != "" {
		t.Blank()
		t.say("", left)
	}
}

// requests writes what a node has for each request; like ones share a line.
func (t *writing) requests(n Node) {
	for i := 0; i < len(n.Requests); {
		r, names := n.Requests[i], []string{n.Requests[i].Request}
		for i++; i < len(n.Requests) && alike(n.Requests[i], r); i++ {
			names = append(names, n.Requests[i].Request)
		}
		head, text := "  ", capital(r.Text)
		if len(n.Requests) > 1 {
			head, text = "  "+strings.Join(names, ", ")+": ", r.Text
		}
		t.say(head, text)
		hang := strings.Repeat(" ", terminal.Width(head))
		if len(r.Holders) > 0 && (r.Verdict != Fits || n.Verdict == Together) && n.Verdict != Never {
			t.say(hang+"held by ", strings.Join(r.Holders, "; "))
		}
		if len(r.Taints) > 0 {
			t.say(hang+"tainted ", strings.Join(r.Taints, ", "))
		}
	}
}

func alike(a, b Request) bool {
	return a.Text == b.Text && slices.Equal(a.Holders, b.Holders) && slices.Equal(a.Taints, b.Taints)
}

// likeliest orders nodes by how near they are to serving the pod, and sums up
// those for which there is no room on the screen.
func likeliest(nodes []Node, all bool) (shown []Node, left string) {
	var rest []string
	for _, v := range []Verdict{Fits, Unclear, Together, Full, Never, Tainted, Unusable, Excluded, Lacking} {
		n := 0
		for _, node := range nodes {
			switch {
			case node.Verdict != v:
			case all || len(shown) < maxNodes || len(nodes) == maxNodes+1:
				shown = append(shown, node)
			default:
				n++
			}
		}
		if n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", n, verdictWords[v]))
		}
	}
	if len(rest) > 0 {
		left = "Other nodes: " + strings.Join(rest, ", ") + ". All of them: -o wide"
	}
	return shown, left
}

var verdictWords = map[Verdict]string{
	Fits: "with room now", Unclear: "unclear", Together: "that cannot give everything at once", Never: "that never could", Full: "full", Tainted: "with tainted GPUs",
	Unusable: "without usable GPUs", Excluded: "not open to this pod", Lacking: "without such a device",
}

// quote writes what somebody else said, whole.
func (t *writing) quote(q Quote) {
	t.Blank()
	head := q.Who + " says"
	var facts []string
	if q.Reason != "" && q.Reason != "Unschedulable" {
		facts = append(facts, q.Reason)
	}
	if q.Age != "" {
		facts = append(facts, q.Age+" ago")
	}
	if q.Count > 1 {
		facts = append(facts, fmt.Sprintf("%d times", q.Count))
	}
	if len(facts) > 0 {
		head += " (" + strings.Join(facts, ", ") + ")"
	}
	t.say("", capital(head)+":")
	for line := range strings.SplitSeq(strings.TrimSpace(q.Message), "\n") {
		t.say("  ", line)
	}
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
