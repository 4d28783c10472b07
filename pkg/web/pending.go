package web

import (
	"fmt"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// pending lists the pods and claims that wait.
func (s *Server) pending(c scope) *page {
	named, others := c.Viewer.Waiting(c.Snapshot)
	shown := named[:min(len(named), maxPending)]
	nothing := "Nothing waits for a GPU."
	if others > 0 {
		nothing = "None that you may see."
	}
	return &page{title: "Pending pods", nav: "Pending", blocks: []block{{whole: h.Section(blockID("pending"),
		h.H1(g.Text("Pending pods")),
		g.If(others > 0, note(num(others)+" more wait in namespaces that you are not allowed to see.")),
		g.If(len(named) == 0, quiet(nothing)),
		h.Ul(h.Class("waiting"), g.Map(shown, s.waiting)),
		g.If(len(named) > len(shown), h.P(h.Class("quiet"), g.Text("And "+num(len(named)-len(shown))+" more. Ask about one: "), h.Code(g.Text("kubectl tranche why POD -n NAMESPACE")))),
	)}}}
}

// waiting returns a pod or a claim that waits. The script asks for the answer.
func (s *Server) waiting(w cluster.Waiting) g.Node {
	id := h.ID("w-" + w.Namespace + "-" + w.Claim + "-" + w.Pod)
	claim := some(w.Claim, func(name string) g.Node { return h.Small(g.Text("claim " + name)) })
	if w.Pod == "" {
		return h.Li(h.Class("card"), id, h.H2(g.Text(w.Namespace+"/"+w.Claim)), claim)
	}
	path := s.at("pending", w.Namespace, w.Pod)
	return h.Li(h.Class("card"), id,
		h.H2(h.A(h.Href(path), g.Text(w.Namespace+"/"+w.Pod))), claim,
		h.P(h.Class("answer"), h.Data("why", path+"?answer"), g.Text("…")),
	)
}

// maxVerdicts is how many nodes are explained, maxOpen how many of them at once.
const maxVerdicts, maxOpen = 12, 3

// why explains a pod.
func (s *Server) why(e *why.Explanation, namespace, pod string) *page {
	nodes, rest := fit.Sorted(e.Nodes), ""
	nodes = nodes[:min(len(nodes), maxVerdicts)]
	if more := len(e.Nodes) - len(nodes); more > 0 {
		rest = fmt.Sprintf("And %d more nodes. All of them: kubectl tranche why %s -n %s -o wide", more, pod, namespace)
	}
	return &page{
		title: pod, nav: "Pending", crumbs: []link{{"Pending", "/pending"}, {name: namespace + "/" + pod}},
		blocks: []block{{whole: explanation(e, nodes, rest)}},
	}
}

func explanation(e *why.Explanation, nodes []fit.Node, rest string) g.Node {
	return h.Section(blockID("why"),
		h.H1(g.Text(e.Namespace+"/"+e.Pod)),
		h.P(h.Class("summary"), badge(string(e.State), stateTones[e.State]), g.Text(" "+e.Summary)),
		part("What to do", h.Ul(h.Class("remedies"), g.Map(e.Remedies, remedy)), len(e.Remedies)),
		part("It asks for", h.Ul(g.Map(e.Asks, ask)), len(e.Asks)),
		part("It holds", h.Ul(g.Map(e.Holds, holds)), len(e.Holds)),
		part("Nodes", verdicts(nodes), len(nodes)),
		some(rest, quiet),
		part("Messages", g.Map(e.Quotes, quote), len(e.Quotes)),
		unread(e.Unread),
	)
}

// part returns a part of an explanation, if there is anything in it.
func part(title string, n g.Node, items int) g.Node {
	if items == 0 {
		return nil
	}
	return g.Group{h.H2(g.Text(title)), n}
}

func remedy(r fit.Remedy) g.Node { return h.Li(g.Text(text.Capital(r.Text)), command(r.Command)) }

func ask(a fit.Ask) g.Node {
	return h.Li(h.B(g.Text(a.Request)), g.Text(" "+a.Text), small("claim ", a.Claim))
}

func holds(d why.Holding) g.Node {
	return h.Li(h.B(g.Text(d.Label)), g.Text(" "), h.Code(g.Text(d.Device)), g.Text(" on "+d.Pool), small("claim ", d.Claim),
		some(v1beta1.ProblemText(d.Problems), func(health string) g.Node { return g.Group{g.Text(" "), badge(health, "bad")} }))
}

// verdicts returns nodes. The first are open.
func verdicts(nodes []fit.Node) g.Node {
	var out g.Group
	for i, n := range nodes {
		out = append(out, h.Details(h.Class("card verdict"), g.If(i < maxOpen, g.Attr("open")),
			h.Summary(h.B(g.Text(n.Name)), g.Text(" "), badge(string(n.Verdict), verdictTones[n.Verdict]), g.Text(" "), h.Small(g.Text(n.GPUs))),
			g.Map(n.Reasons, func(reason string) g.Node { return h.P(g.Text(text.Capital(reason))) }),
			g.Map(n.Requests, request),
			g.If(len(n.Free) > 0, h.P(h.Class("fits"), g.Text("free here: "+strings.Join(fit.FreeTexts(n.Free), " or ")))),
		))
	}
	return out
}

func request(r fit.Request) g.Node {
	more := func(before string, all []string, by string) g.Node {
		return g.If(len(all) > 0, g.Group{h.Br(), h.Small(g.Text(before + strings.Join(all, by)))})
	}
	return h.P(h.B(g.Text(r.Request)), g.Text(": "+r.Text), more("held by ", fit.NamesOf(r.Holders), "; "), more("tainted ", fit.TaintTexts(r.Taints), ", "))
}

// quote returns what a component of Kubernetes says.
func quote(q why.Quote) g.Node {
	who := text.Capital(q.Who)
	if q.Reason != "" {
		who += " · " + q.Reason
	}
	if q.Age != "" {
		who += " · " + q.Age + " ago"
	}
	if q.Count > 1 {
		who += fmt.Sprintf(" · %d times", q.Count)
	}
	return h.Figure(h.Class("card quote"), h.FigCaption(g.Text(who)), h.BlockQuote(g.Text(q.Message)))
}

var stateTones = map[why.State]string{
	why.Running: "ok", why.Finished: "ok", why.RoomNow: "ok", why.Starting: "ok",
	why.Invalid: "bad", why.ClaimMissing: "bad", why.Absent: "bad",
	why.NoRoom: "warn", why.Unknown: "warn", why.Gated: "warn", why.Terminating: "warn",
}

var verdictTones = map[fit.Verdict]string{
	fit.Fits: "ok", fit.Full: "warn", fit.NotTogether: "warn", fit.Tainted: "warn", fit.Switching: "warn", fit.SelectorFails: "bad", fit.Unclear: "warn", fit.Unusable: "bad", fit.Never: "bad",
}
