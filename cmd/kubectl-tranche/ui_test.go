package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The address of the page is in a file for the user alone, not among the arguments of a program.
func TestOpenPage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the stand-in for the browser is a shell script")
	}
	bin, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\nstat -c %a \"$1\" > " + seen + ".mode; echo \"$1\" > " + seen + ".name; cat \"$1\" > " + seen + ".part; mv " + seen + ".part " + seen + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755))
	forget, err := openPage(t.Context(), "http://127.0.0.1:1/token/")
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := os.Stat(seen); return err == nil }, 20*time.Second, 10*time.Millisecond)
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	assert.Contains(t, string(text), `url=http://127.0.0.1:1/token/`)
	mode, err := os.ReadFile(seen + ".mode")
	require.NoError(t, err)
	assert.Equal(t, "600\n", string(mode))
	name, err := os.ReadFile(seen + ".name")
	require.NoError(t, err)
	assert.NotContains(t, string(name), "token")
	forget()
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "tranche-ui-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
