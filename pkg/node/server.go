package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/serve"
)

// serveHTTP serves metrics and health endpoints until ctx ends. /healthz succeeds while the
// process runs, /readyz if ready returns nil. If the server fails later, the plugin ends. stop ends
// it, and returns when nothing listens any more.
func serveHTTP(ctx context.Context, address string, m *telemetry.Metrics, ready func() error, fail context.CancelCauseFunc) (stop func(), err error) {
	l, err := serve.Listen(ctx, "tcp", address, serve.Few)
	if err != nil {
		return nil, fmt.Errorf("serve metrics and health: %w", err)
	}
	server := serve.New(serve.Endpoints(m.Handler(), func(context.Context) error { return ready() }))
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve.Run(ctx, server, l); err != nil {
			fail(err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}, nil
}
