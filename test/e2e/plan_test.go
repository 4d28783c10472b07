package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// orderLabel is by which the plans of these tests order the nodes: a, b, c.
const orderLabel = "e2e.tranche.dev/order"

// inOrder is the part of a plan's strategy that orders the nodes.
const inOrder = "order: {by: Label, label: " + orderLabel + "}"

// orderNodes labels the nodes until the test ends.
func (s *suite) orderNodes() {
	s.t.Helper()
	for i, node := range s.nodes {
		s.labelNode(node, orderLabel, fmt.Sprint(i+1))
		s.t.Cleanup(func() { s.labelNode(node, orderLabel, "") })
	}
}

// setPlan makes a plan, or changes it, until the test ends.
func (s *suite) setPlan(name, spec string) {
	s.t.Helper()
	s.t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "partitionplan", name) })
	s.kubectl("apply", "--validate=strict", "-f", s.planFile(name, spec))
}

// planFile writes a plan into a file.
func (s *suite) planFile(name, spec string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), name+".yaml")
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", v1alpha1.GroupVersion, v1alpha1.PlanKind, name, spec)
	require.NoError(s.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// waitPlan waits until a plan is as it should be.
func (s *suite) waitPlan(name, what string, ok func(*v1alpha1.PartitionPlan) bool) (p *v1alpha1.PartitionPlan) {
	s.t.Helper()
	s.eventually("plan "+name+" "+what, func() (bool, string) {
		var err error
		p, err = s.tranche.PartitionPlans().Get(s.ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		text, _ := yaml.Marshal(p.Status)
		return p.Status.ObservedGeneration == p.Generation && ok(p), string(text)
	})
	return p
}

// progresses tells whether the reason of Progressing is one of these.
func progresses(reason string) func(*v1alpha1.PartitionPlan) bool {
	return func(p *v1alpha1.PartitionPlan) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, names.ConditionProgressing)
		return c != nil && c.Reason == reason
	}
}

// waitComplete waits until all nodes of a plan have a revision.
func (s *suite) waitComplete(name string, revision int64) *v1alpha1.PartitionPlan {
	s.t.Helper()
	return s.waitPlan(name, fmt.Sprintf("has rolled out revision %d", revision), func(p *v1alpha1.PartitionPlan) bool {
		return p.Status.Target == revision && meta.IsStatusConditionTrue(p.Status.Conditions, names.ConditionComplete)
	})
}

// requireByPlan checks that nodes have what a plan says.
func (s *suite) requireByPlan(plan, profile string, nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		n := s.waitFollows(node, profile)
		assert.Equal(s.t, v1alpha1.FromPlan, n.Status.Desired.Source, node)
		assert.Equal(s.t, plan, n.Status.Desired.Plan, node)
	}
}

// requireUntouched checks that nodes have no profile, and were not switched.
func (s *suite) requireUntouched(nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		n := s.gpuNode(node)
		require.True(s.t, follows("")(n), gpuNodeText(n))
	}
}

// rollout runs `kubectl tranche rollout` and returns what it says.
func (s *suite) rollout(args ...string) (string, error) {
	return s.try("kubectl", append([]string{"tranche", "rollout"}, args...)...)
}

// lastSwitch is the newest finished switch of a node: when it started and ended.
func (s *suite) lastSwitch(node string) (from, to time.Time) {
	s.t.Helper()
	n := s.gpuNode(node)
	require.NotEmpty(s.t, n.Status.History, gpuNodeText(n))
	r := n.Status.History[0]
	return r.Started.Time, r.Started.Add(r.Duration.Duration)
}

