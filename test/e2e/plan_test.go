package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// orderLabel is by which the plans of these tests order the nodes: a, b, c.
const orderLabel = "e2e.tranche.dev/order"

// inOrder is the part of a plan's strategy that orders the nodes.
const inOrder = "order: {by: Label, labelKey: " + orderLabel + "}"

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
	s.setObject(v1beta1.PlanKind, name, spec)
}

// waitPlan waits until a plan is as it should be.
func (s *suite) waitPlan(name, what string, ok func(*v1beta1.PartitionPlan) bool) (p *v1beta1.PartitionPlan) {
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

// progresses reports whether the reason of Progressing is one of these.
func progresses(reason string) func(*v1beta1.PartitionPlan) bool {
	return func(p *v1beta1.PartitionPlan) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, names.ConditionProgressing)
		return c != nil && c.Reason == reason
	}
}

// waitComplete waits until all nodes of a plan have a revision.
func (s *suite) waitComplete(name string, revision int64) *v1beta1.PartitionPlan {
	s.t.Helper()
	return s.waitPlan(name, fmt.Sprintf("has rolled out revision %d", revision), func(p *v1beta1.PartitionPlan) bool {
		return ptr.Equal(p.Status.TargetRevision, &revision) && progresses(names.ReasonComplete)(p)
	})
}

