package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// headerTime is how long a client may take to send the header of a request, bodyTime all of it,
	// and the TLS handshake; answerTime how long the answer may take, with the time in which the
	// client receives it.
	headerTime, bodyTime, answerTime = 5 * time.Second, 10 * time.Second, 40 * time.Second
	// idleTime is how long a connection is kept between two requests: longer than most intervals
	// between two scrapes.
	idleTime = 2 * time.Minute
	// stuckTime is how long a connection of HTTP/2 may receive nothing of what was sent.
	stuckTime = 20 * time.Second
	// largestHeader is in bytes; a token has up to 16 KiB.
	largestHeader = 32 << 10
	// mostAtOnce is how many requests of one connection of HTTP/2 are under way at once.
	mostAtOnce = 16
	// Few is how many connections a server has that only Prometheus and the kubelet call.
	Few = 32
)

// New returns a server with deadlines. A handler that takes longer to answer sets the deadline
// for writing by http.ResponseController.
func New(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: largestHeader, ConnContext: remember,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostAtOnce, WriteByteTimeout: stuckTime, SendPingTimeout: idleTime, PingTimeout: stuckTime},
	}
}

// Run serves until ctx ends, over TLS if the server has a configuration for it. Then requests
// under way end.
func Run(ctx context.Context, server *http.Server, l net.Listener) error {
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	err := serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

// Endpoints serves /metrics, if there are any, /healthz, which succeeds while the process runs,
// and /readyz, which succeeds if ready returns nil.
func Endpoints(metrics http.Handler, ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
