package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/serve"
)

// maxConnections is how many browsers and other programs of the machine are connected at once.
const maxConnections = 512

// Loopback serves one user of this machine. Other users of the machine, and pages of other sites
// in the user's browser, do not know the token in the path. A page that has its name resolve to
// this address (DNS rebinding) is recognized by the header Host.
type Loopback struct {
	listener *serve.Listener
	// Base is the path with the token.
	Base string
}

// Listen listens on a port of 127.0.0.1. 0 means any.
func Listen(ctx context.Context, port int) (*Loopback, error) {
	l, err := serve.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), maxConnections)
	if err != nil {
		return nil, fmt.Errorf("serve the page on this machine: %w", err)
	}
	return &Loopback{listener: l, Base: "/" + strings.ToLower(rand.Text())}, nil
}

// URL returns the address of the page. Who knows it may see the page.
func (l *Loopback) URL() string { return "http://" + l.listener.Addr().String() + l.Base + "/" }

// Serve serves until ctx ends.
func (l *Loopback) Serve(ctx context.Context, page http.Handler) error {
	return serve.Run(ctx, serve.New(l.guard(page)), l.listener)
}

func (l *Loopback) guard(page http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(l.listener.Addr().String())
	hosts := []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("localhost", port)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Protect(w.Header())
		given, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch {
		case !slices.Contains(hosts, r.Host):
			http.Error(w, "this page is served to this machine only", http.StatusMisdirectedRequest)
		case subtle.ConstantTimeCompare([]byte("/"+given), []byte(l.Base)) != 1:
			http.Error(w, "open the address that kubectl tranche ui has printed", http.StatusForbidden)
		default:
			defer serve.Hold(r.Context())()
			page.ServeHTTP(w, r)
		}
	})
}
