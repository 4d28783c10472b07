package durable

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record.json")
	for _, text := range []string{"first", "second"} {
		require.NoError(t, WriteFile(path, []byte(text)))
		require.NoError(t, SyncDir(dir))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(data))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "the temporary file is gone")
}

func TestFolderThatIsNotThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	assert.ErrorIs(t, WriteFile(filepath.Join(dir, "record.json"), nil), fs.ErrNotExist)
	err := SyncDir(dir)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "open "+dir+" to sync it")
}
