package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
