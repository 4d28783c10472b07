package web

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/why"
)

// page is what is shown at a path: blocks, which are updated one by one.
type page struct {
	title, nav string
	crumbs     []link
	blocks     []block
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
	*overview.Snapshot
	overview.Viewer
	now   time.Time
	query url.Values
	// why is the explanation of the pod that the page is about.
	why *why.Explanation
	// requested is what pods request of the node that the page is about.
	requested requested
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	v, err := s.viewer(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, s.Base)
	c, err := s.prepare(r.Context(), scope{Snapshot: s.Source.Snapshot(), Viewer: v, now: s.Now(), query: r.URL.Query()}, path)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if c.why != nil && c.query.Has("answer") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, c.why.Summary) // the browser has gone
		return
	}
	html, err := s.draw(r, c, path)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	html.write(w, r, http.StatusOK)
}

// draw draws the page of a path.
func (s *Server) draw(r *http.Request, c scope, path string) (packed, error) {
	user := s.user(r)
	done, err := s.drawing(r.Context())
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := s.page(c, path)
	if err != nil {
		return nil, err
	}
	f := frame{title: p.title, nav: p.nav, path: path, since: s.mark(c.Version), user: user, live: true, links: links, crumbs: p.crumbs}
	if r.URL.RawQuery != "" {
		f.path += "?" + r.URL.RawQuery
	}
	for _, b := range p.blocks {
		f.blocks = append(f.blocks, b.whole)
	}
	return pack(s.layout(f)), nil
}

func render(n g.Node) string {
	var b strings.Builder
	_ = n.Render(&b) // a Builder takes everything
	return b.String()
}
