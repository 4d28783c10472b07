package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// A daemon that dies with clients attached is started again, its pod's status
// says so meanwhile, and the others on the GPU notice nothing.
func TestShareWhoseDaemonDies(t *testing.T) {
	s := startOnCluster(t)
	s.sharePod("struck", classMemoryShare, amounts{"memory": "2000Mi"})
	s.sharePod("beside", classMemoryShare, amounts{"memory": "3000Mi"})
	struck, beside := s.waitRunning("struck"), s.waitRunning("beside")
	s.waitHealth("struck", corev1.ResourceHealthStatusHealthy)
	before := s.daemons(nodeA)
	require.Len(t, before, 2)
	ofStruck, ofBeside := string(s.claims(struck)[0].UID), string(s.claims(beside)[0].UID)
	require.Contains(t, before, ofStruck)

	unhealthy := s.watchHealth("struck", corev1.ResourceHealthStatusUnhealthy)
	s.onNode(nodeA, "kill", "-9", strconv.Itoa(before[ofStruck]))
	unhealthy()
	s.eventually("the daemon is back", func() (bool, string) {
		now := s.daemons(nodeA)
		return now[ofStruck] > 0 && now[ofStruck] != before[ofStruck], fmt.Sprint(now)
	})
	s.waitPodEvent("struck", "MPSDaemonDied", s.claims(struck)[0].Name, "have ended")
	s.waitNodeEvent(nodeA, "MPSDaemonDied", ofStruck, s.claims(struck)[0].Name)
	s.waitNodeEvent(nodeA, "MPSDaemonRestarted", ofStruck, "was restarted")
	s.waitHealth("struck", corev1.ResourceHealthStatusHealthy)
	assert.Contains(t, s.askDaemon(struck, "main", "get_default_device_pinned_mem_limit 0"), "2000M", "with its limit")
	assert.Equal(t, before[ofBeside], s.daemons(nodeA)[ofBeside])
	s.waitHealth("beside", corev1.ResourceHealthStatusHealthy)
	assert.Contains(t, s.askDaemon(beside, "main", "get_default_device_pinned_mem_limit 0"), "3000M")
	for name, pod := range map[string]*corev1.Pod{"struck": struck, "beside": beside} {
		assert.Equal(t, pod.Status.ContainerStatuses[0].ContainerID, s.container(name))
	}
}

// watchHealth begins to look for a health in the status of a pod, which may pass
// by quickly, and returns a function that waits until it was there.
func (s *suite) watchHealth(pod string, want corev1.ResourceHealthStatus) (wait func()) {
	s.t.Helper()
	changes, err := s.client.CoreV1().Pods(s.namespace).Watch(s.ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod, TimeoutSeconds: ptr.To(int64(patienceOnCluster.Seconds())),
	})
	require.NoError(s.t, err)
	return func() {
		s.t.Helper()
		defer changes.Stop()
		var last string
		for event := range changes.ResultChan() {
			now, ok := event.Object.(*corev1.Pod)
			if !ok || len(now.Status.ContainerStatuses) == 0 {
				continue
			}
			last = fmt.Sprint(now.Status.ContainerStatuses[0].AllocatedResourcesStatus)
			if strings.Contains(last, string(want)) {
				return
			}
		}
		require.FailNow(s.t, "the status of pod "+pod+" never said "+string(want), last)
	}
}

// A restart and an upgrade of the plugin leave daemons alone.
func TestSharePluginRestartAndUpgradeLeaveDaemonsAlone(t *testing.T) {
	s := startOnCluster(t)
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
	assert.Contains(t, s.askDaemon(pod, "main", "get_default_device_pinned_mem_limit 0"), "2000M")
}

// requireNextShareRuns checks that another share of the GPU can be had.
func (s *suite) requireNextShareRuns() {
	s.t.Helper()
	s.sharePod("next", classMemoryShare, amounts{"memory": "1Gi"})
	s.requireSeesShare(s.waitRunning("next"), "main")
	s.delete("next")
}

// What a claim held that is deleted by force is released, daemon and all, and
// who shares the GPU with it goes on.
func TestShareClaimDeletedByForce(t *testing.T) {
	s := startOnCluster(t)
	s.sharePod("gone", classMemoryShare, amounts{"memory": "2000Mi"})
	s.sharePod("stays", classMemoryShare, amounts{"memory": "3000Mi"})
	gone, stays := s.waitRunning("gone"), s.waitRunning("stays")
	before := s.daemons(nodeA)
	claim := s.claims(gone)[0]
	s.kubectl("-n", s.namespace, "patch", "resourceclaim", claim.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.kubectl("-n", s.namespace, "delete", "pod", "gone", "--force", "--grace-period=0")
	s.kubectl("-n", s.namespace, "delete", "resourceclaim", claim.Name, "--ignore-not-found", "--wait=false")
	s.eventually("its daemon and its record are gone", func() (bool, string) {
		left := s.daemons(nodeA)
		_, there := left[string(claim.UID)]
		return !there && len(s.records(nodeA)) == 1, fmt.Sprint(left)
	})
	uid := string(s.claims(stays)[0].UID)
	assert.Equal(t, map[string]int{uid: before[uid]}, s.daemons(nodeA))
	s.requireSeesShare(stays, "main")
}

// Settings that change while shares are in use wait for the last of them.
func TestShareSettingsChangeWhileSharesAreInUse(t *testing.T) {
	s := startOnCluster(t)
	gpus := s.machine(nodeA).GPUs
	s.sharePodAt(nodeA, "holder", gpus[0].PCI, classFractionShare, nil)
	holder := s.waitRunning("holder")
	before := s.daemons(nodeA)

	s.followProfile(nodeA, "side-by-side-e2e", `{sharing: {strategy: MPS, replicas: 4}}`)
	s.eventually("the free GPUs are shared by MPS", func() (bool, string) {
		return s.sharing(nodeA, gpus[1].PCI) == "mps", s.sharing(nodeA, gpus[1].PCI)
	})
	assert.Equal(t, "timeslicing", s.sharing(nodeA, gpus[0].PCI), "somebody has a share of it")
	s.waitNodeEvent(nodeA, "SettingsPending", gpu.NameOf(gpus[0].PCI), "pod holder")
	assert.Equal(t, before, s.daemons(nodeA))
	s.requireSeesShare(holder, "main")
	s.sharePodAt(nodeA, "beside", gpus[0].PCI, classFractionShare, nil)
	s.waitRunning("beside")

	s.delete("holder", "beside")
	s.eventually("the GPU follows", func() (bool, string) {
		return s.sharing(nodeA, gpus[0].PCI) == "mps", s.sharing(nodeA, gpus[0].PCI)
	})
	// Four replicas fill a GPU now, and one daemon serves them all.
	for n := range 4 {
		s.sharePodAt(nodeA, fmt.Sprintf("quarter-%d", n), gpus[0].PCI, classFractionShare, nil)
	}
	s.waitAllRunning(4)
	assert.Len(t, s.daemons(nodeA), 1)
	s.sharePodAt(nodeA, "fifth", gpus[0].PCI, classFractionShare, nil)
	s.waitUnschedulable("fifth")
}

// A profile with a misspelt key is refused, and the key is named.
func TestShareSettingsWithAMisspeltKey(t *testing.T) {
	s := start(t)
	out, err := s.try("kubectl", "apply", "--validate=strict", "-f", s.profileFile("typo", "{rules: [{sharing: {replica: 4}}]}"))
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
