package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

// Parts of several pages. Texts and the values of attributes are escaped by gomponents, the parts
// of a path by at and fit.

// at returns the path of a page: at("nodes", name).
func (s *Server) at(parts ...string) string {
	out := s.Base
	for _, p := range parts {
		out += "/" + url.PathEscape(p)
	}
	return out
}

// fit returns the path of what fits of a profile.
func (s *Server) fit(profile string) string {
	return s.at("fits") + "?profile=" + url.QueryEscape(profile)
}

// blockID returns the id of a block.
func blockID(id string) g.Node { return g.Group{h.ID(id), g.Attr("data-block")} }

// class has the words that are not empty.
func class(words ...string) g.Node {
	return h.Class(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
}

// when returns a word, or nothing.
func when(yes bool, word string) string {
	if yes {
		return word
	}
	return ""
}

// some returns what f makes of a text, if there is one.
func some(text string, f func(text string) g.Node) g.Node {
	if text == "" {
		return nil
	}
	return f(text)
}

// small returns a remark after something else, if there is one.
func small(before, text string) g.Node {
	return some(text, func(text string) g.Node { return g.Group{g.Text(" "), h.Small(g.Text(before + text))} })
}

func badge(text string, kinds ...string) g.Node {
	return h.Span(class(append([]string{"badge"}, kinds...)...), g.Text(text))
}

func note(text string, kinds ...string) g.Node {
	return h.P(class(append([]string{"note"}, kinds...)...), g.Text(text))
}

func quiet(text string) g.Node { return h.P(h.Class("quiet"), g.Text(text)) }

// between puts a separator between nodes.
func between(separator string, all []g.Node) g.Node {
	var out g.Group
	for i, n := range all {
		if i > 0 {
			out = append(out, g.Text(separator))
		}
		out = append(out, n)
	}
	return out
}

// room lists how much more fits, if anything does.
func (s *Server) room(label string, fits []cluster.Fit) g.Node {
	if len(fits) == 0 {
		return nil
	}
	links := g.Map(fits, func(f cluster.Fit) g.Node {
		return h.A(h.Href(s.fit(f.Label)), g.Text(f.Label+" ×"+num(f.Count)))
	})
	return h.P(h.Class("fits"), g.Text(label), between(" or ", links))
}

// bar draws the positions of a GPU.
func bar(gpu *cluster.GPU) g.Node {
	return h.Div(h.Class("bar"), h.Role("img"), h.Aria("label", barSays(gpu)), g.Map(gpu.Bar, func(seg cluster.Segment) g.Node {
		size := "w" + num(seg.Size)
		if seg.Left > 0 {
			held := max(1, int(100.5-100*seg.Left))
			return h.Span(class("seg", size, "shared", string(seg.Rest), when(held >= 50, "most")), h.Title(fmt.Sprintf("%s, %d %% held", seg.Label, held)),
				strip(rect("share", "", num(held))), h.B(g.Text(seg.Label)))
		}
		return h.Span(class("seg", size, segmentClass(seg)), h.Title(cmp.Or(seg.Label, overview.Position(seg.State))), g.Text(seg.Label))
	}))
}

// table scrolls if it is too wide.
func table(label string, head []g.Node, rows []g.Node) g.Node {
	return h.Div(h.Class("scroll"), h.TabIndex("0"), h.Role("region"), h.Aria("label", label),
		h.Table(h.THead(h.Tr(head...)), h.TBody(rows...)))
}

// th returns cells of a table's head.
func th(names ...string) []g.Node {
	return g.Map(names, func(name string) g.Node { return h.Th(g.Text(name)) })
}

// right returns a cell of numbers.
func right(cell func(...g.Node) g.Node, text string) g.Node { return cell(h.Class("r"), g.Text(text)) }

func rect(class, x, width string) g.Node {
	return g.El("rect", h.Class(class), g.If(x != "", g.Attr("x", x)), h.Width(width), h.Height("1"))
}

// strip returns a bar of rects, 100 wide.
func strip(rects ...g.Node) g.Node {
	return h.SVG(g.Attr("viewBox", "0 0 100 1"), g.Attr("preserveAspectRatio", "none"), h.Aria("hidden", "true"), g.Group(rects))
}