// A canary, then another node, then all: also for an edit that disturbs no pod. Who holds a
// GPU keeps it.
func TestPlanWithACanary(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.gpuPodAt(nodeB, "holder", classWhole, "")
	holder := s.waitRunning("holder")
	s.setProfile("planned", "{sharing: {replicas: 3}}")
	s.setPlan("canary", "{profile: planned, strategy: {"+inOrder+", steps: [{nodes: 1, soak: 15s}, {nodes: 50%}]}}")
	s.waitPlan("canary", "watches the canary", progresses(names.ReasonSoaking))
	s.requireByPlan("canary", "planned", nodeA)
	s.requireUntouched(nodeB, nodeC)
	for _, node := range []string{nodeB, nodeC} {
		s.waitGPUNode(node, "waits for the plan", func(n *v1alpha1.GPUNode) bool {
			c := meta.FindStatusCondition(n.Status.Conditions, names.ConditionRolloutPending)
			return c != nil && c.Status == metav1.ConditionTrue && c.Reason == names.ReasonWaitsForPlan
		})
	}
	p := s.waitComplete("canary", 1)
	assert.EqualValues(t, 3, p.Status.Nodes.Updated)
	s.requireByPlan("canary", "planned", s.nodes...)
	s.requireSame(holder)
	_, canary := s.lastSwitch(nodeA)
	second, _ := s.lastSwitch(nodeB)
	third, _ := s.lastSwitch(nodeC)
	assert.GreaterOrEqual(t, second.Sub(canary), 12*time.Second, "the soak")
	assert.True(t, third.After(second))
	out, err := s.rollout("status", "canary")
	require.NoError(t, err, out)
	assert.Contains(t, out, "3 of 3 nodes updated (Complete)")

	s.setProfile("planned", "{sharing: {replicas: 5}}")
	s.waitPlan("canary", "watches the canary again", func(p *v1alpha1.PartitionPlan) bool {
		return p.Status.Revision == 2 && progresses(names.ReasonSoaking)(p)
	})
	a, b := s.gpuNode(nodeA), s.gpuNode(nodeB)
	assert.NotEqual(t, a.Status.Applied.Hash, b.Status.Applied.Hash, "an edit that disturbs nobody takes the steps, too")
	s.waitComplete("canary", 2)
	s.requireSame(holder)
	assert.Equal(t, s.gpuNode(nodeA).Status.Applied.Hash, s.gpuNode(nodeC).Status.Applied.Hash)
}

// cutNVIDIA cuts GPUs with MIG, and shares the others: it fits all nodes.
const cutNVIDIA = `{rules: [{gpus: {vendor: nvidia, mig: Capable}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 2}, {profile: 3g.40gb}]}},
	{gpus: {vendor: nvidia, mig: Incapable}, sharing: {replicas: 3}}, {gpus: {vendor: amd}, sharing: {replicas: 3}}]}`

// The canary fails, so nobody else is touched. When it works again, a person has the plan go on.
func TestPlanStopsAtAFailingCanary(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfileSpec("planned", cutNVIDIA)
	s.failCuts()
	s.setPlan("canary", "{profile: planned, strategy: {"+inOrder+", steps: [{nodes: 1, soak: 1s}]}}")
	p := s.waitPlan("canary", "has stopped", func(p *v1alpha1.PartitionPlan) bool { return p.Status.Stopped != nil })
	require.Len(t, p.Status.Failed, 1)
	assert.Equal(t, nodeA, p.Status.Failed[0].Node)
	assert.Equal(t, names.ReasonHardwareFailed, p.Status.Failed[0].Reason)
	assert.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, names.ConditionDegraded))
	assert.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, names.ConditionPaused))
	s.requireUntouched(nodeB, nodeC)
	out, err := s.rollout("status", "canary")
	require.Error(t, err)
	assert.Contains(t, out, "the rollout is not complete")
	s.requireUntainted(nodeA)
	assert.Zero(t, s.machine(nodeA).instances())

	s.clearFaults(nodeA)
	out, err = s.rollout("resume", "canary")
	require.NoError(t, err, out)
	assert.Contains(t, out, "in spite of 1 failed nodes")
	s.waitFollows(nodeA, "planned")
	s.waitComplete("canary", 1)
	s.requireByPlan("canary", "planned", s.nodes...)
}

// A plan that is paused starts no more nodes, and the one that is being switched gets there.
func TestPlanPauseAndResume(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfileSpec("planned", cutNVIDIA)
	s.slowPod(nodeA, "slow", classWhole, 30)
	s.setPlan("all", "{profile: planned, strategy: {"+inOrder+", maxUnavailable: 1}}")
	s.waitGPUNode(nodeA, "drains", inState(v1alpha1.Draining))
	out, err := s.rollout("pause", "all")
	require.NoError(t, err, out)
	s.waitPlan("all", "is paused", func(p *v1alpha1.PartitionPlan) bool {
		return meta.IsStatusConditionTrue(p.Status.Conditions, names.ConditionPaused)
	})
	s.requireByPlan("all", "planned", nodeA)
	s.waitPlan("all", "has nobody under way", func(p *v1alpha1.PartitionPlan) bool {
		return p.Status.Nodes.Switching == 0 && p.Status.Nodes.Updated == 1
	})
	s.requireUntouched(nodeB, nodeC)
	out, err = s.rollout("resume", "all")
	require.NoError(t, err, out)
	s.waitComplete("all", 1)
	s.requireByPlan("all", "planned", s.nodes...)
}

