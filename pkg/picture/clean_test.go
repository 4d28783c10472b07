package picture

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\n":                       "a\tb\n",
		"\x1b[31mred\x1b[0m":           "\x1b[31mred\x1b[0m",
		"│━ ü":                         "│━ ü",
		"up\x1b[2Aover":                "up\ufffd[2Aover",
		"\x1b]0;title\x07":             "\ufffd]0;title\ufffd",
		"line\rother":                  "line\ufffdother",
		"\u009b2J":                     "\ufffd2J",
		"admin\u202egnp":               "admin\ufffdgnp",
		"not text\xff":                 "not text\ufffd",
		"\x1b[38;5;1mred\x1b[m\x1b[1C": "\x1b[38;5;1mred\x1b[m\ufffd[1C",
	} {
		assert.Equal(t, want, Printable(in), "%q", in)
	}
}

func TestClean(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	n, err := Clean{f}.Write([]byte("a\x1b[2J"))
	require.NoError(t, err)
	assert.Equal(t, 5, n)
	live := Live{Out: Clean{f}, lines: 1}
	require.NoError(t, live.Draw("node \x1b[2A\n"))
	require.NoError(t, f.Close())
	_, err = Clean{f}.Write([]byte("b"))
	require.ErrorIs(t, err, os.ErrClosed)
	got, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Equal(t, "a\ufffd[2J\r\x1b[A\x1b[Jnode \ufffd[2A\n", string(got))
}

// Only the styles of the page color it.
func TestPageCleansWhatOthersSay(t *testing.T) {
	for color, want := range map[bool]string{false: "a\ufffd[31mb \ufffd[7mc\n", true: "\x1b[1ma\ufffd[31mb\x1b[m \x1b[1m\ufffd[7mc\x1b[m\n"} {
		p := Page{Screen: Screen{Width: 80, Color: color}}
		p.Wrap("", "a\x1b[31mb \x1b[7mc", Bold)
		assert.Equal(t, want, p.String())
	}
}
