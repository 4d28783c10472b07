package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestState(t *testing.T) {
	known := book{Title: "a"}
	for name, test := range map[string]struct {
		// make makes what is at the path.
		make  func(path string) error
		want  book
		fails string
		// unread: it is kept until it can be read.
		unread bool
	}{
		"no file": {make: func(string) error { return nil }},
		"a file":  {make: func(path string) error { return os.WriteFile(path, []byte(`{"version":1,"title":"a"}`), 0o600) }, want: known},
		"broken":  {make: func(path string) error { return os.WriteFile(path, []byte(`{"version":1,"title":"`), 0o600) }, fails: "decode "},
		"of another type": {
			make: func(path string) error { return os.WriteFile(path, []byte(`{"version":1,"title":1}`), 0o600) }, fails: "decode ",
		},
		// A folder stands for a file that cannot be read (EISDIR), also for root.
		"unreadable": {make: func(path string) error { return os.Mkdir(path, 0o700) }, fails: "is a directory", unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := State[book]{Path: filepath.Join(t.TempDir(), "state.json"), Format: Format{Version: 1, MinReader: 1}}
			require.ErrorContains(t, s.Write(known), "could not be read")
			require.NoError(t, test.make(s.Path))
			got, err := s.Read()
			if test.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.fails)
			}
			assert.Equal(t, test.want, got)
			require.Equal(t, test.unread, s.Unread())
			if test.unread {
				require.ErrorContains(t, s.Write(known), "could not be read")
				require.DirExists(t, s.Path)
				require.NoError(t, os.Remove(s.Path))
				_, err := s.Read()
				require.NoError(t, err)
			}
			require.NoError(t, s.Write(known))
			again := State[book]{Path: s.Path, Format: s.Format}
			got, err = again.Read()
			require.NoError(t, err)
			assert.Equal(t, known, got)
		})
	}
}
