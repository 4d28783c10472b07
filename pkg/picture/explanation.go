package picture

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// maxNodes is how many nodes are explained if not all are asked for.
const maxNodes = 6

// writing is the state of a text.
type writing struct {
	*Page
	// all nodes are explained, not only the likeliest.
	all bool
}

// say writes a paragraph after a heading.
func (t *writing) say(head, said string) { t.Wrap(head, said, Normal) }

// DrawExplanation writes why a pod does not run: the likeliest nodes and the number of the
// others, or all nodes.
func DrawExplanation(p *Page, e *why.Explanation, all bool) {
	t := newWriting(p, all)
	t.explanation(e)
	t.end(e.Quotes, e.Remedies)
	t.Unread(e.Unread)
}

func newWriting(p *Page, all bool) *writing {
	p.Width = max(MinWidth, p.Width)
	return &writing{Page: p, all: all}
}

// explanation writes what a pod has, what it asks for, and what each node has of it.
func (t *writing) explanation(e *why.Explanation) {
	t.Wrap("", e.Summary, Bold)
	t.list("It holds:", len(e.Holds), func(i int) (string, string) {
		h := e.Holds[i]
		what := fmt.Sprintf("%s of %s (claim %s)", h.Device, h.Pool, h.Claim)
		if len(h.Problems) > 0 {
			what += ": " + v1beta1.ProblemText(h.Problems)
		}
		return h.Label, what
	})
	t.list("It asks for:", len(e.Asks), func(i int) (string, string) {
		a := e.Asks[i]
		if a.Claim != "" {
			return a.Request, fmt.Sprintf("%s, claim %s", a.Text, a.Claim)
		}
		return a.Request, a.Text
	})
	t.nodes(e)
}

// end writes messages and remedies.
func (t *writing) end(quotes []why.Quote, remedies []fit.Remedy) {
	for _, q := range quotes {
		t.quote(q)
	}
	if len(remedies) > 0 {
		t.Blank()
		t.Wrap("", "What to do:", Bold)
		for _, r := range remedies {
			t.say("  - ", r.Text)
			if r.Command != "" { // on one line, for copying
				t.Line(Text("      "+r.Command, Normal))
			}
		}
	}
}

// DrawOwner writes why the pods of a job or another owner do not run, and the explanation of one pod
// for each way in which they wait.
func DrawOwner(p *Page, e *why.OwnerExplanation, all bool) {
	t := newWriting(p, all)
	t.Wrap("", e.Summary, Bold)
	t.end(e.Quotes, e.Remedies)
	unread := e.Unread
	for _, pod := range e.Pods {
		t.Blank()
		t.explanation(pod)
		t.end(pod.Quotes, pod.Remedies)
		if more := othersLike(e.Groups, pod.Pod); len(more) > 0 {
			t.Blank()
			t.say("", "In the same state: "+text.List(more, maxAlike)+".")
		}
		unread = append(slices.Clip(unread), pod.Unread...)
	}
	t.Unread(unread)
}

// maxAlike is how many pods are named that wait like another.
const maxAlike = 6

// othersLike returns the other pods of the group of a pod.
func othersLike(groups []why.Group, pod string) []string {
	for _, g := range groups {
		if i := slices.Index(g.Pods, pod); i >= 0 {
			return slices.Delete(slices.Clone(g.Pods), i, i+1)
		}
	}
	return nil
}

// list writes a heading and an aligned table of two columns.
func (t *writing) list(heading string, n int, line func(int) (string, string)) {
	if n == 0 {
		return
	}
	t.Blank()
	t.say("", heading)
	width := 0
	for i := range n {
		what, _ := line(i)
		width = max(width, Width(what))
	}
	for i := range n {
		what, said := line(i)
		t.say("  "+Pad(what, width)+"  ", said)
	}
}

// nodes writes the nodes, the likeliest first.
func (t *writing) nodes(e *why.Explanation) {
	shown, left := likeliest(e.Nodes, t.all)
	for _, n := range shown {
		t.Blank()
		head := n.Name
		if n.GPUs != "" {
			head += ": " + n.GPUs
		}
		t.Wrap("", head, Bold)
		for _, r := range n.Reasons {
			t.say("  ", text.Capital(r))
		}
		t.requests(n)
		if n.Verdict == fit.Fits && len(n.Requests) > 0 && e.State != why.Unknown && e.State != why.NoRoom {
			t.say("  ", "The pod's devices fit here now.")
		} else if len(n.Free) > 0 && n.Verdict != fit.Fits {
			t.say("  ", "Free here: "+strings.Join(fit.FreeTexts(n.Free), " or ")+".")
		}
	}
	if left != "" {
		t.Blank()
		t.say("", left)
	}
}

// requests writes what a node has for each request. Equal ones share a line.
func (t *writing) requests(n fit.Node) {
	for i := 0; i < len(n.Requests); {
		r, names := n.Requests[i], []string{n.Requests[i].Request}
		for i++; i < len(n.Requests) && alike(n.Requests[i], r); i++ {
			names = append(names, n.Requests[i].Request)
		}
		head, said := "  ", text.Capital(r.Text)
		if len(n.Requests) > 1 {
			head, said = "  "+strings.Join(names, ", ")+": ", r.Text
		}
		t.say(head, said)
		hang := strings.Repeat(" ", Width(head))
		if len(r.Holders) > 0 && (r.Verdict != fit.Fits || n.Verdict == fit.NotTogether) && n.Verdict != fit.Never {
			t.say(hang+"held by ", strings.Join(fit.NamesOf(r.Holders), "; "))
		}
		if len(r.Taints) > 0 {
			t.say(hang+"tainted ", strings.Join(fit.TaintTexts(r.Taints), ", "))
		}
	}
}

func alike(a, b fit.Request) bool {
	return a.Text == b.Text && reflect.DeepEqual(a.Holders, b.Holders) && reflect.DeepEqual(a.Taints, b.Taints)
}

// likeliest returns the nodes that are closest to serving the pod, and the number of the others.
func likeliest(nodes []fit.Node, all bool) (shown []fit.Node, left string) {
	shown = fit.Sorted(nodes)
	if all || len(shown) <= maxNodes+1 {
		return shown, ""
	}
	counts := fit.CountsOf(shown[maxNodes:])
	return shown[:maxNodes], "Other nodes: " + strings.Join(counts.Parts(), ", ") + ". All of them: -o wide"
}

// quote writes a message of another component, unabridged.
func (t *writing) quote(q why.Quote) {
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
	t.say("", text.Capital(head)+":")
	for line := range strings.SplitSeq(strings.TrimSpace(q.Message), "\n") {
		t.say("  ", line)
	}
}
