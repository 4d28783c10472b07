package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mpsProgram is the control daemon of the simulated driver.
const mpsProgram = simulateRoot + "/driver/usr/bin/nvidia-cuda-mps-control"

// Where the driver lacks the MPS programs shares work without limits and say so;
// with the strategy MPS pods wait, and the event names what is missing.
func TestShareWithoutTheMPSPrograms(t *testing.T) {
	s := start(t)
	limited := s.published(nodeB)
	away := mpsProgram + ".away"
	back := func() {
		s.onNode(nodeB, "sh", "-c", `test ! -e "$1" || mv "$1" "$2"`, "sh", away, mpsProgram)
	}
	s.onNode(nodeB, "mv", mpsProgram, away)
	t.Cleanup(func() {
		s.deletePods()
		back()
		s.restartPlugin(nodeB)
		s.eventually(nodeB+" publishes what it did before", func() (bool, string) {
			return assert.ObjectsAreEqual(limited, s.published(nodeB)), "it does not"
		})
	})
	s.restartPlugin(nodeB)
	s.waitNodeEvent(nodeB, "SharesNotLimited", "nvidia-cuda-mps-control", "isolation is none")

	s.sharePodAt(nodeB, "free", "", classMemoryShare, amounts{"memory": "2000Mi"})
	free := s.waitRunning("free")
	assert.Equal(t, "none", s.attribute(free, "isolation"))
	env := s.env(free, "main")
	assert.NotContains(t, env, "CUDA_MPS_PIPE_DIRECTORY")
	assert.NotContains(t, env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
	assert.Equal(t, "0.09", env["GPU_PORTION"])
	assert.Empty(t, s.daemons(nodeB))
	s.delete("free")

	s.followProfile(nodeB, "needs-mps", `{sharing: {strategy: MPS}}`)
	s.sharePodAt(nodeB, "waits", "", classMemoryShare, amounts{"memory": "2000Mi"})
	s.waitPodEvent("waits", prepareFailed, "is shared by MPS, which does not work on this node", "nvidia-cuda-mps-control")
	assert.Empty(t, s.daemons(nodeB))
}

// A plugin that dies while a daemon starts leaves one daemon, not two and not
// none, and the pod runs.
func TestSharePluginKilledWhileADaemonStarts(t *testing.T) {
	s := start(t)
	// A new pod, so that the kubelet starts its container again at once.
	plugin := s.restartPlugin(nodeA)
	s.onNode(nodeA, "sh", "-c", `printf 'mps: {startDelay: 8s}\n' > "$1"`, "sh", simulateRoot+"/faults.yaml")
	s.sharePod("patient", classMemoryShare, amounts{"memory": "2000Mi"})
	s.eventually("the daemon is being started", func() (bool, string) {
		daemons := s.daemons(nodeA)
		return len(daemons) == 1, fmt.Sprint(daemons) + s.eventsText("patient")
	})
	s.killPlugin(plugin)
	pod := s.waitRunning("patient")
	require.Len(t, s.daemons(nodeA), 1)
	assert.Equal(t, "2000M", s.askDaemon(pod, "main", "get_default_device_pinned_mem_limit 0"))
	assert.Equal(t, plugin.UID, s.plugin(nodeA).UID)
	s.clearFaults(nodeA)
	s.delete("patient")
}

// While a daemon starts that takes its time, other claims on the same card do not
// wait for it.
func TestShareDaemonThatTakesItsTimeHoldsUpNobody(t *testing.T) {
	s := start(t)
	pci := s.machine(nodeA).GPUs[0].PCI
	s.onNode(nodeA, "sh", "-c", `printf 'mps: {startDelay: 15s}\n' > "$1"`, "sh", simulateRoot+"/faults.yaml")
	s.sharePodAt(nodeA, "slow", pci, classMemoryShare, amounts{"memory": "2000Mi"})
	s.eventually("its daemon is being started", func() (bool, string) {
		return len(s.daemons(nodeA)) == 1, s.eventsText("slow")
	})
	s.clearFaults(nodeA)
	s.sharePodAt(nodeA, "quick", pci, classMemoryShare, amounts{"memory": "2000Mi"})
	s.waitRunning("quick")
	assert.NotEqual(t, "Running", string(s.pod("slow").Status.Phase), "the slow one was not slow, so this test shows nothing")
	s.waitRunning("slow")
}
