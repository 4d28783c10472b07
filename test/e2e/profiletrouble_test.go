package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// slowPartitions makes each partition of node-a take a moment, so that a switch can
// be seen in the middle.
func (s *suite) slowPartitions() {
	s.t.Helper()
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "CreateGpuInstance", GPU: "*", Delay: metav1.Duration{Duration: 500 * time.Millisecond}},
	}})
}

// The controller dies in the middle of a switch, and another one brings it to its end.
func TestTheControllerKilledInTheMiddle(t *testing.T) {
	for name, state := range map[string]v1alpha1.State{"draining": v1alpha1.Draining, "applying": v1alpha1.Applying} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.setProfile("cut-in-three", cutInThree)
			s.slowPod(nodeA, "slow", classWhole, 5)
			s.slowPartitions()
			s.labelProfile(nodeA, "cut-in-three")
			n := s.waitGPUNode(nodeA, "is "+string(state), inState(state))
			id := n.Status.Switch.ID
			assert.NotEmpty(t, s.switchTaints(nodeA))
			s.killControllers()
			n = s.waitFollows(nodeA, "cut-in-three")
			assert.Equal(t, 8*3, s.machine(nodeA).instances())
			require.Equal(t, v1alpha1.ResultSucceeded, n.Status.History[0].Result)
			assert.Nil(t, n.Status.Switch)
			t.Logf("switch %s took %s", id, n.Status.History[0].Duration.Duration)
		})
	}
}

// The plugin dies while it changes GPUs. When it is back, the switch ends in the
// profile.
func TestThePluginKilledWhileItChangesGPUs(t *testing.T) {
	s := startOnCluster(t)
	// A new pod, so that the kubelet starts its container again at once.
	plugin := s.restartPlugin(nodeA)
	s.setProfile("cut-in-three", cutInThree)
	s.slowCuts(5 * time.Second)
	s.labelProfile(nodeA, "cut-in-three")
	s.eventually("some partitions are made", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() > 2, m.String()
	})
	require.Less(t, s.machine(nodeA).instances(), 8*3, "it was too fast, so this test shows nothing")
	s.killPlugin(plugin)
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
	assert.Equal(t, plugin.UID, s.plugin(nodeA).UID)
}

// The profile is changed again in the middle: what was begun is finished, or given up,
// and the node ends in the last wish.
func TestTheProfileChangedInTheMiddle(t *testing.T) {
	for name, state := range map[string]v1alpha1.State{"draining": v1alpha1.Draining, "applying": v1alpha1.Applying} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.setProfile("cut-in-three", cutInThree)
			s.setProfile("sevenths", `{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g.10gb}]}}`)
			s.slowPod(nodeA, "slow", classWhole, 5)
			s.slowPartitions()
			s.labelProfile(nodeA, "cut-in-three")
			s.waitGPUNode(nodeA, "is "+string(state), inState(state))
			s.setProfileLabel(nodeA, "sevenths")
			s.waitFollows(nodeA, "sevenths")
			assert.Equal(t, 8*7, s.machine(nodeA).instances())
		})
	}
}

// A driver that comes back from its reload in the old memory mode: nothing is pretended,
// the node is as before, and the condition says what happened.
func TestAMemoryModeThatGotLost(t *testing.T) {
	s := start(t)
	s.gpuPodAt(nodeC, "evicted", classCPX, "")
	s.waitRunning("evicted")
	s.setFaultsOn(nodeC, nvdriver.Faults{AMD: &amdgpu.Faults{MemoryModeLost: true}})
	s.labelProfile(nodeC, "cpx-nps4")
	n := s.waitFailed(nodeC, names.ReasonHardwareFailed)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonHardwareFailed)
	assert.Contains(t, said, "NPS4")
	assert.Contains(t, said, "The node is unchanged, with no profile")
	assert.Equal(t, v1alpha1.ResultRolledBack, n.Status.History[0].Result)
	for _, g := range n.Status.Node.GPUs {
		assert.Contains(t, g.Mode, "NPS1", g.Name)
	}
	s.setProfileLabel(nodeC, "")
	s.clearFaults(nodeC)
	s.waitFollows(nodeC, "")
	s.gpuPodAt(nodeC, "after", classCPX, "")
	s.waitRunning("after")
}

