package node

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTwoPluginsOnOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "plugin")
	unlock, err := lockFolder(dir)
	require.NoError(t, err)

	host, err := os.Hostname()
	require.NoError(t, err)
	_, err = lockFolder(dir)
	require.EqualError(t, err, "another Tranche plugin (pid "+strconv.Itoa(os.Getpid())+" of "+host+") runs on this node and holds "+
		filepath.Join(dir, "plugin.lock")+": end it first")

	unlock()
	unlock, err = lockFolder(dir)
	require.NoError(t, err)
	unlock()
}

func TestLockFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := lockFolder(file)
	require.ErrorContains(t, err, "create the plugin's folder")

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plugin.lock"), 0o700))
	_, err = lockFolder(dir)
	require.ErrorContains(t, err, "open the plugin's lock")
}
