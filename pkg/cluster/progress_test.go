package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

var now = gpunodes.Now

const draining = "evicts pods from gpu-a: pod team/train-0 (gpu-a-cpx-0) is not evicted: budget team/train allows no eviction; " +
	"until 14:05:00 UTC at the latest, then it is canceled and the GPUs stay as they are"

// TestNode: what is said of a node in each state.
func TestNode(t *testing.T) {
	for name, test := range map[string]struct {
		node  *gpunodes.Node
		title string
		says  []string
	}{
		"follows":  {gpunodes.WithProfile("n", "cpx"), "profile cpx", nil},
		"unwanted": {gpunodes.WithProfile("n", ""), "", nil},
		"draining": {gpunodes.WithProfile("n", "spx").Switches(v1beta1.Draining, "cpx", draining, "gpu-a"), "profile spx → cpx",
			[]string{"Draining since 2m, 8m left: " + draining + "."}},
		"first profile": {gpunodes.WithProfile("n", "").Switches(v1beta1.Planning, "cpx", "the plan is made"), "profile none → cpx",
			[]string{"Planning since 2m, 8m left: the plan is made."}},
		"changed profile": {gpunodes.WithProfile("n", "cpx").Switches(v1beta1.Waiting, "cpx", "waits for other nodes"), "profile cpx, in an older version",
			[]string{"Waiting since 2m, 8m left: waits for other nodes."}},
		"failed": {gpunodes.WithProfile("n", "spx").Fails("cpx", "DrainDeadline", "not all pods left the GPUs within 10m0s: pod team/train-0", true), "profile spx → cpx",
			[]string{"Failed 3m ago (DrainDeadline): profile cpx could not be applied: not all pods left the GPUs within 10m0s: pod team/train-0. " +
				"The node is unchanged, with profile spx. Attempt 2 starts in 60s."}},
		"does not fit": {gpunodes.WithProfile("n", "").Fails("cpx", "ProfileDoesNotFit", "gpu-a is no AMD GPU.", false), "profile none → cpx",
			[]string{"Failed 3m ago (ProfileDoesNotFit): profile cpx could not be applied: gpu-a is no AMD GPU. " +
				"The node is unchanged, with no profile. It is retried when the profile, its policy, the GPUs or the plugin's settings change."}},
		"not rolled back": {gpunodes.WithProfile("n", "spx").Fails("cpx", "RollbackFailed", "the driver did not load", true), "profile spx → cpx",
			[]string{"Failed 3m ago (RollbackFailed): profile cpx could not be applied: the driver did not load. Attempt 2 starts in 60s."}},
		"overridden": {gpunodes.WithProfile("n", "cpx").Says(names.ConditionOverridden, true, "LabelHolds", "the node's label holds"), "profile cpx",
			[]string{"The node's label holds."}},
		"conflict": {gpunodes.WithProfile("n", "").Says(names.ConditionConflicted, true, "OtherSystem", "other systems serve GPUs of the node").
			Says(names.ConditionReady, false, "OtherSystem", "other systems serve GPUs of the node"), "",
			[]string{"Other systems serve GPUs of the node."}},
		"no such profile": {gpunodes.WithProfile("n", "cpx").Says(names.ConditionReady, false, names.ReasonProfileNotFound, "there is no profile typo; it keeps profile cpx"), "profile cpx",
			[]string{"There is no profile typo; it keeps profile cpx."}},
		"paused": {gpunodes.WithProfile("n", "cpx").Says(names.ConditionReady, true, names.ReasonPaused, "spec.paused is true."), "profile cpx",
			[]string{"spec.paused is true."}},
		"waits": {gpunodes.WithProfile("n", "cpx").Says(names.ConditionRolloutPending, true, names.ReasonWaitsForPlan, "waits for plan canary"), "profile cpx",
			[]string{"Waits for plan canary."}},
		"of the control plane": {gpunodes.WithProfile("n", "cpx").Says(names.ConditionReady, true, names.ReasonControlPlaneNotNamed, "the node belongs to the control plane"), "profile cpx",
			[]string{"The node belongs to the control plane."}},
		"control plane": {gpunodes.WithProfile("n", "").Says(names.ConditionReady, true, names.ReasonControlPlaneNotNamed, "the node belongs to the control plane"), "", nil},
		"empty message": {gpunodes.WithProfile("n", "cpx").Says(names.ConditionOverridden, true, "LabelHolds", "."), "profile cpx", []string{""}},
	} {
		calm := slices.Contains([]string{"paused", "waits", "of the control plane"}, name)
		t.Run(name, func(t *testing.T) {
			far := cluster.ProgressOf(&test.node.GPUNode)
			assert.Equal(t, test.title, far.Title())
			var says []string
			for _, s := range far.Sentences(now) {
				says = append(says, s.Text)
				assert.Equal(t, calm, !s.Warning)
			}
			assert.Equal(t, test.says, says)
		})
	}
	assert.Empty(t, cluster.ProgressOf(&v1beta1.GPUNode{}).Sentences(now), "a node of which nobody has said anything")
}

