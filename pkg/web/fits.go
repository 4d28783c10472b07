package web

import (
	"slices"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// fits returns what fits now of a profile that is typed in.
func (s *Server) fits(c scope) *page {
	typed := c.query.Get("profile")
	var room g.Node
	if typed != "" {
		room = s.roomFor(overview.RoomFor(c.Snapshot, typed))
	}
	return &page{title: "What fits now", nav: "What fits", blocks: []block{{whole: s.fitsForm(typed, offered(c.Snapshot))}, {whole: h.Section(blockID("fits"), room)}}}
}

// offered returns the kinds without variants, for a short list.
func offered(c *overview.Snapshot) []overview.Kind {
	return slices.DeleteFunc(slices.Clone(c.Kinds), func(k overview.Kind) bool { return cluster.BaseProfile(k.Label) != "" })
}

func (s *Server) fitsForm(typed string, kinds []overview.Kind) g.Node {
	return h.Section(blockID("fitsform"), h.Class("head"), h.H1(g.Text("What fits now")),
		h.Form(h.Class("ask"), h.Method("get"), h.Action(s.at("fits")),
			h.Label(h.For("profile"), g.Text("Profile or amount")),
			h.Input(h.ID("profile"), h.Name("profile"), h.List("profiles"), h.Value(typed), h.Placeholder("1g.10gb"), h.AutoComplete("off"), g.Attr("spellcheck", "false"), h.Required()),
			h.DataList(h.ID("profiles"), g.Map(kinds, func(k overview.Kind) g.Node { return h.Option(h.Value(k.Label)) })),
			h.Button(h.Class("primary"), g.Text("Count")),
		),
		h.P(h.Class("suggest"), g.Map(kinds, func(k overview.Kind) g.Node {
			return h.A(h.Href(s.fit(k.Label)), g.If(k.Label == typed, h.Aria("current", "true")), g.Text(k.Label))
		})),
		s.examples(kinds),
	)
}

// examples say how to type a share, if there are any.
func (s *Server) examples(kinds []overview.Kind) g.Node {
	var typed []string
	for _, k := range kinds {
		example := map[gpu.Basis]string{gpu.ByMemory: "8Gi", gpu.ByFraction: "0.5"}[k.By]
		if k.Profile != "" {
			example += " of " + k.Profile
		}
		if k.By != "" {
			typed = append(typed, example)
		}
	}
	if len(typed) == 0 {
		return nil
	}
	typed = append(typed, typed[0]+", 4 clients")
	return h.P(h.Class("quiet"), g.Text("A share is an amount of memory, or a fraction: "),
		between(" · ", g.Map(typed, func(t string) g.Node { return h.A(h.Href(s.fit(t)), g.Text(t)) })))
}

func (s *Server) roomFor(r overview.Room) g.Node {
	switch {
	case r.Wrong != "":
		return note("This is no share: " + r.Wrong + ".")
	case r.Never != "":
		return note(r.Never)
	case !r.Known && r.Share != nil:
		return g.Group{noShares(r), s.partitionsFor(r)}
	case !r.Known:
		return note("No node publishes " + r.Kind.Label + ".")
	}
	count := counted(r)
	if r.Uncertain {
		count = note("You are not allowed to see all claims, so it is not known what is free.")
	}
	return g.Group{count, h.Div(h.Class("beside"),
		h.Div(h.H2(g.Text("Ask for it")), h.Div(h.Class("copy"),
			h.Button(h.Type("button"), h.Data("copy", "claim"), g.Text("Copy")),
			h.Pre(h.ID("claim"), h.Code(g.Text(r.Claim))),
		)),
		h.Div(s.partitionsFor(r), s.places(r.Places)),
	)}
}

// noShares says how an administrator enables shares that no node publishes.
func noShares(r overview.Room) g.Node {
	none, enable := "No node publishes shares of GPUs.", "sharing.wholeGPUs of the PartitionProfile is false, or the API server lacks the feature gate DRAConsumableCapacity: the events of the nodes tell."
	switch {
	case r.Share.Profile != "" && r.Share.By == gpu.ByFraction:
		none, enable = "No node publishes fraction shares of "+r.Share.Profile+".", "An administrator lists the profile in sharing.partitions.profiles of a PartitionProfile, with Fraction in sharing.partitions.units."
	case r.Share.Profile != "":
		none, enable = "No node publishes memory shares of "+r.Share.Profile+".", "An administrator lists the profile in sharing.partitions.profiles of a PartitionProfile."
	case r.Shared:
		none = "No node publishes shares of whole GPUs."
	}
	return g.Group{note(none), quiet(enable)}
}

// counted says how many more fit.
func counted(r overview.Room) g.Node {
	says, each := "more "+r.Kind.Label+" fit"+when(r.Count == 1, "s")+" now", ""
	if r.Share != nil {
		says, each = "more share"+plural(r.Count)+" fit"+when(r.Count == 1, "s")+" now", "A share: "+r.Share.String()+"."
	}
	if n := len(r.Places); n > 0 {
		says += ", on " + num(n) + " node" + plural(n)
	}
	return g.Group{
		h.P(h.Class("answerbig"), h.B(g.Text(num(r.Count))), g.Text(" "), h.Span(g.Text(says))),
		some(each, quiet),
		quiet("If no other kind is allocated. A taint or the pod's own rules can still keep it off a node."),
	}
}

// partitionsFor lists what has the memory of a share without being shared, if anything does.
func (s *Server) partitionsFor(r overview.Room) g.Node {
	if len(r.Partitions) == 0 {
		return nil
	}
	head := append(th("Partition"), right(h.Th, "Memory"), right(h.Th, "Fits"))
	return g.Group{h.H2(g.Text("Not shared, with about as much memory or more")), table("Partitions", head, g.Map(r.Partitions, func(f cluster.Fit) g.Node {
		return h.Tr(h.Td(h.A(h.Href(s.fit(f.Label)), g.Text(f.Label))), right(h.Td, text.Bytes(int64(f.Memory))), right(h.Td, num(f.Count)))
	}))}
}

// places lists the nodes with room.
func (s *Server) places(all []overview.Place) g.Node {
	if len(all) == 0 {
		return nil
	}
	shown := all[:min(len(all), maxPlaces)]
	return g.Group{h.H2(g.Text("Where")), table("Nodes", append(th("Node"), right(h.Th, "Fits")), g.Map(shown, func(p overview.Place) g.Node {
		return h.Tr(h.Td(h.A(h.Href(s.at("nodes", p.Node)), g.Text(p.Node))), right(h.Td, num(p.Count)))
	})), moreNodes(len(all) - len(shown))}
}
