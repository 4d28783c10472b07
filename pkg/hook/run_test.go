package hook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// container is what the runtime passes, and a /proc with the container's process.
func container(t *testing.T) (state, proc string) {
	t.Helper()
	proc = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(proc, "4711"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "4711/cgroup"), []byte("0::"+group+"\n"), 0o600))
	return `{"id":"c","pid":4711}`, proc
}

// serve answers at the socket of a plugin until the test ends.
func serve(t *testing.T, dir, plugin string, answer http.HandlerFunc) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", Socket(dir, plugin))
	require.NoError(t, err)
	server := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it is closed
	t.Cleanup(func() { server.Close() })
}

func TestRun(t *testing.T) {
	state, proc := container(t)
	dir := memory.SocketDir(t)
	var asked []Request
	// One of two plugins has ended and has left its socket.
	require.NoError(t, os.WriteFile(Socket(dir, "a"), nil, 0o600))
	serve(t, dir, "b", func(w http.ResponseWriter, r *http.Request) {
		request, err := ParseRequest(r.Body)
		assert.NoError(t, err)
		asked = append(asked, request)
		if len(asked) > 1 {
			http.Error(w, "claim x is not prepared", http.StatusConflict)
		}
	})
	run := func() error { return Run(t.Context(), Args(dir, uid, device)[1:], strings.NewReader(state), proc) }
	require.NoError(t, run())
	assert.Equal(t, []Request{{uid, device, group}}, asked)
	require.EqualError(t, run(), "claim x is not prepared", "at once, in the plugin's words")
}

// A plugin that starts meanwhile is in time. One that does not come lets the container not start.
func TestRunWithoutPlugin(t *testing.T) {
	state, proc := container(t)
	dir := memory.SocketDir(t)
	run := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*retryInterval)
		defer cancel()
		return Run(ctx, Args(dir, uid, device)[1:], strings.NewReader(state), proc)
	}
	err := run()
	require.ErrorContains(t, err, "Tranche's kubelet plugin does not answer on this node")
	require.ErrorContains(t, err, "no "+dir)
	require.NoError(t, os.WriteFile(Socket(dir, "z"), nil, 0o600))
	require.ErrorContains(t, run(), "does not answer on this node", "it has ended, and has left its socket")
	ended := make(chan error)
	go func() { ended <- Run(t.Context(), Args(dir, uid, device)[1:], strings.NewReader(state), proc) }()
	serve(t, dir, "a", func(http.ResponseWriter, *http.Request) {})
	require.NoError(t, <-ended)
}

func TestRunRefuses(t *testing.T) {
	state, proc := container(t)
	for name, tt := range map[string]struct {
		args       []string
		state, err string
	}{
		"an unknown argument":   {[]string{"--bytes=1"}, state, "bytes"},
		"no claim":              {Args("/x", "", device)[1:], state, "is not the UID of a claim"},
		"no state":              {Args("/x", uid, device)[1:], "", "read the container's state"},
		"a process that is not": {Args("/x", uid, device)[1:], `{"pid":4712}`, "find the container's control group"},
	} {
		err := Run(t.Context(), tt.args, strings.NewReader(tt.state), proc)
		require.ErrorContains(t, err, tt.err, name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(proc, "4711/cgroup"), []byte("4:memory:/a\n"), 0o600))
	require.ErrorContains(t, Run(t.Context(), Args("/x", uid, device)[1:], strings.NewReader(state), proc), "no control group of cgroup v2")
}

// BenchmarkRun is what a start of a container waits for, beside the start of the program.
func BenchmarkRun(b *testing.B) {
	dir := memory.SocketDir(b)
	require.NoError(b, os.Mkdir(filepath.Join(dir, "4711"), 0o700))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "4711/cgroup"), []byte("0::"+group+"\n"), 0o600))
	listener, err := new(net.ListenConfig).Listen(b.Context(), "unix", Socket(dir, "a"))
	require.NoError(b, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w) }), ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it is closed
	defer server.Close()
	for b.Loop() {
		require.NoError(b, Run(b.Context(), Args(dir, uid, device)[1:], strings.NewReader(`{"pid":4711}`), dir))
	}
}
