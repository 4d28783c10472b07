package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dev/tranche/test/simulator/memory"
)

func TestRemoveStaleSockets(t *testing.T) {
	dir := memory.SocketDir(t)
	living := []string{
		filepath.Join(dir, "gpu.tranche.dev-b-reg.sock"),
		filepath.Join(dir, "other.example.com-reg.sock"),
		filepath.Join(dir, "dra-b.sock"),
	}
	dead := []string{
		filepath.Join(dir, "gpu.tranche.dev-a-reg.sock"),
		filepath.Join(dir, "gpu.tranche.dev-reg.sock"),
		filepath.Join(dir, "dra-a.sock"),
	}
	for _, path := range living {
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
	}
	for _, path := range dead {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false) // as a killed process leaves it
		require.NoError(t, l.Close())
	}
	require.NoError(t, RemoveStaleSockets(t.Context(), filepath.Join(dir, "gpu.tranche.dev*-reg.sock"), filepath.Join(dir, "dra*.sock")))
	for _, path := range living {
		assert.FileExists(t, path)
	}
	for _, path := range dead {
		assert.NoFileExists(t, path)
	}
	require.ErrorIs(t, RemoveStaleSockets(t.Context(), "["), filepath.ErrBadPattern)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "dra.sock", "in-the-way"), 0o700))
	require.ErrorContains(t, RemoveStaleSockets(t.Context(), filepath.Join(dir, "dra.sock")), "remove the socket of a plugin that was killed: ")
}

func TestRegistration(t *testing.T) {
	var r Registration
	require.EqualError(t, r.Ready(), "the plugin has not checked the GPUs yet")
	r.SetIdle()
	require.NoError(t, r.Ready(), "a node without a GPU is ready")
	again := 0
	r.Expect(func() { again++ })
	require.EqualError(t, r.Ready(), "the kubelet has not registered the plugin yet")

	call := func(request any) {
		answer, err := r.Interceptor(t.Context(), request, nil, func(context.Context, any) (any, error) { return "answer", assert.AnError })
		require.Equal(t, []any{"answer", assert.AnError}, []any{answer, err})
	}
	var _ grpc.UnaryServerInterceptor = r.Interceptor
	call(&registerapi.InfoRequest{})
	call(&registerapi.RegistrationStatus{PluginRegistered: false, Error: "unsupported"})
	require.Error(t, r.Ready())
	assert.Zero(t, again)
	call(&registerapi.RegistrationStatus{PluginRegistered: true})
	call(&registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, r.Ready())
	assert.Equal(t, 2, again, "at each registration")
	call(&registerapi.RegistrationStatus{PluginRegistered: false})
	require.Error(t, r.Ready())
}
