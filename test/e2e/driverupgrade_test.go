package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// An administrator replaces NVIDIA's driver under a running plugin: its process ends, because it keeps
// the old library, the next one uses the new library, and pods keep their partitions meanwhile.
func TestDriverIsReplacedUnderTheRunningPlugin(t *testing.T) {
	s := startAtNight(t)
	s.gpuPod("holder", class1g10gb)
	s.waitRunning("holder")
	container, plugin := s.container("holder"), s.plugin(nodeA)
	require.Zero(t, restarts(plugin))
	// The pod's own instance of the simulated drivers installs its library again.
	t.Cleanup(func() { s.restartPlugin(nodeA) })

	s.installDriver("535")
	s.eventually("the plugin has not been restarted", func() (bool, string) {
		now := s.plugin(nodeA)
		return now.UID == plugin.UID && restarts(now) == 1, "it still runs with the old library"
	})
	s.gpuPod("next", class3g40gb)
	s.waitRunning("next")
	assert.Equal(t, container, s.container("holder"))
	s.requireInstances(2)
}

// restarts is how often the plugin's container was restarted.
func restarts(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }

// installDriver replaces the library of node-a by that of another branch of the driver.
func (s *suite) installDriver(branch string) {
	s.t.Helper()
	bin, err := filepath.Abs(repository + "/bin")
	require.NoError(s.t, err)
	driver := bin + "/simulated-driver"
	flags := strings.Join([]string{"--instance=e2e", "--root=" + simulateRoot, "--node-name=" + nodeA, "--inventory=h100x8",
		"--library=" + branch, "--libraries=" + bin + "/simulated-nvml", "--program=" + driver}, " ")
	s.onNode(nodeA, "sh", "-c", driver+" "+flags+" & until "+driver+" ready "+flags+"; do kill -0 $! || exit 1; sleep 0.1; done; kill $!; wait $!")
}
