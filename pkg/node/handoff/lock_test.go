package handoff

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTwoPluginsOnOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "plugin")
	unlock, err := Lock(t.Context(), dir, "tranche-system/tranche")
	require.NoError(t, err)

	host, err := os.Hostname()
	require.NoError(t, err)
	_, err = Lock(t.Context(), dir, "other/tranche")
	require.EqualError(t, err, "another Tranche plugin (installation tranche-system/tranche, pid "+strconv.Itoa(os.Getpid())+" of "+host+
		") runs on this node and holds "+filepath.Join(dir, "plugin.lock")+": end it first")

	unlock()
	unlock, err = Lock(t.Context(), dir, "other/tranche")
	require.NoError(t, err)
	unlock()
}

// A rolling update starts the new plugin while the old one still works.
func TestTwoPluginsOfOneInstallation(t *testing.T) {
	dir := t.TempDir()
	older, err := Lock(t.Context(), dir, "tranche-system/tranche")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plugin.lock"), []byte("tranche-system/tranche\npid 1 of a-pod-with-a-longer-name-than-the-newer-one\n"), 0o600))
	newer, err := Lock(t.Context(), dir, "tranche-system/tranche")
	require.NoError(t, err)
	older()
	host, err := os.Hostname()
	require.NoError(t, err)
	_, err = Lock(t.Context(), dir, "other/tranche")
	require.ErrorContains(t, err, "(installation tranche-system/tranche, pid "+strconv.Itoa(os.Getpid())+" of "+host+") runs", "the newer one is named")
	newer()
	other, err := Lock(t.Context(), dir, "other/tranche")
	require.NoError(t, err)
	other()
}

func TestLockFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Lock(t.Context(), file, "a")
	require.ErrorContains(t, err, "create the folder of the plugin")

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plugin.lock"), 0o700))
	_, err = Lock(t.Context(), dir, "a")
	require.ErrorContains(t, err, "lock "+dir)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	unlock, err := Lock(ctx, t.TempDir(), "a")
	if err == nil {
		unlock() // the first try comes before the look at the context
	} else {
		assert.ErrorIs(t, err, context.Canceled)
	}
}
