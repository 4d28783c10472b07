package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// pending lists the pods and claims that wait and match the filter, those that wait longest first.
func (s *Server) pending(c scope) *page {
	named, others := c.Viewer.Waiting(c.Snapshot)
	filter := c.query.Get("filter")
	matching := slices.DeleteFunc(slices.Clone(named), func(w cluster.Waiting) bool { return !strings.Contains(nameOf(w), filter) })
	slices.SortStableFunc(matching, func(a, b cluster.Waiting) int { return a.Since.Compare(b.Since) })
	shown := matching[:min(len(matching), maxPending)]
	nothing := "Nothing waits for a GPU."
	switch {
	case len(named) > 0:
		nothing = "No name matches the filter."
	case others > 0:
		nothing = "None that you may see."
	}
	return &page{title: "Pending pods", nav: "Pending", blocks: []block{{whole: s.pendingHead(named, filter)}, {whole: h.Section(blockID("pending"),
		g.If(others > 0, note(num(others)+" more wait in namespaces that you are not allowed to see.")),
		g.If(len(shown) == 0, quiet(nothing)),
		h.Ul(h.Class("waiting"), g.Map(shown, func(w cluster.Waiting) g.Node { return s.waiting(w, c.now) })),
		g.If(len(matching) > len(shown), h.P(h.Class("quiet"), g.Text("And "+num(len(matching)-len(shown))+" more. Ask about one: "), h.Code(g.Text("kubectl tranche why POD -n NAMESPACE")))),
	)}}}
}

// nameOf returns the name of what waits, with its namespace.
func nameOf(w cluster.Waiting) string { return w.Namespace + "/" + cmp.Or(w.Pod, w.Claim) }

// pendingHead has the filter, and the namespaces in which something waits.
func (s *Server) pendingHead(named []cluster.Waiting, filter string) g.Node {
	count := map[string]int{}
	for _, w := range named {
		count[w.Namespace+"/"]++
	}
	path := s.at("pending")
	return h.Section(blockID("pendinghead"), h.Class("head"), h.H1(g.Text("Pending pods")),
		g.If(len(named) > 1, h.Form(h.Class("ask"), h.Method("get"), h.Action(path), h.Role("search"),
			h.Label(h.For("names"), g.Text("Namespace/pod")),
			h.Input(h.ID("names"), h.Type("search"), h.Name("filter"), h.Value(filter), h.AutoComplete("off"), g.Attr("spellcheck", "false")),
			h.Button(g.Text("Filter")),
		)),
		g.If(len(count) > 1, h.P(h.Class("suggest"),
			h.A(h.Href(path), g.If(filter == "", h.Aria("current", "true")), g.Text("all "+num(len(named)))),
			g.Map(slices.Sorted(maps.Keys(count)), func(in string) g.Node {
				return h.A(h.Href(path+"?filter="+url.QueryEscape(in)), g.If(filter == in, h.Aria("current", "true")), g.Text(in+" "+num(count[in])))
			}),
		)),
	)
}

// waiting returns a pod or a claim that waits. The script replaces what the scheduler says with the answer of
// why, which takes longer.
func (s *Server) waiting(w cluster.Waiting, now time.Time) g.Node {
	id := h.ID("w-" + w.Namespace + "-" + w.Claim + "-" + w.Pod)
	about := g.If(!w.Since.IsZero(), h.Small(h.Class("age"), h.Title(clock(w.Since)), g.Text("for "+age(now.Sub(w.Since)))))
	claim := small("claim ", w.Claim)
	if w.Pod == "" {
		return h.Li(h.Class("card"), id, h.H2(g.Text(nameOf(w))), about)
	}
	path := s.at("pending", w.Namespace, w.Pod)
	return h.Li(h.Class("card"), id,
		h.H2(h.A(h.Href(path), g.Text(nameOf(w)))), claim, about,
		h.P(h.Class("answer"), h.Data("why", path+"?answer"), g.Text(cmp.Or(w.Scheduler, "The scheduler has not said why yet."))),
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

func ask(a demand.Ask) g.Node {
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
