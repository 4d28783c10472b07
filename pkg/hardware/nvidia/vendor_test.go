package nvidia

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

func TestInstallHook(t *testing.T) {
	dir := t.TempDir()
	v := Vendor{CDIHook: filepath.Join(dir, "hook"), CDIHookPath: filepath.Join(dir, "host/nvidia-cdi-hook")}
	err := v.installHook()
	require.ErrorContains(t, err, "read the program for CDI hooks")

	require.NoError(t, os.WriteFile(v.CDIHook, []byte("one"), 0o600))
	err = v.installHook()
	require.ErrorContains(t, err, "install the program for CDI hooks on the host")

	require.NoError(t, os.MkdirAll(filepath.Dir(v.CDIHookPath), 0o750))
	path := v.CDIHookPath
	require.NoError(t, v.installHook())
	first, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), first.Mode().Perm())

	// The same again touches nothing: containers may be running it.
	err = v.installHook()
	require.NoError(t, err)
	again, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(first, again))

	// Another one replaces it in one step: who runs the old one is not
	// disturbed ("text file busy").
	running, err := os.Open(path)
	require.NoError(t, err)
	defer running.Close()
	require.NoError(t, os.WriteFile(v.CDIHook, []byte("two"), 0o600))
	err = v.installHook()
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data))
	old := make([]byte, 3)
	_, err = running.Read(old)
	require.NoError(t, err)
	assert.Equal(t, "one", string(old))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	err = v.installHook()
	require.ErrorContains(t, err, "install the program for CDI hooks on the host")
}

// A node without NVIDIA's driver is told so, and does not get NVIDIA's hook.
func TestOpenWithoutDriver(t *testing.T) {
	v := Vendor{HostRoot: t.TempDir(), CDIHook: "/does/not/exist", CDIHookPath: filepath.Join(t.TempDir(), "hook")}
	_, err := v.Open(t.Context())
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	require.ErrorContains(t, err, "install the NVIDIA driver on this node")
	assert.NoFileExists(t, v.CDIHookPath)
}
