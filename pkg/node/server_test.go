package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// freeAddress is one that nobody listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url) //nolint:gosec,noctx // our own address
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestServeHTTP(t *testing.T) {
	var ready error
	address := freeAddress(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop, err := serveHTTP(ctx, address, telemetry.NewMetrics("node-a", func() []ledger.Record { return nil }), func() error { return ready }, cancel)
	require.NoError(t, err)

	code, body := get(t, "http://"+address+"/healthz")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ok\n", body)
	code, body = get(t, "http://"+address+"/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, `tranche_publish_errors_total{node="node-a"} 0`)
	code, _ = get(t, "http://"+address+"/readyz")
	assert.Equal(t, http.StatusOK, code)
	ready = errors.New("the kubelet has not registered the plugin yet")
	code, body = get(t, "http://"+address+"/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, ready.Error()+"\n", body)

	_, err = serveHTTP(t.Context(), address, telemetry.NewMetrics("node-a", nil), nil, cancel)
	require.ErrorContains(t, err, "serve metrics and health: listen on "+address)
	stop()
	_, err = http.Get("http://" + address + "/healthz") //nolint:bodyclose,gosec,noctx // there is none
	require.Error(t, err, "the address is free for the next plugin")
	require.NoError(t, ctx.Err(), "that it was stopped is no failure")

	// It also ends with the plugin.
	stop, err = serveHTTP(ctx, address, telemetry.NewMetrics("node-a", nil), func() error { return nil }, cancel)
	require.NoError(t, err)
	cancel(nil)
	stop()
}

// Also a plugin that measures nothing tells which GPUs there are.
func TestGPUsWithoutMeasurements(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.HTTPAddress = freeAddress(t)
	m.start()
	_, body := get(t, "http://"+m.config.HTTPAddress+"/metrics")
	assert.Contains(t, body, `tranche_gpu_info{`)
	assert.NotContains(t, body, `tranche_memory_total_bytes`)
}
