package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// A restart and an upgrade of the plugin leave daemons alone.
func TestSharePluginRestartAndUpgradeLeaveDaemonsAlone(t *testing.T) {
	s := startAtNight(t)
	s.sharePod("holder", classMemoryShare, amounts{"memory": "2000Mi"})
	pod := s.waitRunning("holder")
	before := s.daemons(nodeA)
	require.Len(t, before, 1)
	container := s.container("holder")

	s.restartPlugin(nodeA)
	assert.Equal(t, before, s.daemons(nodeA))
	s.killPlugin(s.plugin(nodeA))
	s.requireNextShareRuns()
	assert.Equal(t, before, s.daemons(nodeA))

	old := s.plugin(nodeA).UID
	s.set("kubeletPlugin.logVerbosity=3")
	require.NoError(t, s.rolledOut())
	assert.NotEqual(t, old, s.plugin(nodeA).UID)
	assert.Equal(t, before, s.daemons(nodeA))
	s.helm("rollback", release, "--wait", "--timeout", "8m")
	require.NoError(t, s.rolledOut())

	assert.Equal(t, before, s.daemons(nodeA))
	assert.Equal(t, container, s.container("holder"))
	assert.Contains(t, s.askDaemon(pod, "main", "get_default_device_pinned_mem_limit 0"), "1G")
}

// requireNextShareRuns checks that another share of the GPU can be had.
func (s *suite) requireNextShareRuns() {
	s.t.Helper()
	s.sharePod("next", classMemoryShare, amounts{"memory": "1Gi"})
	s.requireSeesShare(s.waitRunning("next"), "main")
	s.delete("next")
}

// A profile with a misspelt key is refused, and the key is named.
func TestShareSettingsWithAMisspeltKey(t *testing.T) {
	s := start(t)
	out, err := s.try("kubectl", "apply", "--validate=strict", "-f", s.objectFile(v1beta1.ProfileKind, "typo", "{rules: [{sharing: {replica: 4}}]}"))
	require.Error(t, err, out)
	assert.Contains(t, out, `unknown field "spec.rules[0].sharing.replica"`)
}

// Two shares of one partition: it is made with the first and destroyed with the
// last, on GPUs of either vendor.
func TestShareOfPartitionsByAProfileAtRunTime(t *testing.T) {
	s := start(t)
	s.followProfile(nodeA, "cut-and-shared", `{sharing: {partitions: {profiles: [3g.40gb, cpx]}}}`)
	s.labelProfile(nodeC, "cut-and-shared")

	for _, test := range []struct{ node, profile string }{{nodeA, "3g.40gb"}, {nodeC, "cpx"}} {
		request := shareRequest("gpu-partition-memory-share.tranche.dev", "", amounts{"memory": "2000Mi"})
		request.Exactly.Selectors = profileIs(test.profile)
		for _, name := range []string{"first", "second"} {
			s.podWithRequests(test.node, name+"-"+test.node, request)
		}
		first, second := s.waitRunning("first-"+test.node), s.waitRunning("second-"+test.node)
		assert.Equal(t, s.allocated(first, "").Device, s.allocated(second, "").Device)
		assert.Equal(t, "none", s.attribute(first, "isolation"))
		if test.node == nodeA {
			assert.Equal(t, 1, s.machine(nodeA).instances())
			s.requireSeesShare(first, "main")
			s.requireSeesShare(second, "main")
			s.delete("first-" + test.node)
			assert.Equal(t, 1, s.machine(nodeA).instances(), "the other holds it")
			s.delete("second-" + test.node)
			assert.Zero(t, s.machine(nodeA).instances())
			continue
		}
		assert.Equal(t, "CPX", s.modes()[gpu.OfDevice(s.allocated(first, "").Device)])
		assert.Equal(t, s.seenAMD(first, "main"), s.seenAMD(second, "main"))
	}
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
	assert.Equal(t, "1G", s.askDaemon(pod, "main", "get_default_device_pinned_mem_limit 0"))
	assert.Equal(t, plugin.UID, s.plugin(nodeA).UID)
	s.clearFaults(nodeA)
	s.delete("patient")
}
