package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/renameio/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReplaced: renames count, in folders that come later, too; files that are
// written in place or removed do not.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	watch, err := watchReplaced(dir)
	require.NoError(t, err)
	defer watch.close() //nolint:errcheck // a test
	count := func(what string, want int) {
		t.Helper()
		names, err := watch.names()
		require.NoError(t, err)
		assert.Len(t, names, want, what)
	}
	replace := func(name string) {
		t.Helper()
		require.NoError(t, renameio.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600, renameio.WithTempDir(filepath.Dir(filepath.Join(dir, name)))))
	}
	count("nothing yet", 0)
	replace("a")
	replace("a")
	replace("below/b")
	count("three renames", 3)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c"), nil, 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	count("no rename", 0)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "new", "newer"), 0o700))
	replace("new/newer/d")
	count("in a new folder", 1)
	replace("new/newer/d")
	count("in a folder that was new", 1)
}
