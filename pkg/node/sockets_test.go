package node

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
	c := &Config{KubeletDir: dir}
	require.NoError(t, os.MkdirAll(c.DataDir(), 0o750))
	require.NoError(t, os.MkdirAll(c.registrarDir(), 0o750))

	living := []string{
		filepath.Join(c.registrarDir(), "gpu.tranche.dev-b-reg.sock"),
		filepath.Join(c.registrarDir(), "other.example.com-reg.sock"),
		filepath.Join(c.DataDir(), "dra-b.sock"),
	}
	dead := []string{
		filepath.Join(c.registrarDir(), "gpu.tranche.dev-a-reg.sock"),
		filepath.Join(c.registrarDir(), "gpu.tranche.dev-reg.sock"),
		filepath.Join(c.DataDir(), "dra-a.sock"),
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
	require.NoError(t, removeStaleSockets(t.Context(), c))
	for _, path := range living {
		assert.FileExists(t, path)
	}
	for _, path := range dead {
		assert.NoFileExists(t, path)
	}
}
