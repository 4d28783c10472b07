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
	"time"
)

// Loopback serves one user of this machine. Other users of the machine, and pages of other sites
// in the user's browser, do not know the token in the path. A page that has its name resolve to
// this address (DNS rebinding) is told by the header Host.
type Loopback struct {
	listener net.Listener
	// Base is the path with the token.
	Base string
}

// Listen listens on a port of 127.0.0.1; 0: any.
func Listen(ctx context.Context, port int) (*Loopback, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of this machine: %w", port, err)
	}
	return &Loopback{listener: l, Base: "/" + strings.ToLower(rand.Text())}, nil
}

// URL is the address of the page. Who knows it may see the page.
func (l *Loopback) URL() string { return "http://" + l.listener.Addr().String() + l.Base + "/" }

// Serve serves until ctx ends.
func (l *Loopback) Serve(ctx context.Context, page http.Handler) error {
	server := &http.Server{
		Handler: l.guard(page), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(l.listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
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
			page.ServeHTTP(w, r)
		}
	})
}
