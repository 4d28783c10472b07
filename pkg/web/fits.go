package web

import (
	"slices"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/web/view"
)

// fits is what fits now of a profile that is typed in.
func (s *Server) fits(c scope) *page {
	typed := c.query.Get("profile")
	var room g.Node
	if typed != "" {
		room = s.roomFor(view.RoomFor(c.Snapshot, typed))
	}
	return &page{title: "What fits now", nav: "What fits", blocks: []block{{whole: s.fitsForm(typed, offered(c.Snapshot))}, {whole: h.Section(blockID("fits"), room)}}}
}

// offered are the kinds without variants, for a short list.
func offered(c *view.Snapshot) []view.Kind {
	return slices.DeleteFunc(slices.Clone(c.Kinds), func(k view.Kind) bool { return cluster.BaseProfile(k.Label) != "" })
}

func (s *Server) fitsForm(typed string, kinds []view.Kind) g.Node {
	return h.Section(blockID("fitsform"), h.Class("head"), h.H1(g.Text("What fits now")),
		h.Form(h.Class("ask"), h.Method("get"), h.Action(s.at("fits")),
			h.Label(h.For("profile"), g.Text("Profile")),
			h.Input(h.ID("profile"), h.Name("profile"), h.List("profiles"), h.Value(typed), h.Placeholder("1g.10gb"), h.AutoComplete("off"), g.Attr("spellcheck", "false"), h.Required()),
			h.DataList(h.ID("profiles"), g.Map(kinds, func(k view.Kind) g.Node { return h.Option(h.Value(k.Label)) })),
			h.Button(h.Class("primary"), g.Text("Count")),
		),
		h.P(h.Class("suggest"), g.Map(kinds, func(k view.Kind) g.Node {
			return h.A(h.Href(s.fit(k.Label)), g.If(k.Label == typed, h.Aria("current", "true")), g.Text(k.Label))
		})),
	)
}

func (s *Server) roomFor(r view.Room) g.Node {
	if !r.Known {
		return note("No node publishes " + r.Kind.Label + ".")
	}
	count := s.places(r)
	if r.Uncertain {
		count = note("You are not allowed to see all claims, so it is not known what is free.")
	}
	return g.Group{count, h.H2(g.Text("Ask for it")), h.Div(h.Class("copy"),
		h.Button(h.Type("button"), h.Data("copy", "claim"), g.Text("Copy")),
		h.Pre(h.ID("claim"), h.Code(g.Text(r.Claim))),
	)}
}

// places says how many more fit, and where.
func (s *Server) places(r view.Room) g.Node {
	says := "more " + r.Kind.Label + " fit" + when(r.Count == 1, "s") + " now"
	if n := len(r.Places); n > 0 {
		says += ", on " + num(n) + " node" + plural(n)
	}
	shown := r.Places[:min(len(r.Places), mostPlaces)]
	return g.Group{
		h.P(h.Class("answerbig"), h.B(g.Text(num(r.Count))), g.Text(" "), h.Span(g.Text(says))),
		quiet("If no other kind is allocated. A taint or the pod's own rules can still keep it off a node."),
		g.If(len(shown) > 0, h.Div(h.Class("scroll"), h.Table(h.Class("places"),
			h.THead(h.Tr(h.Th(g.Text("Node")), right(h.Th, "Fits"))),
			h.TBody(g.Map(shown, func(p view.Place) g.Node {
				return h.Tr(h.Td(h.A(h.Href(s.at("nodes", p.Node)), g.Text(p.Node))), right(h.Td, strconv.Itoa(p.Count)))
			})),
		))),
		moreNodes(len(r.Places) - len(shown)),
	}
}
