package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// apiAnswering is a client of an API server that answers with fixed texts.
func apiAnswering(t *testing.T, answers map[string]string) *api {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return &api{url: server.URL, client: server.Client()}
}

func TestKubeletWorks(t *testing.T) {
	const own, known = "/api/v1/pods", "/api/v1/nodes/node-a/proxy/pods"
	for what, test := range map[string]struct {
		answers map[string]string
		want    string
	}{
		"knows all":        {map[string]string{own: `{"items": [{}]}`, known: `{"items": [{}]}`}, ""},
		"no pods":          {map[string]string{own: `{}`, known: `{"items": null}`}, ""},
		"knows none yet":   {map[string]string{own: `{"items": [{}]}`, known: `{"items": null}`}, "0 pods of 1"},
		"does not answer":  {map[string]string{own: `{}`}, "404"},
		"no API to ask it": {nil, "404"},
	} {
		t.Run(what, func(t *testing.T) {
			check(t, apiAnswering(t, test.answers).kubeletWorks(t.Context(), "node-a"), test.want)
		})
	}
}

func TestPodsReportedSince(t *testing.T) {
	booted := time.Date(2026, 1, 1, 12, 0, 0, 500, time.UTC)
	status := func(state string) string {
		return `{"items": [{"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": ` + state + `}]}}]}`
	}
	for what, test := range map[string]struct{ pods, want string }{
		"none":                   {`{}`, ""},
		"running from before":    {status(`{"running": {"startedAt": "2026-01-01T11:59:59Z"}}`), "pod p"},
		"running since":          {status(`{"running": {"startedAt": "2026-01-01T12:00:07Z"}}`), ""},
		"running since, at once": {status(`{"running": {"startedAt": "2026-01-01T12:00:00Z"}}`), ""},
		"waiting":                {status(`{"waiting": {"reason": "ContainerCreating"}}`), ""},
		"ended":                  {status(`{"terminated": {"exitCode": 255}}`), ""},
	} {
		t.Run(what, func(t *testing.T) {
			api := apiAnswering(t, map[string]string{"/api/v1/pods": test.pods})
			check(t, api.podsReportedSince(t.Context(), "node-a", booted), test.want)
		})
	}
}

func TestNodeReady(t *testing.T) {
	node := func(boot, taints, ready string) string {
		return `{"spec": {"taints": [` + taints + `]}, "status": {"nodeInfo": {"bootID": "` + boot + `"}, "conditions": [` + ready + `]}}`
	}
	const isReady = `{"type": "Ready", "status": "True"}`
	for what, test := range map[string]struct{ node, want string }{
		"ready":               {node("b2", "", isReady), ""},
		"from its last boot":  {node("b1", "", isReady), "boot b2"},
		"still tainted":       {node("b2", `{"key": "node.kubernetes.io/not-ready"}`, isReady), "tainted"},
		"another taint":       {node("b2", `{"key": "example.com/mine"}`, isReady), ""},
		"not ready":           {node("b2", "", `{"type": "Ready", "status": "False", "message": "no network"}`), "no network"},
		"not heard of so far": {node("b2", "", ""), "not reported"},
	} {
		t.Run(what, func(t *testing.T) {
			api := apiAnswering(t, map[string]string{"/api/v1/nodes/node-a": test.node})
			check(t, api.nodeReady(t.Context(), "node-a", "b2"), test.want)
		})
	}
}

func TestWait(t *testing.T) {
	cluster := open(t, t.TempDir())
	calls := 0
	require.NoError(t, cluster.wait(t.Context(), "three calls", time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return context.DeadlineExceeded
		}
		return nil
	}))
	never := func(context.Context) error { return http.ErrServerClosed }
	err := cluster.wait(t.Context(), "what never comes", 10*time.Millisecond, never)
	require.ErrorContains(t, err, "what never comes: not within 10ms")
	require.ErrorIs(t, err, http.ErrServerClosed)

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, cluster.wait(interrupted, "it", time.Minute, never), "interrupted")
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
}
