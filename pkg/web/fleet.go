package web

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
)

// fleet returns the heat map.
func (s *Server) fleet(c scope) *page {
	p := &page{title: "Fleet", nav: "Fleet", blocks: []block{{whole: s.totals(c)}}}
	if len(c.Nodes) == 0 {
		p.blocks = append(p.blocks, block{whole: message(&RefusedError{Title: "No node publishes GPUs yet", Text: "Does the plugin run on the nodes with GPUs?", Command: "kubectl get pods -A -o wide -l " + cluster.PluginLabel})})
		return p
	}
	density, draw := "dense", s.cells
	switch n := len(c.Nodes); {
	case n <= maxCards:
		density, draw = "cards", s.card
	case n <= maxNames:
		density = "named"
	}
	if density != "cards" {
		p.blocks = append(p.blocks, block{whole: filter()})
	}
	for i, group := range overview.GroupsOf(c.Snapshot) {
		b := block{}
		for _, n := range group.Nodes {
			b.items = append(b.items, item{n.Version, tile(draw, c.Viewer, n)})
		}
		id := "map-" + strconv.Itoa(i)
		b.head = s.groupHead(id, group)
		b.whole = h.Section(blockID(id), class("group", density), h.Aria("labelledby", id+"-title"),
			b.head,
			h.Div(h.Class("map"), g.Attr("data-items"), g.Map(b.items, func(i item) g.Node { return i.node })),
		)
		p.blocks = append(p.blocks, b)
	}
	return p
}

// tile returns a node of the heat map, as the viewer may see it. It is drawn when it is written: an update has few of
// them.
func tile(draw func(*overview.Node) g.Node, v overview.Viewer, n *overview.Node) g.Node {
	return g.NodeFunc(func(w io.Writer) error { return draw(v.Outline(n)).Render(w) })
}

// totals returns the numbers at the top.
func (s *Server) totals(c scope) g.Node {
	t := overview.TotalsOf(c.Viewer, c.Snapshot)
	return h.Section(blockID("totals"), h.Class("totals"), h.Aria("label", "Summary"),
		h.H1(h.Class("unseen"), g.Text("Fleet")),
		memory(t),
		h.Div(h.Class("card stat"), number(t.GPUs, fmt.Sprintf("GPU%s on %s node%s", plural(t.GPUs), num(t.Nodes), plural(t.Nodes)))),
		h.A(class("card stat", when(t.Waiting > 0, "warn")), h.Href(s.at("pending")), number(t.Waiting, "waiting for a GPU")),
		g.If(!c.NoProfiles, h.A(class("card stat", when(t.Switching > 0, "warn")), h.Href(s.at("rollouts")),
			number(t.Switching, "node"+plural(t.Switching)+" being switched"+when(t.Failed > 0, ", "+num(t.Failed)+" failed")))),
		h.Div(class("card stat", when(t.Problems > 0, "bad")), number(t.Problems, "GPU"+plural(t.Problems)+" with a problem")),
	)
}

func number(n int, of string) g.Node { return g.Group{h.B(g.Text(num(n))), h.Span(g.Text(of))} }

// memory returns how much memory is held, and of how many GPUs.
func memory(t overview.Totals) g.Node {
	circle := func(class string, more ...g.Node) g.Node {
		return g.El("circle", h.Class(class), g.Attr("cx", "18"), g.Attr("cy", "18"), g.Attr("r", "15.9155"), g.Group(more))
	}
	percent := strconv.Itoa(t.Memory.Percent())
	return h.Div(h.Class("card stat wide"),
		h.SVG(h.Class("ring"), g.Attr("viewBox", "0 0 36 36"), h.Role("img"), h.Aria("label", percent+" % of the memory of all GPUs is held"),
			circle("track"), circle("value", g.Attr("pathLength", "100"), g.Attr("stroke-dasharray", percent+" 100")),
			g.El("text", g.Attr("x", "18"), g.Attr("y", "19"), g.Text(percent+"%")),
		),
		h.Div(h.B(g.Text(text.Bytes(int64(t.Memory.HeldBytes)))), g.Text(" "), h.Span(g.Text("of "+text.Bytes(int64(t.Memory.TotalBytes))+" GPU memory is held")),
			h.Div(h.Class("split"), h.Role("img"), h.Aria("label", fmt.Sprintf("%d GPUs are full, %d in part held, %d empty", t.Full, t.Part, t.Empty)),
				strip(rect("full", "", share(t.Full, t.GPUs)), rect("part", share(t.Full, t.GPUs), share(t.Part, t.GPUs)))),
			h.Small(h.I(h.Class("dot full")), g.Text(num(t.Full)+" full "), h.I(h.Class("dot part")), g.Text(num(t.Part)+" in part "), h.I(h.Class("dot")), g.Text(num(t.Empty)+" empty")),
		),
	)
}

