package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// The newest revision is undone: all nodes have the one before, until the profile changes.
func TestPlanUndo(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfile("planned", "{sharing: {replicas: 3}}")
	s.setPlan("all", "{profile: planned, strategy: {"+inOrder+", maxUnavailable: 3}}")
	s.waitComplete("all", 1)
	first := s.gpuNode(nodeA).Status.Applied.Hash
	s.setProfile("planned", "{sharing: {replicas: 5}}")
	s.waitComplete("all", 2)
	out, err := s.rollout("undo", "all")
	require.NoError(t, err, out)
	assert.Contains(t, out, "all goes back from revision 2 to revision 1")
	s.waitPlan("all", "is undone", func(p *v1alpha1.PartitionPlan) bool { return p.Status.Target == 1 && p.Status.Nodes.Updated == 3 })
	for _, node := range s.nodes {
		n := s.waitFollows(node, "planned")
		assert.Equal(t, first, n.Status.Applied.Hash, node)
	}
	out, err = s.rollout("status", "all")
	require.Error(t, err, out)
	assert.Contains(t, out, names.ReasonUndone)
	s.setProfile("planned", "{sharing: {replicas: 7}}")
	s.waitComplete("all", 3)
}

// A plan that undoes what fails goes back by itself.
func TestPlanUndoesAFailure(t *testing.T) {
	s := start(t)
	s.orderNodes()
	// The nodes without MIG come first, so that some have the revision when node-a fails.
	s.labelNode(nodeA, orderLabel, "9")
	s.setProfile("planned", "{sharing: {replicas: 4}}")
	s.setPlan("all", "{profile: planned, strategy: {"+inOrder+", onFailure: Undo}}")
	s.waitComplete("all", 1)
	before := s.gpuNode(nodeB).Status.Applied.Hash
	s.failCuts()
	s.setProfileSpec("planned", cutNVIDIA)
	p := s.waitPlan("all", "has gone back", func(p *v1alpha1.PartitionPlan) bool {
		return p.Status.Revision == 2 && p.Status.Target == 1 && p.Status.Nodes.Updated == 3
	})
	assert.True(t, p.Status.History[0].Rejected)
	for _, node := range s.nodes {
		assert.Equal(t, before, s.waitFollows(node, "planned").Status.Applied.Hash, node)
	}
}

// A node that joins gets its profile at once, while the plan's budget is used up and nothing
// else may start, and then loses its start-up taint.
func TestPlanAndAJoiningNode(t *testing.T) {
	s := startOnCluster(t)
	s.orderNodes()
	s.setProfileSpec("planned", cutNVIDIA)
	back := s.keepPluginOff(nodeB)
	require.NoError(t, s.tranche.GPUNodes().Delete(s.ctx, nodeB, metav1.DeleteOptions{}))
	t.Cleanup(func() { _, _ = s.try("kubectl", "taint", "node", nodeB, names.TaintStartup+"-") })
	s.kubectl("taint", "node", nodeB, names.TaintStartup+":NoSchedule")
	slow := s.slowPod(nodeA, "slow", classWhole, 540)
	s.setPlan("all", "{profile: planned, strategy: {"+inOrder+", maxUnavailable: 1}}")
	s.waitGPUNode(nodeA, "drains", inState(v1alpha1.Draining))
	back()
	s.requireByPlan("all", "planned", nodeB)
	s.eventually("the start-up taint goes", func() (bool, string) {
		node, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeB, metav1.GetOptions{})
		require.NoError(t, err)
		return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == names.TaintStartup }), "it is there"
	})
	require.Equal(t, v1alpha1.Draining, s.gpuNode(nodeA).Status.State, "it was too slow, so this test shows nothing")
	s.requireUntouched(nodeC)
	s.killProcesses(slow)
	s.waitGone("slow")
	s.waitComplete("all", 1)
}

// Outside its window a plan starts no node.
func TestPlanWindow(t *testing.T) {
	s := start(t)
	s.orderNodes()
	window := func(from, to time.Duration) string {
		now := time.Now().UTC()
		return fmt.Sprintf("{profile: planned, strategy: {%s, maxUnavailable: 3, windows: [{start: %q, end: %q}]}}", inOrder, now.Add(from).Format("15:04"), now.Add(to).Format("15:04"))
	}
	s.setProfile("planned", "{sharing: {replicas: 3}}")
	s.setPlan("nightly", window(2*time.Hour, 3*time.Hour))
	s.waitPlan("nightly", "waits for its window", progresses(names.ReasonOutsideWindow))
	s.requireUntouched(s.nodes...)
	s.setPlan("nightly", window(-time.Hour, time.Hour))
	s.waitComplete("nightly", 1)
	s.requireByPlan("nightly", "planned", s.nodes...)
}

