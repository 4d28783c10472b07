package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHiddenFolders(t *testing.T) {
	spec := Spec{
		Overlays: []string{"/etc", "/var/lib"},
		Tmpfs:    []string{"/run"},
		Keep:     []string{"/root/cluster", "/var/lib/jenkins/cluster", "/run/x", "/running/x", "/etc"},
	}
	var kept []string
	for _, bind := range hiddenFolders(spec) {
		require.Equal(t, bind.Source, bind.Target)
		kept = append(kept, bind.Source)
	}
	require.Equal(t, []string{"/var/lib/jenkins/cluster", "/run/x", "/etc"}, kept)
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), nil, 0o755))
	env := []string{"PATH=/nowhere", "HOME=/", "PATH=/no/such:" + dir}
	for program, want := range map[string]string{
		"tool": filepath.Join(dir, "tool"), "/any/path": "/any/path", "./x": "./x",
		"folder": "", "text": "", "none": "",
	} {
		found, err := lookPath(program, env)
		require.Equal(t, want, found, program)
		require.Equal(t, want == "", err != nil, program)
	}
}
