package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	g "maragu.dev/gomponents"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
)

// Source has the newest snapshot, and signals when there is another one.
type Source interface {
	Snapshot() *overview.Snapshot
	Subscribe() (changes <-chan struct{}, end func())
}

// Usage knows how busy GPUs are.
type Usage interface {
	// Node returns the use of a node's GPUs by their names, and why it is not known, or not any
	// more. It does not wait. What it says of claims is for who may see these.
	Node(node string) (map[string]overview.Usage, error)
	// Subscribe returns a channel that gets a value when there is more to say of a node.
	Subscribe(node string) (updates <-chan struct{}, end func())
}

// Options are the options of a server.
type Options struct {
	// Base is the path below which the page is served, without a slash at its end.
	Base   string
	Source Source
	// Viewer returns what the user of a request may see. A *RefusedError is shown to the user. nil:
	// everything.
	Viewer func(*http.Request) (overview.Viewer, error)
	// User is the name of the user of a request, who can sign out. If it is nil, nobody can.
	User func(*http.Request) string
	// Why explains a pod, nil if there is none. The user may list pods and claims of its namespace. It
	// may wait for the API server, as Viewer may.
	Why func(ctx context.Context, v overview.Viewer, namespace, pod string) (*why.Explanation, error)
	// Requested reads how much of a node's GPU memory and compute pods request. It may wait for the API
	// server. nil: that is not shown.
	Requested func(ctx context.Context, node string) (cluster.Requested, text.Unread)
	// Usage is nil if nothing is known.
	Usage Usage
	// Now is the clock.
	Now func() time.Time
}

// RefusedError is why a user may not see a page.
type RefusedError struct {
	Status      int
	Title, Text string
	// Command is what an administrator can do.
	Command string
}

func (r *RefusedError) Error() string { return r.Title + ": " + r.Text }

// Server serves the page.
type Server struct {
	Options
	// assets are files by their paths, names the same by their names.
	assets, names map[string]asset
	// instance distinguishes versions of this process from those of another.
	instance string
	answers  *answers
	// streams and draws have a value for each page that is kept up to date, or drawn.
	streams, draws chan struct{}
	mux            *http.ServeMux
}

// New returns a server.
func New(o Options) (*Server, error) {
	byName, byPath, err := readAssets()
	if err != nil {
		return nil, fmt.Errorf("read the files of the web page: %w", err)
	}
	s := &Server{
		Options: o, assets: byPath, names: byName, instance: rand.Text()[:8], answers: newAnswers(o.Now),
		streams: make(chan struct{}, maxStreams), draws: newDrawing(), mux: http.NewServeMux(),
	}
	s.mux.HandleFunc("GET "+o.Base+"/assets/{file}", s.serveAsset)
	s.mux.HandleFunc("GET "+o.Base+"/live", s.serveLive)
	s.mux.HandleFunc("GET "+o.Base+"/", s.servePage)
	return s, nil
}

// policy allows what this server serves, and nothing else: no inline code or style, no other
// host, no frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Protect(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Protect sets the headers of every answer.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	h.Set("Cache-Control", "no-store")
}

// viewer returns what the user of a request may see.
func (s *Server) viewer(r *http.Request) (overview.Viewer, error) {
	if s.Viewer == nil {
		return overview.Viewer{}, nil
	}
	return s.Viewer(r)
}

// refuse shows a page that says why there is nothing to see.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *RefusedError
	if !errors.As(err, &refusal) {
		refusal = &RefusedError{Status: http.StatusInternalServerError, Title: "The page cannot be shown", Text: err.Error()}
	}
	if r.URL.Query().Has("answer") {
		http.Error(w, refusal.Text, refusal.Status)
		return
	}
	page := s.layout(frame{title: refusal.Title, links: links, user: s.user(r), blocks: []g.Node{message(refusal)}})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	pack(page).write(w, r, refusal.Status)
}

func (s *Server) user(r *http.Request) string {
	if s.User == nil {
		return ""
	}
	return s.User(r)
}

// SignIn shows the form to sign in. The form posts to login, and goes on to a path of the page.
func (s *Server) SignIn(w http.ResponseWriter, r *http.Request, to, problem string) {
	page := s.layout(frame{title: "Sign in", blocks: []g.Node{s.login(to, problem)}})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	pack(page).write(w, r, http.StatusUnauthorized)
}
