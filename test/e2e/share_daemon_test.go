package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Where no MPS daemon works shares work without limits and say so; with the
// strategy MPS pods wait, and the event says why.
func TestShareWhereMPSDoesNotWork(t *testing.T) {
	s := startOnCluster(t)
	limited := s.settled(nodeB)
	s.setProfile("needs-mps", `{sharing: {strategy: MPS}}`)
	t.Cleanup(func() {
		s.deletePods()
		s.clearFaults(nodeB)
		s.setProfileLabel(nodeB, "")
		s.restartPlugin(nodeB)
		s.eventually(nodeB+" publishes what it did before", func() (bool, string) {
			return slices.Equal(limited, s.published(nodeB)), "it does not"
		})
	})
	s.replaceOnDisk(nodeB, faultsFile, "mps: {start: fail}\n")
	s.restartPlugin(nodeB)
	s.waitNodeEvent(nodeB, "SharesNotLimited", "simulated failure", "isolation is none")
	s.eventually("no share of node-b has a limit", func() (bool, string) {
		all := strings.Join(s.published(nodeB), "")
		return !strings.Contains(all, "cooperative"), all
	})

	s.sharePodAt(nodeB, "free", "", classMemoryShare, amounts{"memory": "2000Mi"})
	free := s.waitRunning("free")
	assert.Equal(t, "none", s.attribute(free, "isolation"))
	env := s.env(free, "main")
	assert.NotContains(t, env, "CUDA_MPS_PIPE_DIRECTORY")
	assert.NotContains(t, env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
	assert.Equal(t, "0.09", env["GPU_PORTION"])
	assert.Empty(t, s.daemons(nodeB))
	s.delete("free")

	s.setProfileLabel(nodeB, "needs-mps")
	s.waitPublishes(nodeB, "sharing:\n    string: mps")
	s.sharePodAt(nodeB, "waits", "", classMemoryShare, amounts{"memory": "2000Mi"})
	s.waitPodEvent("waits", prepareFailed, "is shared by MPS, which does not work on this node", "simulated failure")
	assert.Empty(t, s.daemons(nodeB))
}

// A plugin that dies while a daemon starts leaves one daemon, not two and not
// none, and the pod runs.
func TestSharePluginKilledWhileADaemonStarts(t *testing.T) {
	s := startOnCluster(t)
	// A new pod, so that the kubelet starts its container again at once.
	plugin := s.restartPlugin(nodeA)
	s.replaceOnDisk(nodeA, faultsFile, "mps: {startDelay: 8s}\n")
	s.sharePod("patient", classMemoryShare, amounts{"memory": "2000Mi"})
	s.eventually("the daemon is being started", func() (bool, string) {
		daemons := s.daemons(nodeA)
		return len(daemons) == 1, fmt.Sprint(daemons) + s.eventsText("patient")
	})
	s.killPlugin(plugin)
	pod := s.waitRunning("patient")
	require.Len(t, s.daemons(nodeA), 1)
	assert.Contains(t, s.leftOn(nodeA), s.controlGroup(), "what other tests look for when they end")
	assert.Equal(t, "2000M", s.askDaemon(pod, "main", "get_default_device_pinned_mem_limit 0"))
	assert.Equal(t, plugin.UID, s.plugin(nodeA).UID)
	s.clearFaults(nodeA)
	s.delete("patient")
}

// While a daemon starts that takes its time, other claims on the same GPU do not
// wait for it.
func TestShareDaemonThatTakesItsTimeHoldsUpNobody(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[0].PCI
	s.replaceOnDisk(nodeA, faultsFile, "mps: {startDelay: 25s}\n")
	s.sharePodAt(nodeA, "slow", pci, classMemoryShare, amounts{"memory": "2000Mi"})
	s.eventually("its daemon has read how slow it is, and written the first file", func() (bool, string) {
		logs, err := filepath.Glob(s.onDisk(nodeA, mpsDir) + "/*/log/control.log")
		require.NoError(t, err)
		return len(logs) == 1, s.eventsText("slow")
	})
	s.clearFaults(nodeA)
	s.sharePodAt(nodeA, "quick", pci, classMemoryShare, amounts{"memory": "2000Mi"})
	s.waitRunning("quick")
	assert.NotEqual(t, "Running", string(s.pod("slow").Status.Phase), "the slow one was not slow, so this test shows nothing")
	s.waitRunning("slow")
}
