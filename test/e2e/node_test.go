package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

// A node is a mount namespace of this machine, and what is simulated of it are files: a test reads
// and changes them below /proc/PID/root of the node's first process, without a process of its own
// on the node.

// onDisk is the path by which the test reaches a file of a node. Absolute symbolic links on the way
// lead to this machine's files, so the path must have none.
func (s *suite) onDisk(node, file string) string {
	s.t.Helper()
	if s.lab != nil {
		return s.lab.nodes[node].Path(file)
	}
	root, err := rootOf(filepath.Join(s.cluster, "machines", node))
	require.NoError(s.t, err, "the files of %s", node)
	return root + file
}

// rootOf is the root folder of the machine (test/cluster/internal/machine) whose folder is dir.
func rootOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "init.json"))
	if err != nil {
		return "", err
	}
	var init struct{ Pid int }
	if err := json.Unmarshal(text, &init); err != nil {
		return "", err
	}
	root := fmt.Sprintf("/proc/%d/root", init.Pid)
	// Without the process no file would exist, as if nothing were left.
	if _, err := os.Stat(root); err != nil {
		return "", fmt.Errorf("the machine does not run: %w", err)
	}
	return root, nil
}

// readOnDisk reads a file of a node; nothing if it does not exist.
func (s *suite) readOnDisk(node, file string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.onDisk(node, file))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(s.t, err)
	}
	return string(text)
}

// listOnDisk lists a folder of a node; nothing if it does not exist.
func (s *suite) listOnDisk(node, folder string) []os.DirEntry {
	s.t.Helper()
	entries, err := os.ReadDir(s.onDisk(node, folder))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(s.t, err)
	}
	return entries
}

// replaceOnDisk replaces a file of a node at once.
func (s *suite) replaceOnDisk(node, file, text string) {
	s.t.Helper()
	path := s.onDisk(node, file)
	require.NoError(s.t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(s.t, os.Rename(path+".new", path))
}

// leftOn is what is left on a node of instances, records, CDI files and MPS daemons.
func (s *suite) leftOn(node string) string {
	s.t.Helper()
	left := []string{}
	if m := s.machine(node); m.instances() > 0 {
		left = append(left, m.String())
	}
	for _, dir := range []string{ledgerDir, cdiDir} {
		for _, file := range s.listOnDisk(node, dir) {
			if strings.Contains(file.Name(), ".json") {
				left = append(left, filepath.Join(dir, file.Name()))
			}
		}
	}
	return strings.Join(append(left, s.leftOfDaemons(node)...), "\n")
}

// leftOfDaemons is what a node has of MPS daemons: folders, and control groups, which a node sees
// of the whole machine, those of other clusters' nodes with the same name, too.
func (s *suite) leftOfDaemons(node string) (left []string) {
	s.t.Helper()
	for _, file := range s.listOnDisk(node, mpsDir) {
		if file.IsDir() {
			left = append(left, filepath.Join(mpsDir, file.Name()))
		}
	}
	// cgroup v2 has one hierarchy, v1 one for each controller.
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, err := filepath.Glob(root + filepath.Join(s.controlGroup(), node, "tranche-mps*"))
		require.NoError(s.t, err)
		left = append(left, groups...)
	}
	return left
}
