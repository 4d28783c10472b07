package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tranche-dev/tranche/pkg/node/telemetry"
)

// serveHTTP serves metrics and health endpoints until ctx ends. /healthz succeeds while the
// process runs, /readyz if ready returns nil. If the server fails later, the plugin ends.
func serveHTTP(ctx context.Context, address string, m *telemetry.Metrics, ready func() error, stop context.CancelCauseFunc) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for metrics and health on %s: %w", address, err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("serve metrics and health on %s: %w", address, err))
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}
