package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// The processes of containers are processes of this machine, too. Tests look at them in /proc:
// `kubectl exec` takes a third of a second of computing each time.

// processes returns the ids, on this machine, of the processes of a pod's container, the first one first.
func (s *suite) processes(pod *corev1.Pod, container string) []int {
	s.t.Helper()
	var id string
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name == container {
			_, id, _ = strings.Cut(status.ContainerID, "://")
		}
	}
	require.NotEmpty(s.t, id, "container %s of pod %s", container, pod.Name)
	folders, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(s.t, err)
	var found []int
	for _, folder := range folders {
		groups, err := os.ReadFile(filepath.Join(folder, "cgroup"))
		if err != nil || !strings.Contains(string(groups), id) {
			continue // it has ended, or is another's
		}
		process, err := strconv.Atoi(filepath.Base(folder))
		require.NoError(s.t, err)
		found = append(found, process)
	}
	slices.Sort(found)
	return found
}

// process returns the folder below /proc of the first process of a pod's container.
func (s *suite) process(pod *corev1.Pod, container string) string {
	s.t.Helper()
	all := s.processes(pod, container)
	require.NotEmpty(s.t, all, "container %s of pod %s has no process", container, pod.Name)
	return fmt.Sprintf("/proc/%d", all[0])
}

// idOnNode returns the id that a process of a container has on its node: nodes have PID namespaces of their own.
func (s *suite) idOnNode(process int) int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	require.NoError(s.t, err)
	_, ids, _ := strings.Cut(string(status), "\nNSpid:") // on this machine, on the node, in the container
	fields := strings.Fields(ids)
	require.GreaterOrEqual(s.t, len(fields), 3, "%s", status)
	id, err := strconv.Atoi(fields[1])
	require.NoError(s.t, err)
	return id
}

// seenWith lists the device nodes that a container sees and whose names begin with a prefix.
func (s *suite) seenWith(pod *corev1.Pod, container string, prefixes ...string) (paths []string) {
	s.t.Helper()
	root := filepath.Join(s.process(pod, container), "root")
	err := filepath.WalkDir(filepath.Join(root, "dev"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, prefix := range prefixes {
			if !entry.IsDir() && strings.HasPrefix(entry.Name(), prefix) {
				paths = append(paths, strings.TrimPrefix(path, root))
			}
		}
		return nil
	})
	require.NoError(s.t, err)
	slices.Sort(paths)
	return paths
}

// killProcesses ends what runs in a pod's first container with SIGKILL, and returns how many
// processes that were.
func (s *suite) killProcesses(pod *corev1.Pod) (killed int) {
	s.t.Helper()
	for _, process := range s.processes(pod, pod.Status.ContainerStatuses[0].Name) {
		if err := syscall.Kill(process, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			require.NoError(s.t, err)
			killed++
		}
	}
	return killed
}