// requireByPlan checks that nodes have what a plan says.
func (s *suite) requireByPlan(plan, profile string, nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		n := s.waitFollows(node, profile)
		assert.Equal(s.t, v1beta1.FromPlan, n.Status.Desired.Source, node)
		assert.Equal(s.t, plan, n.Status.Desired.PlanName, node)
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

// A canary, then an approval, then all: also for an edit that disturbs no pod, and until it is
// undone. Who holds a GPU keeps it.
func TestPlanWithACanary(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.gpuPodAt(nodeB, "holder", classWhole, "")
	holder := s.waitRunning("holder")
	s.setProfile("planned", "{sharing: {replicas: 3}}")
	s.setPlan("canary", "{profileName: planned, nodeSelector: {}, strategy: {"+inOrder+", maxUnavailable: 2, steps: [{nodes: 1, soak: 1s, approval: true}]}}")
	for revision := int64(1); revision <= 2; revision++ {
		s.waitPlan("canary", "waits for an approval", func(p *v1beta1.PartitionPlan) bool {
			return p.Status.Revision == revision && progresses(names.ReasonWaitsForApproval)(p)
		})
		assert.NotEqual(t, s.gpuNode(nodeA).Status.Applied.Hash, s.gpuNode(nodeB).Status.Applied.Hash)
		for _, node := range []string{nodeB, nodeC} {
			s.waitGPUNode(node, "waits for the plan", func(n *v1beta1.GPUNode) bool {
				c := meta.FindStatusCondition(n.Status.Conditions, names.ConditionRolloutPending)
				return c != nil && c.Status == metav1.ConditionTrue && c.Reason == names.ReasonWaitsForPlan
			})
		}
		out, err := s.rollout("approve", "canary")
		require.NoError(t, err, out)
		assert.Contains(t, out, fmt.Sprintf("Approved step 1 of revision %d", revision))
		p := s.waitComplete("canary", revision)
		assert.EqualValues(t, 3, p.Status.NodeCounts.Updated)
		s.requireByPlan("canary", "planned", s.nodes...)
		s.setProfile("planned", "{sharing: {replicas: 5}}")
	}
	out, err := s.rollout("status", "canary")
	require.NoError(t, err, out)
	assert.Contains(t, out, "3 of 3 nodes updated (Complete)")

	out, err = s.rollout("undo", "canary")
	require.NoError(t, err, out)
	assert.Contains(t, out, "canary goes back from revision 2 to revision 1")
	s.waitPlan("canary", "is undone", func(p *v1beta1.PartitionPlan) bool {
		return ptr.Equal(p.Status.TargetRevision, ptr.To[int64](1)) && p.Status.NodeCounts.Updated == 3
	})
	s.requireSame(holder)
}

// cutNVIDIA cuts GPUs with MIG, and shares the others: it fits all nodes.
const cutNVIDIA = `{rules: [{gpus: {vendor: nvidia, migSupport: Capable}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 2}, {profile: 3g.40gb}]}},
	{gpus: {vendor: nvidia, migSupport: Incapable}, sharing: {replicas: 3}}, {gpus: {vendor: amd}, sharing: {replicas: 3}}]}`

// zoneLabel is the zone of a node for the plans of these tests.
const zoneLabel = "e2e.tranche.dev/zone"

// A plan starts nodes in its windows, and as many of a zone at once as it may. When a node fails, it undoes all.
func TestPlanInZonesAndWindows(t *testing.T) {
	s := start(t)
	s.orderNodes()
	for node, zone := range map[string]string{nodeA: "one", nodeB: "one", nodeC: "two"} {
		s.labelNode(node, zoneLabel, zone)
		t.Cleanup(func() { s.labelNode(node, zoneLabel, "") })
	}
	s.slowPod(nodeA, "slow", classWhole, 10)
	s.setProfileSpec("planned", cutNVIDIA)
	plan := func(more string) {
		s.setPlan("zones", "{profileName: planned, nodeSelector: {}, strategy: {"+inOrder+", maxUnavailable: 3, onFailure: Undo, "+
			"topologyLimits: [{topologyKey: "+zoneLabel+", maxUnavailable: 1}]"+more+"}}")
	}
	inHours := func(n int) string { return time.Now().UTC().Add(time.Duration(n) * time.Hour).Format("15:04") }
	plan(fmt.Sprintf(", windows: [{start: %q, end: %q}]", inHours(2), inHours(3)))
	s.waitPlan("zones", "waits for its window", progresses(names.ReasonOutsideWindow))
	s.requireUntouched(s.nodes...)

	plan("")
	s.waitFollows(nodeC, "planned")
	s.waitGPUNode(nodeA, "is drained", inState(v1beta1.Draining))
	s.requireUntouched(nodeB)
	s.waitComplete("zones", 1)
	s.requireByPlan("zones", "planned", s.nodes...)

	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}}})
	s.setProfileSpec("planned", strings.ReplaceAll(cutNVIDIA, "count: 2", "count: 3"))
	s.waitPlan("zones", "goes back", func(p *v1beta1.PartitionPlan) bool {
		return ptr.Equal(p.Status.TargetRevision, ptr.To[int64](1)) && p.Status.Revision == 2
	})
	s.clearFaults(nodeA)
	s.waitPlan("zones", "is undone", func(p *v1beta1.PartitionPlan) bool { return p.Status.NodeCounts.Updated == 3 })
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// Metrics follow a plan and its switches.
func TestMetricsOfAPlan(t *testing.T) {
	s := start(t)
	s.orderNodes()
	s.slowPod(nodeA, "leaves", classWhole, 1)
	s.setProfileSpec("planned", cutNVIDIA)
	nodes := func(state string, count int) {
		s.eventually(fmt.Sprintf("%d nodes of the plan are %s", count, state), func() (bool, string) {
			metrics := s.controllerMetrics()
			return strings.Contains(metrics, fmt.Sprintf("tranche_plan_nodes{plan=\"measured\",state=%q} %d\n", state, count)), metrics
		})
	}
	s.setPlan("measured", "{profileName: planned, nodeSelector: {}, strategy: {"+inOrder+", steps: [{nodes: 1, approval: true}]}}")
	nodes(names.PlanNodeUpdated, 1)
	nodes(names.PlanNodeWaiting, 2)
	out, err := s.rollout("approve", "measured")
	require.NoError(t, err, out)
	nodes(names.PlanNodeUpdated, 3)
	nodes(names.PlanNodeWaiting, 0)
	metrics := s.controllerMetrics()
	assert.Contains(t, metrics, "tranche_plan_stopped{plan=\"measured\"} 0\n")
	for _, pattern := range []string{
		`tranche_switches_total\{reason="",result="Succeeded"\} [1-9]`, `tranche_switch_duration_seconds_count\{result="Succeeded"\} [1-9]`,
		`tranche_switch_state_duration_seconds_count\{state="Draining"\} [1-9]`, `tranche_switch_evictions_total\{result="Evicted"\} [1-9]`,
	} {
		assert.Regexp(t, "(?m)^"+pattern, metrics)
	}
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
	file := s.objectFile(v1beta1.PlanKind, "all", "{profileName: planned, nodeSelector: {}, strategy: {"+inOrder+", steps: [{nodes: 1}]}}")
	out, err := s.try("kubectl", "tranche", "plan", "-f", file)
	require.NoError(t, err, out)
	assert.Regexp(t, `(?ms)^1 +`+nodeA+`.*^2 +`+nodeB+`.*^2 +`+nodeC, out)
	assert.Contains(t, out, s.namespace+"/leaves")
	assert.NotContains(t, out, s.namespace+"/stays")
	s.zeroBudget("leaves")
	out, err = s.try("kubectl", "tranche", "plan", "-f", file)
	require.NoError(t, err, out)
	assert.Contains(t, strings.ToLower(out), "cannot be evicted")
	_, err = s.tranche.PartitionPlans().Get(s.ctx, "all", metav1.GetOptions{})
	require.Error(t, err)
	s.requireUntouched(s.nodes...)
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