// A step with approval waits for a person, and for each revision again.
func TestPlanApproval(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfile("planned", "{sharing: {replicas: 3}}")
	s.setPlan("canary", "{profile: planned, strategy: {"+inOrder+", maxUnavailable: 3, steps: [{nodes: 1, approval: true}]}}")
	for revision := int64(1); revision <= 2; revision++ {
		s.waitPlan("canary", "waits for an approval", func(p *v1alpha1.PartitionPlan) bool {
			return p.Status.Revision == revision && progresses(names.ReasonWaitsForApproval)(p)
		})
		assert.NotEqual(t, s.gpuNode(nodeA).Status.Applied.Hash, s.gpuNode(nodeB).Status.Applied.Hash)
		out, err := s.rollout("approve", "canary")
		require.NoError(t, err, out)
		assert.Contains(t, out, fmt.Sprintf("Approved step 1 of revision %d", revision))
		s.waitComplete("canary", revision)
		s.setProfile("planned", "{sharing: {replicas: 5}}")
	}
}

// failCuts makes partitions of NVIDIA's GPUs on node-a impossible.
func (s *suite) failCuts() {
	s.t.Helper()
	s.replaceOnDisk(nodeA, faultsFile, fileText(repository+"/demo/profile-rollback/fault/faults.yaml"))
}

// Nodes whose pods cannot leave are set aside: the others get there, and these when the budget
// allows it.
func TestPlanSetsNodesAside(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfileSpec("planned", cutNVIDIA)
	s.slowPod(nodeA, "kept", classWhole, 1)
	s.zeroBudget("kept")
	s.setPlan("all", "{profile: planned, strategy: {"+inOrder+", maxUnavailable: 1}}")
	p := s.waitPlan("all", "has set node-a aside", func(p *v1alpha1.PartitionPlan) bool {
		return p.Status.Nodes.SetAside == 1 && p.Status.Nodes.Updated == 2
	})
	require.Len(t, p.Status.SetAside, 1)
	assert.Equal(t, nodeA, p.Status.SetAside[0].Node)
	assert.Equal(t, names.ReasonDrainBlocked, p.Status.SetAside[0].Reason)
	assert.Zero(t, p.Status.Nodes.Failed)
	s.requireByPlan("all", "planned", nodeB, nodeC)
	s.requireUntainted(nodeA)
	s.delete("kept")
	s.waitComplete("all", 1)
	s.requireByPlan("all", "planned", s.nodes...)
}

// What a plan would do is told, and nothing happens.
func TestPlanDryRun(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.setProfileSpec("planned", cutNVIDIA)
	s.slowPod(nodeA, "leaves", classWhole, 1)
	s.gpuPodAt(nodeB, "stays", classWhole, "")
	s.waitRunning("stays")
	s.slowPod(nodeC, "shares", classSPX, 1)
	file := s.planFile("all", "{profile: planned, strategy: {"+inOrder+", steps: [{nodes: 1}]}}")
	out, err := s.try("kubectl", "tranche", "plan", "--dry-run", "-f", file)
	require.NoError(t, err, out)
	assert.Regexp(t, `(?ms)^1 +`+nodeA+`.*^2 +`+nodeB+`.*^2 +`+nodeC, out)
	assert.Contains(t, out, s.namespace+"/leaves")
	assert.NotContains(t, out, s.namespace+"/stays")
	s.zeroBudget("leaves")
	out, err = s.try("kubectl", "tranche", "plan", "--dry-run", "-f", file)
	require.NoError(t, err, out)
	assert.Contains(t, strings.ToLower(out), "cannot be evicted")
	_, err = s.tranche.PartitionPlans().Get(s.ctx, "all", metav1.GetOptions{})
	require.Error(t, err)
	s.requireUntouched(s.nodes...)
}
