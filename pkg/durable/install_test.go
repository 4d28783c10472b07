package durable

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstall(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10_000) // of several buffers
	for name, there := range map[string]*string{
		"none there":         nil,
		"another":            ptr("another"),
		"an empty one":       ptr(""),
		"one that is longer": ptr(long + "."),
		"a part":             ptr(long[:64<<10]),
		"another at the end": ptr(long[:len(long)-1] + "."),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tool")
			if there != nil {
				require.NoError(t, os.WriteFile(path, []byte(*there), 0o600))
			}
			require.NoError(t, Install(strings.NewReader(long), path))
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, string(content) == long)
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
			left, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			assert.Len(t, left, 1)
		})
	}
}

func ptr(s string) *string { return &s }

// The same program is the same file afterwards: what runs it need not look again.
func TestInstallSame(t *testing.T) {
	for _, content := range []string{"", "program", strings.Repeat("x", 128<<10)} {
		path := filepath.Join(t.TempDir(), "tool")
		require.NoError(t, Install(strings.NewReader(content), path))
		before, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, Install(strings.NewReader(content), path))
		after, err := os.Stat(path)
		require.NoError(t, err)
		assert.True(t, os.SameFile(before, after))
	}
}

// broken cannot be read to its end.
type broken struct {
	io.Reader
	io.Seeker
}

func TestInstallFails(t *testing.T) {
	dir := t.TempDir()
	require.Error(t, Install(strings.NewReader("program"), filepath.Join(dir, "gone/tool")))

	path := filepath.Join(dir, "tool")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	sad := errors.New("bad sector")
	program := bytes.NewReader([]byte("old"))
	require.ErrorIs(t, Install(broken{io.MultiReader(program, iotest.ErrReader(sad)), program}, path), sad)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(content))

	// It differs, and cannot be read once more.
	program = bytes.NewReader([]byte("new"))
	require.ErrorIs(t, Install(broken{program, again{sad}}, path), sad)
	program = bytes.NewReader([]byte("new"))
	content = []byte("new")
	require.ErrorIs(t, Install(&twice{first: program, then: io.MultiReader(bytes.NewReader(content), iotest.ErrReader(sad))}, path), sad)
	require.ErrorContains(t, Install(bytes.NewReader([]byte("new")), dir), "look at the program that is there")
	content, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(content))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left of what failed")
}

// again fails to seek.
type again struct{ err error }

func (a again) Seek(int64, int) (int64, error) { return 0, a.err }

// twice reads otherwise after it was rewound.
type twice struct{ first, then io.Reader }

func (r *twice) Read(p []byte) (int, error) { return r.first.Read(p) }

func (r *twice) Seek(int64, int) (int64, error) {
	r.first = r.then
	return 0, nil
}