// Two plans select a node: the one with the higher priority has it. A label has precedence over
// both, and the plan counts the node as overruled.
func TestTwoPlansForANode(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfile("for-all", "{sharing: {replicas: 3}}")
	s.setProfile("for-one", "{sharing: {replicas: 5}}")
	s.setProfile("by-hand", "{sharing: {replicas: 7}}")
	s.setPlan("all", "{profile: for-all, strategy: {maxUnavailable: 3}}")
	s.setPlan("one", "{profile: for-one, priority: 10, nodeSelector: {matchLabels: {"+orderLabel+": \"2\"}}}")
	s.waitComplete("all", 1)
	p := s.waitComplete("one", 1)
	assert.EqualValues(t, 1, p.Status.Nodes.Selected)
	s.requireByPlan("all", "for-all", nodeA, nodeC)
	s.requireByPlan("one", "for-one", nodeB)

	s.setProfileLabel(nodeC, "by-hand")
	t.Cleanup(func() { s.setProfileLabel(nodeC, "") })
	n := s.waitFollows(nodeC, "by-hand")
	s.requireCondition(n, names.ConditionOverruled, metav1.ConditionTrue, names.ReasonPlanOverruled)
	s.waitPlan("all", "counts the node as overruled", func(p *v1alpha1.PartitionPlan) bool { return p.Status.Nodes.Overruled == 1 })
	s.setProfileLabel(nodeC, "")
	s.requireByPlan("all", "for-all", nodeC)

	s.kubectl("delete", "partitionplan", "one")
	s.requireByPlan("all", "for-all", nodeB)
	s.waitPlan("all", "has all nodes", func(p *v1alpha1.PartitionPlan) bool {
		return p.Status.Nodes.Selected == 3 && meta.IsStatusConditionTrue(p.Status.Conditions, names.ConditionComplete)
	})
}

// The controller is killed in every phase of a rollout. The next one goes on where it was:
// no node is switched twice, and no pod asked to leave twice.
func TestPlanAndTheControllerKilledInEveryStep(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfileSpec("planned", cutNVIDIA)
	s.slowPod(nodeA, "slow", classWhole, 20)
	begun := time.Now()
	s.setPlan("all", "{profile: planned, strategy: {"+inOrder+", steps: [{nodes: 1, soak: 10s}, {nodes: 2, approval: true}]}}")
	s.waitGPUNode(nodeA, "has asked the pod to leave", func(g *v1alpha1.GPUNode) bool {
		return g.Status.State == v1alpha1.Draining && g.Status.Switch.Evicted == 1
	})
	s.killControllers()
	p := s.waitPlan("all", "watches the canary", progresses(names.ReasonSoaking))
	require.NotNil(t, p.Status.StepReached)
	reached := p.Status.StepReached.Time
	s.killControllers()
	p = s.waitPlan("all", "waits for an approval", progresses(names.ReasonWaitsForApproval))
	assert.EqualValues(t, 2, p.Status.Step)
	second, _ := s.lastSwitch(nodeB)
	assert.GreaterOrEqual(t, second.Sub(reached), 9*time.Second, "the soak does not begin again, and is not cut short")
	s.killControllers()
	out, err := s.rollout("approve", "all")
	require.NoError(t, err, out)
	s.waitComplete("all", 1)
	for _, node := range s.nodes {
		assert.Equal(t, 1, s.switchesSince(begun, node), gpuNodeText(s.gpuNode(node)))
	}
	assert.EqualValues(t, 1, s.gpuNode(nodeA).Status.History[0].Evicted)

	out, err = s.rollout("undo", "all")
	require.NoError(t, err, out)
	s.killControllers()
	for _, node := range s.nodes {
		s.waitFollows(node, "")
	}
}

// switchesSince counts the finished switches of a node that started after a time.
func (s *suite) switchesSince(at time.Time, node string) (n int) {
	s.t.Helper()
	for _, r := range s.gpuNode(node).Status.History {
		if r.Started.After(at) {
			n++
		}
	}
	return n
}
