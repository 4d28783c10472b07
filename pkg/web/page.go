package web

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/web/view"
)

// page is what is shown at a path: blocks, which are updated one by one.
type page struct {
	title, nav string
	crumbs     []link
	blocks     []block
}

// block is an element with an id. A block with items is sent again only if its shape has changed,
// otherwise those of its items that have.
type block struct {
	template string
	data     any
	items    []item
	// list is put around the items, as data of the template.
	list func(items []template.HTML) any
}

// item is an element of a block, with the version of the snapshot in which it changed last.
type item struct {
	version uint64
	draw    func() (template.HTML, error)
}

type link struct{ Name, Path string }

var links = []link{{"Fleet", "/"}, {"Pending", "/pending"}, {"Rollouts", "/rollouts"}, {"What fits", "/fits"}}

// layout is the data of the template of the same name.
type layout struct {
	Title, Nav, Base, Path, Since, User string
	Live                                bool
	Links, Crumbs                       []link
	Blocks                              []template.HTML
}

// scope is what pages are made of.
type scope struct {
	*view.Snapshot
	view.Viewer
	now   time.Time
	query url.Values
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	v, err := s.viewer(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, s.Base)
	c := scope{s.Source.Snapshot(), v, s.Now(), r.URL.Query()}
	p, err := s.page(r.Context(), c, path)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if said, ok := p.blocks[0].data.(answered); ok && c.query.Has("answer") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		write(w, r, http.StatusOK, []byte(said.E.Summary))
		return
	}
	out := layout{Title: p.title, Nav: p.nav, Base: s.Base, Path: path, Since: s.mark(c.Version), User: s.user(r), Live: true, Links: links, Crumbs: p.crumbs}
	if r.URL.RawQuery != "" {
		out.Path += "?" + r.URL.RawQuery
	}
	for _, b := range p.blocks {
		html, err := s.draw(b)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		out.Blocks = append(out.Blocks, html)
	}
	data, err := s.render("layout", out)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	write(w, r, http.StatusOK, data)
}

// draw draws a block with all its items.
func (s *Server) draw(b block) (template.HTML, error) {
	data := b.data
	if b.list != nil {
		items := make([]template.HTML, 0, len(b.items))
		for _, i := range b.items {
			html, err := i.draw()
			if err != nil {
				return "", err
			}
			items = append(items, html)
		}
		data = b.list(items)
	}
	html, err := s.render(b.template, data)
	return template.HTML(html), err //nolint:gosec // a template made it
}

func (s *Server) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := s.templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("draw %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// tiles are the nodes of the heat map as they were drawn last.
type tiles struct {
	mu  sync.Mutex
	all map[string]drawn
}

type drawn struct {
	node *view.Node
	html template.HTML
}

// tile draws a node of the heat map, or takes what was drawn of it before. What a tile shows
// depends on the viewer's rights to nodes and profiles only.
func (s *Server) tile(name string, v view.Viewer, n *view.Node) (template.HTML, error) {
	key := fmt.Sprint(name, v.NoProfiles, v.NoNodes, n.Name)
	s.tiles.mu.Lock()
	known, ok := s.tiles.all[key]
	s.tiles.mu.Unlock()
	if ok && known.node == n {
		return known.html, nil
	}
	data, err := s.render(name, ofNode{Base: s.Base, N: v.Outline(n)})
	if err != nil {
		return "", err
	}
	html := template.HTML(data) //nolint:gosec // a template made it
	s.tiles.mu.Lock()
	defer s.tiles.mu.Unlock()
	s.tiles.all[key] = drawn{n, html}
	return html, nil
}
