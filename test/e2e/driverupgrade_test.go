package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// A package installs another branch of NVIDIA's driver while pods have partitions. The process that runs
// keeps the library that it has opened, which is the one that the loaded module belongs to. The next one
// takes the new library over partitions that the old one has made.
func TestLibraryOfAnotherDriverIsInstalled(t *testing.T) {
	s := startAtNight(t)
	s.gpuPod("holder", class1g10gb)
	s.waitRunning("holder")
	container, plugin := s.container("holder"), s.plugin(nodeA)
	// The new pod's instance of the simulated drivers installs its own library again.
	t.Cleanup(func() { s.restartPlugin(nodeA) })

	s.installDriver("535")
	s.gpuPod("next", class3g40gb)
	s.waitRunning("next")
	require.Equal(t, restarts(plugin), restarts(s.plugin(nodeA)))

	s.killPlugin(plugin)
	s.eventually("the plugin has not been restarted", func() (bool, string) {
		now := s.plugin(nodeA)
		return now.UID == plugin.UID && restarts(now) > restarts(plugin), "it is still the same process"
	})
	s.delete("next")
	s.waitGone("next")
	s.gpuPod("last", class3g40gb)
	s.waitRunning("last")
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

// The simulated driver of AMD's GPUs is killed: its files are away until it is back, pods keep their
// partitions, and the next ones are given out.
func TestSimulatedDriverIsKilled(t *testing.T) {
	s := startAtNight(t)
	s.gpuPodAt(nodeC, "holder", classCPX, "")
	s.waitRunning("holder")
	container, plugin := s.container("holder"), s.plugin(nodeC)
	for _, process := range s.processes(plugin, "simulated-driver") {
		require.NoError(t, syscall.Kill(process, syscall.SIGKILL))
	}
	s.eventually("the simulated driver is back", func() (bool, string) {
		pod := s.plugin(nodeC)
		status := pod.Status.InitContainerStatuses[0]
		return status.RestartCount == 1 && status.Started != nil && *status.Started, fmt.Sprintf("%+v", status)
	})
	s.gpuPodAt(nodeC, "next", classCPX, "")
	s.waitRunning("next")
	assert.Equal(t, container, s.container("holder"))
	assert.Equal(t, restarts(plugin), restarts(s.plugin(nodeC)), "the plugin goes on")
}
