package node

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/serve"
)

// serveHTTP serves metrics and health endpoints until ctx ends. /healthz succeeds while the
// process runs, /readyz if ready returns nil. If the server fails later, the plugin ends.
func serveHTTP(ctx context.Context, address string, m *telemetry.Metrics, ready func() error, stop context.CancelCauseFunc) error {
	l, err := serve.Listen(ctx, "tcp", address, serve.Few)
	if err != nil {
		return fmt.Errorf("serve metrics and health: %w", err)
	}
	server := serve.New(serve.Endpoints(m.Handler(), func(context.Context) error { return ready() }))
	go func() {
		if err := serve.Run(ctx, server, l); err != nil {
			stop(err)
		}
	}()
	return nil
}
