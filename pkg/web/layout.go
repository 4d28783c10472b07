package web

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/pkg/text"
)

// frame is what is around the blocks of a page.
type frame struct {
	title, nav, user string
	// path and since are what live updates start from.
	path, since   string
	live          bool
	links, crumbs []link
	blocks        []g.Node
}

type link struct{ name, path string }

var links = []link{{"Fleet", "/"}, {"Pending", "/pending"}, {"Rollouts", "/rollouts"}, {"What fits", "/fits"}}

func (s *Server) layout(f frame) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.TitleEl(g.Text(f.title+" · Tranche")),
			h.Link(h.Rel("icon"), h.Href(s.asset("icon.svg")), h.Type("image/svg+xml")),
			h.Link(h.Rel("stylesheet"), h.Href(s.asset("style.css"))),
			h.Script(h.Src(s.asset("theme.js"))),
			h.Script(h.Src(s.asset("live.js")), h.Defer()),
		),
		h.Body(h.Data("base", s.Base), h.Data("path", f.path), h.Data("since", f.since), g.If(f.live, g.Attr("data-live")),
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to content")),
			s.top(f),
			h.Main(h.ID("main"), h.TabIndex("-1"), s.crumbs(f.crumbs), g.Group(f.blocks)),
			shortcuts(),
		),
	))
}

// top returns the header of all pages.
func (s *Server) top(f frame) g.Node {
	return h.Header(h.Class("top"),
		h.A(h.Class("brand"), h.Href(s.Base+"/"), h.Img(h.Src(s.asset("icon.svg")), h.Alt(""), h.Width("28"), h.Height("28")), h.Span(g.Text("Tranche"))),
		h.Nav(h.Aria("label", "Pages"), g.Map(f.links, func(l link) g.Node {
			return h.A(h.Href(s.Base+l.path), g.If(l.name == f.nav, h.Aria("current", "page")), g.Text(l.name))
		})),
		h.Div(h.Class("tools"),
			g.If(f.live, h.Span(h.Class("live"), h.ID("live"), h.Role("status"), h.I(h.Aria("hidden", "true")), h.Span(g.Text("live")))),
			tool("theme", "◐", "Light or dark (t)", "Switch between light and dark"),
			tool("help", "?", "Keyboard shortcuts (?)", "Keyboard shortcuts"),
			some(f.user, func(user string) g.Node {
				return h.Form(h.Method("post"), h.Action(s.at("logout")), h.Button(h.Class("plain"), h.Title("Signed in as "+user), g.Text("Sign out")))
			}),
		),
	)
}

func tool(id, sign, title, label string) g.Node {
	return h.Button(h.Type("button"), h.Class("plain"), h.ID(id), h.Title(title), h.Aria("label", label), g.Text(sign))
}

// crumbs returns the way to a page, which is the last of them.
func (s *Server) crumbs(way []link) g.Node {
	if len(way) == 0 {
		return nil
	}
	var out g.Group
	for i, c := range way {
		if i > 0 {
			out = append(out, h.I(h.Aria("hidden", "true"), g.Text("/")))
		}
		if c.path == "" {
			out = append(out, h.Span(h.Aria("current", "page"), g.Text(c.name)))
		} else {
			out = append(out, h.A(h.Href(s.Base+c.path), g.Text(c.name)))
		}
	}
	return h.Nav(h.Class("crumbs"), h.Aria("label", "Where you are"), out)
}

func shortcuts() g.Node {
	key := func(does string, keys ...string) g.Node {
		return g.Group{h.Dt(between(" ", g.Map(keys, func(k string) g.Node { return h.Kbd(g.Text(k)) }))), h.Dd(g.Text(does))}
	}
	return h.Dialog(h.ID("keys"), h.Aria("labelledby", "keys-title"),
		h.H2(h.ID("keys-title"), g.Text("Keyboard shortcuts")),
		h.Dl(
			key("Fleet", "g", "f"),
			key("Pending pods", "g", "p"),
			key("Rollouts", "g", "r"),
			key("What fits", "g", "w"),
			key("Filter, or type a profile", "/"),
			key("Move in the heat map", "←", "↑", "→", "↓"),
			key("Open the node", "Enter"),
			key("Light or dark", "t"),
		),
		h.Form(h.Method("dialog"), h.Button(g.Text("Close"))),
	)
}

// unread says what could not be read, and what the user may not see.
func unread(all []text.Unread) g.Node {
	return g.Map(text.Sentences(all), func(sentence string) g.Node { return note(sentence) })
}

// message is in place of a page that cannot be shown.
func message(r *RefusedError) g.Node {
	return h.Section(blockID("message"), h.Class("empty"), h.H1(g.Text(r.Title)), h.P(g.Text(r.Text)), command(r.Command))
}

// login asks for a token.
func (s *Server) login(to, problem string) g.Node {
	return h.Section(h.ID("login"), h.Class("card narrow"),
		h.H1(g.Text("Sign in")),
		h.P(g.Text("This page shows what your permissions allow. Paste a token of your user or of a service account:")),
		command("kubectl create token NAME -n NAMESPACE"),
		h.Form(h.Method("post"), h.Action(s.at("login")),
			h.Label(h.For("token"), g.Text("Token")),
			h.Input(h.ID("token"), h.Name("token"), h.Type("password"), h.AutoComplete("off"), h.Required(), h.AutoFocus()),
			h.Input(h.Type("hidden"), h.Name("to"), h.Value(to)),
			some(problem, func(text string) g.Node { return h.P(h.Class("bad"), h.Role("alert"), g.Text(text)) }),
			h.Button(h.Class("primary"), g.Text("Sign in")),
		),
	)
}

// command returns something to type, if there is anything.
func command(line string) g.Node {
	return some(line, func(line string) g.Node { return h.Pre(h.Code(g.Text(line))) })
}
