package handoff

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemoveStaleSockets(t *testing.T) {
	// Paths of sockets are limited to 108 characters.
	dir, err := os.MkdirTemp("", "tr")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })

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
}
