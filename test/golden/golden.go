// Package golden compares what tests got with golden files. To accept a change, run the test with
// -update and read the difference.
//
// It may import nothing of this repository.
package golden

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files before they are compared with")

// Equal checks that a file says what the test got.
func Equal(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update and read the new file")
	assert.Equal(t, string(want), got, "%s is out of date: run the test with -update and read the difference", path)
}

// JSON checks that a file says what the test got, apart from white space.
func JSON(t *testing.T, path string, got []byte) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, got, "", "  "))
	Equal(t, path, out.String()+"\n")
}

// Files checks what becomes of each file that a pattern names: the golden file beside it says that.
func Files(t *testing.T, pattern string, convert func(t *testing.T, name string, data []byte) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			Equal(t, strings.TrimSuffix(file, filepath.Ext(file))+".golden", convert(t, filepath.Base(file), data))
		})
	}
}

// Seeds adds each file that a pattern names to the seeds of a fuzz test.
func Seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
}