// After the deadline, a profile that says Force has pods deleted whatever their budgets
// say.
func TestForceAfterTheDeadline(t *testing.T) {
	s := start(t)
	s.setProfileSpec("by-force", "{rules: ["+cutInThree+"], switch: {drainDeadline: 5s, afterDeadline: Force}}")
	s.slowPod(nodeA, "kept", classWhole, 1)
	s.zeroBudget("kept")
	s.labelProfile(nodeA, "by-force")
	s.waitGone("kept")
	assert.Contains(t, s.eventsText("kept"), "Deleted after the deadline")
	s.waitFollows(nodeA, "by-force")
}

// zeroBudget has a budget that allows no eviction of a pod.
func (s *suite) zeroBudget(name string) {
	s.t.Helper()
	pod := s.pod(name)
	pod.Labels = map[string]string{"app": name}
	_, err := s.client.CoreV1().Pods(s.namespace).Update(s.ctx, pod, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	budgets := s.client.PolicyV1().PodDisruptionBudgets(s.namespace)
	_, err = budgets.Create(s.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "always"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.eventually("the budget counts the pod", func() (bool, string) {
		b, err := budgets.Get(s.ctx, "always", metav1.GetOptions{})
		require.NoError(s.t, err)
		return b.Status.CurrentHealthy == 1 && b.Status.ObservedGeneration == b.Generation, b.Status.String()
	})
}

// A pod behind a budget that allows nothing must not cost its neighbours their GPU. When
// the budget is gone, the node gets there by itself.
func TestAZeroBudgetOnAGPUThatChanges(t *testing.T) {
	s := start(t)
	s.setProfile("without-mig", `{gpus: {vendor: nvidia}, mig: {mode: Disabled}}`)
	first := s.machine(nodeA).GPUs[0].PCI
	s.gpuPodOn("kept", class1g10gb, first)
	s.gpuPodOn("neighbour", class1g10gb, first)
	s.waitRunning("kept")
	neighbour := s.waitRunning("neighbour")
	s.zeroBudget("kept")
	s.labelProfile(nodeA, "without-mig")
	n := s.waitFailed(nodeA, names.ReasonDrainBlocked)
	require.Len(t, n.Status.Switch.Blockers, 1)
	assert.Equal(t, "kept", n.Status.Switch.Blockers[0].Name)
	assert.Contains(t, n.Status.Switch.Blockers[0].Message, "always")
	assert.Zero(t, n.Status.History[0].Evicted)
	s.requireSame(neighbour)
	said := strings.Join(strings.Fields(s.kubectl("tranche", "switches", nodeA)), " ")
	for _, part := range []string{"DrainBlocked", "no pod was evicted", s.namespace + "/kept", "when the blocking pods can be evicted"} {
		assert.Contains(t, said, part)
	}

	require.NoError(t, s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(s.ctx, "always", metav1.DeleteOptions{}))
	s.waitFollows(nodeA, "without-mig") // within two minutes: a dry run is tried after one
	s.waitGone("neighbour")
}

// The API server goes away while GPUs are changed: when it is back, the switch ends.
func TestAPIServerAwayDuringASwitch(t *testing.T) {
	s := startOnCluster(t)
	s.setProfile("cut-in-three", cutInThree)
	s.slowPartitions()
	s.labelProfile(nodeA, "cut-in-three")
	s.waitGPUNode(nodeA, "is being changed", inState(v1alpha1.Applying))
	s.onHost("cluster", "stop-apiserver", "--dir", s.cluster, "--kill")
	s.onHost("cluster", "start-apiserver", "--dir", s.cluster)
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}