func TestTimes(t *testing.T) {
	n := gpunodes.WithProfile("n", "spx").Switches(v1beta1.Applying, "cpx", "", "gpu-a")
	n.Status.Switch.Attempt = 3
	far := cluster.ProgressOf(&n.GPUNode)
	assert.Equal(t, "Applying since 2m, 8m left, attempt 3.", far.Doings(now))
	assert.Equal(t, "Applying since 20m, overdue by 10m", far.During(now.Add(18*time.Minute)))
	assert.Equal(t, "Applying since 0s, 15m left", far.During(now.Add(-7*time.Minute)), "clocks differ")
	n.Status.Switch.DeadlineTime = nil
	assert.Equal(t, "Applying since 2m", cluster.ProgressOf(&n.GPUNode).During(now))
	assert.Equal(t, "14:05:00 UTC", text.Clock(far.Switch.DeadlineTime.Time))

	assert.Equal(t, "when the profile, its policy, the GPUs or the plugin's settings change", far.Again())
	far.Switch.RebootRequested = true
	assert.Equal(t, "when the profile or its policy changes", far.Again())
	far.Switch.Blockers = []v1beta1.Blocker{{Kind: v1beta1.BlockerPod, Namespace: "team", Name: "web", UID: "u"}}
	assert.Contains(t, far.Again(), "when what blocks it is gone")

	n.Fails("cpx", "InUse", "", true)
	assert.Contains(t, cluster.ProgressOf(&n.GPUNode).Failure(now.Add(time.Hour)), "Attempt 2 starts now.")

	// A message of the state before says nothing of this one.
	n.Switches(v1beta1.Applying, "cpx", "").Says(names.ConditionSwitching, true, "Draining", "evicts pods")
	assert.Equal(t, "Applying since 2m, 8m left.", cluster.ProgressOf(&n.GPUNode).Doings(now))
}

func TestGPUs(t *testing.T) {
	n := gpunodes.WithProfile("n", "spx").GPUs(gpunodes.XCP("SPX", "NPS1"), "gpu-a", "gpu-b").Switches(v1beta1.Draining, "cpx", "", "gpu-b")
	n.Status.Node.GPUs[0].Pending, n.Status.Node.GPUs[0].Problems = "later", []v1beta1.GPUProblem{{Message: "hot"}}
	modes := gpunodes.XCP("SPX", "NPS1")
	want := []cluster.GPUState{{HardwareMode: modes, Pending: "later", Problem: "hot"}, {HardwareMode: modes, Change: "compute mode CPX"}}
	assert.Equal(t, want, cluster.GPUsOf(&n.Plan("compute mode CPX").GPUNode))
	n.Status.Node.Task.SwitchID = "another"
	want[1].Change = "being switched"
	assert.Equal(t, want, cluster.GPUsOf(&n.GPUNode))
	assert.Nil(t, cluster.GPUsOf(&v1beta1.GPUNode{}))
	assert.Equal(t, "tranche.dev/profile=spx", cluster.ProgressOf(&gpunodes.WithProfile("n", "spx").GPUNode).Label)
	n.Status.Desired.Source = v1beta1.FromSpec
	assert.Empty(t, cluster.ProgressOf(&n.GPUNode).Label)

	for state, keepsOff := range map[v1beta1.State]bool{
		v1beta1.Planning: false, v1beta1.Waiting: false, v1beta1.Tainted: true, v1beta1.Draining: true, v1beta1.RollingBack: true, v1beta1.Failed: false,
	} {
		n.Status.State = state
		assert.Equal(t, keepsOff, cluster.ProgressOf(&n.GPUNode).KeepsOff("gpu-b"), state)
		assert.False(t, cluster.ProgressOf(&n.GPUNode).KeepsOff("gpu-a"), state)
	}
}

func TestRestricts(t *testing.T) {
	assert.True(t, cluster.Progress{Applied: v1beta1.ProfileSnapshot{RulesVersion: "later"}}.Restricts(), "what cannot be read")
	for want, rules := range map[bool][]v1beta1.Rule{
		true: {
			{MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic}}, {MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}, {MIG: &v1beta1.MIG{Profiles: []string{"1g"}}},
			{MIG: &v1beta1.MIG{WholeGPUs: ptr.To(false)}}, {XCP: &v1beta1.XCP{ComputePartition: "CPX"}}, {XCP: &v1beta1.XCP{MemoryPartition: "NPS1"}},
			{Sharing: &v1beta1.Sharing{WholeGPUs: ptr.To(false)}}, {MIG: &v1beta1.MIG{Mode: v1beta1.MIGNoPartitions}}, {Unchanged: true},
		},
		false: {{}, {MIG: &v1beta1.MIG{Mode: v1beta1.MIGDynamic}}, {XCP: &v1beta1.XCP{}}, {Sharing: &v1beta1.Sharing{Replicas: ptr.To(int32(3))}}},
	} {
		for _, rule := range rules {
			assert.Equal(t, want, cluster.ProgressOf(&gpunodes.WithProfile("n", "p", rule).GPUNode).Restricts(), "%+v", rule)
		}
	}
}

// Of a profile the nodes are listed that want it, and those that have it; one that was deleted is there
// as long as nodes name it.
func TestProfiles(t *testing.T) {
	rules := []v1beta1.Rule{{Unchanged: true}}
	var nodes []v1beta1.GPUNode
	for _, n := range []*gpunodes.Node{
		gpunodes.WithProfile("c", "cpx").Switches(v1beta1.Draining, "gone", "drains"), gpunodes.WithProfile("b", "cpx"), gpunodes.WithProfile("a", "cpx"), gpunodes.WithProfile("d", ""),
	} {
		nodes = append(nodes, n.GPUNode)
	}
	assert.Equal(t, []cluster.Profile{
		{Name: "cpx", Rules: rules, Desired: []string{"a", "b"}, Applied: []string{"a", "b", "c"}},
		{Name: "gone", Missing: true, Desired: []string{"c"}},
		{Name: "unused"},
	}, cluster.Profiles([]v1beta1.PartitionProfile{
		{ObjectMeta: metav1.ObjectMeta{Name: "unused"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "cpx"}, Spec: v1beta1.PartitionProfileSpec{Rules: rules}},
	}, nodes))
}
