package web

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
)

// gpu returns a GPU with its partitions and its last hour.
func (s *Server) gpu(c scope, node, name string) (*page, error) {
	n := c.Node(c.Find(node))
	if n == nil || n.GPU(name) == nil {
		return nil, errNotThere
	}
	gpu := n.GPU(name)
	usage, err := s.usage(node)
	use := usage[name]
	return &page{
		title: name + " on " + node, nav: "Fleet", crumbs: []link{{"Fleet", "/"}, {node, "/nodes/" + url.PathEscape(node)}, {name: name}},
		blocks: []block{{whole: s.gpuHead(gpu)}, {whole: partitions(gpu.Held, use)}, {whole: utilization(charts(use, c.now), err)}},
	}, nil
}

func (s *Server) usage(node string) (map[string]overview.Usage, error) {
	if s.Usage == nil {
		return nil, errNoUsage
	}
	return s.Usage.Node(node)
}

func (s *Server) gpuHead(gpu *cluster.GPU) g.Node {
	about := overview.ProductName(gpu.ProductName)
	if gpu.MemoryBytes > 0 {
		about += ", " + text.Bytes(int64(gpu.MemoryBytes))
	}
	if gpu.PCIBusID != "" {
		about += ", PCI " + gpu.PCIBusID
	}
	return h.Section(blockID("gpuhead"), h.Class("head"),
		h.H1(g.Text(gpu.Name)), gpuBadges(gpu),
		h.P(g.Text(about), some(gpu.UUID, func(uuid string) g.Node { return g.Group{g.Text(", "), h.Code(g.Text(uuid))} })),
		h.Div(h.Class("big"), bar(gpu)),
		gpuNotes(gpu),
		s.room("Free: ", cluster.Plain(gpu.Fits)),
	)
}

// partitions lists the held devices, with a row for each holder.
func partitions(held []cluster.Held, use overview.Usage) g.Node {
	list := quiet("No claim holds a device of this GPU.")
	if len(held) > 0 {
		shared := slices.ContainsFunc(held, func(d cluster.Held) bool { return d.ShareUnit != "" })
		head := g.Group(th("Partition", "Holder"))
		if shared {
			head = append(head, th("Has")...)
		}
		list = table("Partitions", append(head, th("Uses now")...), g.Map(held, func(d cluster.Held) g.Node { return holderRows(d, shared, use) }))
	}
	return h.Section(blockID("partitions"), h.H2(g.Text("Partitions")), list)
}

func holderRows(d cluster.Held, shared bool, use overview.Usage) g.Node {
	cells := func(who g.Node, has, uses string) g.Group {
		return g.Group{h.Td(who), g.If(shared, h.Td(g.Text(has))), h.Td(g.Text(uses))}
	}
	var rows []g.Group
	for _, o := range d.Holders {
		uses := use.ByClaim[d.Device+"/"+o.Namespace+"/"+o.Claim]
		if o.Admin || o.Hidden {
			uses = "" // who only watches uses nothing
		}
		rows = append(rows, cells(holder(o), amounts(o.Consumed), uses))
	}
	if left := amounts(d.Left); left != "" {
		rows = append(rows, cells(h.Em(g.Text("left")), left, ""))
	}
	device := h.Td(h.RowSpan(num(len(rows))), key(d), h.B(g.Text(d.Label)), unpublished(d), h.Br(), h.Code(g.Text(d.Device)))
	var out g.Group
	for i, row := range rows {
		out = append(out, h.Tr(g.If(i == 0, device), row))
	}
	return out
}

// utilization draws the last hour, and says why it is not known, or not any more.
func utilization(charts []chart, reason error) g.Node {
	known, begin := g.Node(nil), "Not known: "
	if len(charts) > 0 {
		known, begin = h.Div(h.Class("charts"), g.Map(charts, chart.node)), "Not known now: "
	}
	if reason == nil && known == nil {
		reason = errNotReported
	}
	return h.Section(blockID("usage"), h.H2(g.Text("Utilization")), known, unknown(begin, reason))
}

func unknown(begin string, reason error) g.Node {
	if reason == nil {
		return nil
	}
	return quiet(begin + reason.Error() + ".")
}

func (c chart) node() g.Node {
	line := func(y int) g.Node {
		at := strconv.Itoa(y)
		return g.El("line", h.Class("gridline"), g.Attr("x1", "0"), g.Attr("x2", strconv.Itoa(chartWidth)), g.Attr("y1", at), g.Attr("y2", at))
	}
	return h.Figure(h.Class("card"),
		h.FigCaption(h.B(g.Text(c.Title)), g.Text(" "), h.Span(g.Text(c.Now))),
		h.SVG(h.Class("chart"), g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", chartWidth, chartHeight)), g.Attr("preserveAspectRatio", "none"), h.Role("img"),
			h.Aria("label", fmt.Sprintf("%s: %s now; %s", c.Title, c.Now, c.Says)),
			g.Map(c.Lines, line),
			g.El("path", h.Class("area"), g.Attr("d", c.Area)),
			g.El("path", h.Class("curve"), g.Attr("d", c.Curve)),
		),
		h.Small(h.Span(g.Text(c.From)), h.Span(g.Text("now"))),
	)
}

// gpuBadges returns the modes of a GPU.
func gpuBadges(gpu *cluster.GPU) g.Node {
	plain := func(text string) g.Node { return badge(text) }
	out := g.Group{some(cluster.ModeText(gpu.HardwareMode), plain), some(gpu.MemoryMode, plain)}
	if m := gpu.Mode; m != nil {
		out = append(out, badge(fmt.Sprintf("%s: %d of %d held", m.Name, m.Held, m.Of)))
	}
	return out
}

// gpuNotes returns what keeps claims off a GPU, or soon will.
func gpuNotes(gpu *cluster.GPU) g.Node {
	return g.Group{
		g.Map(overview.NotesOf(gpu), func(n overview.Note) g.Node { return note(cluster.Sentence(n.About+n.Text), string(n.Tone)) }),
		g.Map(gpu.Taints, func(t cluster.Taint) g.Node {
			n, source := overview.TaintNote(&t)
			return note(text.Capital(n.About)+n.Text+" ("+source+").", string(n.Tone))
		}),
	}
}

// key returns the color of a held device.
func key(d cluster.Held) g.Node {
	return h.I(class("key", kindClass(d.Label, d.Type, len(d.Positions))))
}

// holder returns who holds a device.
func holder(o cluster.Holder) g.Node {
	names, claim := overview.Who(&o)
	who := g.Text(strings.Join(names, ", "))
	if len(o.Consumers()) == 0 {
		who = h.Em(who)
	}
	return g.Group{g.Text(when(o.Admin, "watched by ")), who, small("claim ", claim)}
}

func unpublished(d cluster.Held) g.Node {
	return g.If(d.Unpublished, g.Group{g.Text(" "), h.Small(h.Class("bad"), g.Text("no longer published"))})
}

func amounts(of cluster.Amounts) string { return strings.Join(of.Texts(false), ", ") }
