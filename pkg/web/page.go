package web

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"

	"github.com/tranche-dev/tranche/pkg/web/view"
)

// page is what is shown at a path: blocks, which are updated one by one.
type page struct {
	title, nav string
	crumbs     []link
	blocks     []block
	// answer is the text of the page, for a script that asks for it alone.
	answer string
}

// block is an element with an id. Of a block with items, its head is sent again if that has
// changed, and those of its items that have.
type block struct {
	whole, head g.Node
	items       []item
}

// item is an element of a block, with the version of the snapshot in which it changed last.
type item struct {
	version uint64
	node    g.Node
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
	if p.answer != "" && c.query.Has("answer") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		write(w, r, http.StatusOK, []byte(p.answer))
		return
	}
	f := frame{title: p.title, nav: p.nav, path: path, since: s.mark(c.Version), user: s.user(r), live: true, links: links, crumbs: p.crumbs}
	if r.URL.RawQuery != "" {
		f.path += "?" + r.URL.RawQuery
	}
	for _, b := range p.blocks {
		f.blocks = append(f.blocks, b.whole)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	write(w, r, http.StatusOK, []byte(render(s.layout(f))))
}

func render(n g.Node) string {
	var b strings.Builder
	_ = n.Render(&b) // a Builder takes everything
	return b.String()
}

// tiles are the nodes of the heat map as they were drawn last.
type tiles struct {
	mu  sync.Mutex
	all map[string]drawn
}

type drawn struct {
	node *view.Node
	html string
}

// tile is a node of the heat map, as draw draws it. It is drawn when it is written, unless it has
// been drawn before. What a tile shows depends on the viewer's rights to nodes and profiles only.
func (s *Server) tile(kind string, draw func(*view.Node) g.Node, v view.Viewer, n *view.Node) g.Node {
	return g.NodeFunc(func(w io.Writer) error {
		key := fmt.Sprint(kind, v.NoProfiles, v.NoNodes, n.Name)
		s.tiles.mu.Lock()
		known := s.tiles.all[key]
		s.tiles.mu.Unlock()
		if known.node != n {
			known = drawn{n, render(draw(v.Outline(n)))}
			s.tiles.mu.Lock()
			s.tiles.all[key] = known
			s.tiles.mu.Unlock()
		}
		_, err := io.WriteString(w, known.html)
		return err
	})
}
