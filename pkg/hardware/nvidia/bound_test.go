package nvidia

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// A library that replaces the one that was opened, at the same place or at another, needs a new process.
func TestLibraryThatWasReplaced(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		return path
	}
	var b boundLibrary
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	require.ErrorIs(t, b.bind(path), fs.ErrNotExist)
	write("libnvidia-ml.so.1")
	require.NoError(t, b.bind(path))
	require.NoError(t, b.bind(path), "the same one")
	require.ErrorIs(t, b.bind(write("another")), hardware.ErrRestart)
	require.NoError(t, b.bind(path))
	require.NoError(t, os.Rename(write("next"), path))
	require.ErrorIs(t, b.bind(path), hardware.ErrRestart)
	require.ErrorContains(t, b.bind(path), path+" was replaced")
}
