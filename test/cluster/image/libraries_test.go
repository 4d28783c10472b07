package image

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLibraries(t *testing.T) {
	const shell = "/bin/sh"
	if _, err := os.Stat(shell); err != nil {
		t.Skip("this machine has no " + shell)
	}
	entries, err := Libraries(shell)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		require.Equal(t, entry.Path, entry.Source, "a library keeps its path")
		require.FileExists(t, entry.Source)
		names = append(names, filepath.Base(entry.Path))
	}
	if len(names) == 0 {
		t.Skip(shell + " is statically linked here")
	}
	require.True(t, slices.ContainsFunc(names, func(name string) bool {
		return name == "libc.so.6" || filepath.Ext(name) == ".1"
	}), "no libc among %v", names)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(names))), len(names), "each once: %v", names)
}

func TestLibrariesOfAScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	entries, err := Libraries(script)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestMissingLibraryIsNamed(t *testing.T) {
	binary, err := filepath.EvalSymlinks("/bin/sh")
	require.NoError(t, err)
	finder := libraryFinder{root: "/", dirs: []string{t.TempDir()}, found: map[string]string{}}
	entries, err := finder.entries(binary)
	if err == nil && len(entries) == 0 {
		t.Skip("/bin/sh is statically linked here")
	}
	require.ErrorContains(t, err, "libc.so")
	require.ErrorContains(t, err, binary)
}

func TestDefaultLibraryDirs(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{
		"etc/ld.so.conf":               "include /etc/ld.so.conf.d/*.conf\n/opt/lib # ours\n",
		"etc/ld.so.conf.d/libc.conf":   "# default\n/usr/local/lib\n",
		"etc/ld.so.conf.d/circle.conf": "include /etc/ld.so.conf\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(content), 0o644))
	}
	dirs := defaultLibraryDirs(root)
	for _, want := range []string{"/opt/lib", "/usr/local/lib", "/lib64", "/usr/lib"} {
		require.Contains(t, dirs, want)
	}
}
