package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A container that fills its /dev/shm, or the folder of its daemon's sockets, reaches a
// limit. The node's /run, other pods' shared memory and other claims are not affected.
func TestShareThatFillsItsSharedMemory(t *testing.T) {
	s := startAtNight(t)
	s.sharePod("fills", classMemoryShare, amounts{"memory": "2000Mi"})
	s.sharePod("beside", classMemoryShare, amounts{"memory": "3000Mi"})
	fills := s.waitRunning("fills")
	s.waitRunning("beside")
	freeMiB := func() int {
		free, err := strconv.Atoi(strings.TrimSpace(s.onNode(nodeA, "sh", "-c", "df --output=avail -m /run | tail -n 1")))
		require.NoError(t, err)
		return free
	}
	before := freeMiB()
	assert.Contains(t, s.exec(s.namespace, "fills", "main", "df", "-k", "/dev/shm"), " 1048576 ", "1 GiB, as the chart has it")

	for _, dir := range []string{"/dev/shm", "/run/tranche/mps/pipe"} {
		out, err := s.try("kubectl", "-n", s.namespace, "exec", "fills", "-c", "main", "--",
			"dd", "if=/dev/zero", "of="+dir+"/filler", "bs=1048576", "count=1200")
		require.Error(t, err, dir)
		assert.Contains(t, out, "No space left on device", dir)
	}
	assert.InDelta(t, before, freeMiB(), 100, "nothing of that is in the node's /run")
	s.exec(s.namespace, "beside", "main", "dd", "if=/dev/zero", "of=/dev/shm/own", "bs=1048576", "count=1")

	// Other claims are prepared, of shares and of others.
	s.sharePod("later", classMemoryShare, amounts{"memory": "1000Mi"})
	s.gpuPod("cut", class1g10gb)
	s.waitRunning("later", "cut")
	assert.Contains(t, s.askDaemon(fills, "main", "get_default_device_pinned_mem_limit 0"), "1G", "its own daemon still answers")

	// A plugin that starts again leaves it as it is, and it goes with the daemon.
	s.restartPlugin(nodeA)
	s.exec(s.namespace, "fills", "main", "test", "-s", "/dev/shm/filler")
	uid := string(s.claims(fills)[0].UID)
	assert.Contains(t, s.onNode(nodeA, "cat", "/proc/self/mountinfo"), "/run/tranche/mps/"+uid+"/shm ")
	s.delete("fills")
	s.waitGone("fills")
	assert.NotContains(t, s.onNode(nodeA, "cat", "/proc/self/mountinfo"), uid+"/")
}
