package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func files(t *testing.T, root string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// TestMakeInVersion1 plays the kernel: a new cpuset group has empty files.
func TestMakeInVersion1(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]string{
		"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n",
		"tranche-1/cpuset.cpus": "\n", "tranche-1/cpuset.mems": "\n",
		"tranche-1/node-a/cpuset.cpus": "", "tranche-1/node-a/cpuset.mems": "0\n",
	})
	require.NoError(t, makeIn(root, "/tranche-1/node-a"))
	require.Equal(t, "0-1\n", content(t, filepath.Join(root, "tranche-1", "cpuset.cpus")))
	require.Equal(t, "0-1\n", content(t, filepath.Join(root, "tranche-1", "node-a", "cpuset.cpus")))
}

// TestMakeInVersion2 plays the kernel: what is written to subtree_control
// stays there, the last controller of several in this case.
func TestMakeInVersion2(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]string{
		"cgroup.controllers": "cpuset cpu memory\n", "cgroup.subtree_control": "cpu memory\n",
		"tranche-1/cgroup.controllers": "cpuset cpu memory\n", "tranche-1/cgroup.subtree_control": "cpuset cpu\n",
		"tranche-1/node-a/cgroup.controllers": "cpu memory\n", "tranche-1/node-a/cgroup.subtree_control": "cpu memory\n",
	})
	require.NoError(t, makeIn(root, "/tranche-1/node-a"))
	require.Equal(t, "+cpuset", content(t, filepath.Join(root, "cgroup.subtree_control"))[:7])
	require.Equal(t, "+memory", content(t, filepath.Join(root, "tranche-1", "cgroup.subtree_control"))[:7])
	require.Equal(t, "cpu memory\n", content(t, filepath.Join(root, "tranche-1", "node-a", "cgroup.subtree_control")))
}

func TestRemoveTree(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "group", "a", "b"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "group", "c"), 0o755))
	require.NoError(t, removeTree(filepath.Join(root, "group")))
	require.NoDirExists(t, filepath.Join(root, "group"))
	require.NoError(t, removeTree(filepath.Join(root, "group")), "a second time")

	files(t, root, map[string]string{"busy/a/file": ""}) // as if a process were in it
	require.ErrorContains(t, removeTree(filepath.Join(root, "busy")), "busy/a")
}