// filter hides tiles. The script does that.
func filter() g.Node {
	sign := func(classes, means string) g.Node { return h.Li(h.I(h.Class("c "+classes)), g.Text(means)) }
	return h.Form(blockID("filter"), h.Class("filter"), h.Role("search"),
		h.Input(h.Type("search"), h.Name("q"), h.Placeholder("Filter nodes"), h.Aria("label", "Filter nodes by name"), h.AutoComplete("off"), g.Attr("spellcheck", "false")),
		h.Div(h.Class("chips"), h.Role("group"), h.Aria("label", "Show nodes that are"), g.Map([]string{"free", "full", "switching", "problem", "blocked"}, func(state string) g.Node {
			return h.Button(h.Type("button"), h.Aria("pressed", "false"), h.Data("state", state), g.Text(state))
		})),
		g.El("output", h.ID("found"), h.Aria("live", "polite")),
		h.Ul(h.Class("legend"), h.Aria("label", "Legend"),
			sign("l0 open", "empty"), sign("l3 open", "in part held"), sign("l8", "full"), sign("l4 switching", "switching"),
			sign("l0 problem", "problem"), sign("l2 blocked", "blocked"), sign("l2 unknown", "not known")),
	)
}

// groupHead returns what there is to say about all nodes of a group.
func (s *Server) groupHead(id string, group overview.Group) g.Node {
	n := len(group.Nodes)
	return h.Header(blockID(id+"-head"),
		h.H2(h.ID(id+"-title"), g.Text(group.Model)),
		h.P(g.Text(fmt.Sprintf("%s node%s, %d %% of memory held", num(n), plural(n), group.Memory.Percent()))),
		s.room("room for ", group.Fits),
	)
}

// cells returns a node of a large fleet: a cell for each GPU.
func (s *Server) cells(n *overview.Node) g.Node {
	return h.A(h.Class("n"), h.ID("n-"+n.Name), h.Href(s.at("nodes", n.Name)), h.Data("s", strings.Join(n.States(), " ")), h.Aria("label", n.Says()),
		h.B(g.Text(n.Name)),
		h.Span(g.Map(n.Cells, func(c overview.Cell) g.Node {
			return h.I(class("c", "l"+strconv.Itoa(c.Level), string(c.Mark), when(c.Open, "open")))
		})),
	)
}

// card returns a node of a small fleet: a bar for each GPU.
func (s *Server) card(n *overview.Node) g.Node {
	return h.Article(h.Class("card n node"), h.ID("n-"+n.Name), h.Data("s", strings.Join(n.States(), " ")),
		h.Header(h.H3(h.A(h.Href(s.at("nodes", n.Name)), g.Text(n.Name))), nodeBadges(n)),
		h.Ul(h.Class("gpus"), g.Map(n.GPUs, func(gpu cluster.GPU) g.Node {
			return h.Li(h.A(h.Href(s.at("nodes", n.Name, gpu.Name)), h.Title(gpu.Name), g.Text(overview.ShortName(gpu.Name))), bar(&gpu))
		})),
		s.room("free: ", n.Free()),
	)
}

// nodeBadges returns the states of a node and of its profile.
func nodeBadges(n *overview.Node) g.Node {
	out := g.Group{some(n.State(), func(state string) g.Node { return badge(state, "bad") })}
	p := n.Profile
	if p == nil {
		return out
	}
	out = append(out, some(p.Title(), func(title string) g.Node { return badge(title) }))
	switch {
	case p.Switching():
		out = append(out, badge(string(p.State), "warn"))
	case p.State == v1beta1.Failed:
		out = append(out, badge("switch failed", "bad"))
	}
	return out
}
