package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

const zone = corev1.LabelTopologyZone

// fleet has so many ready nodes in two zones. The i-th holds i claims, and has been switched in
// ten minutes.
func fleet(n int) ForecastInput {
	in := ForecastInput{
		Plan: &v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: "canary"}, Spec: v1beta1.PartitionPlanSpec{ProfileName: "new", NodeSelector: &v1beta1.NodeSelector{}}}, Unavailable: intstr.FromInt32(1),
		Target: v1beta1.ProfileSnapshot{ProfileName: "new", Hash: "hash-new"}, Now: gpunodes.Now,
	}
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		g := gpunodes.WithProfile(name, "").Had("", "old", v1beta1.ResultSucceeded, "", "", 10*time.Minute, 0).Had("old", "", v1beta1.ResultNotApplied, "", "", time.Hour, 0)
		g.Status.Node.ClaimCount, g.Status.Node.GPUCount = int32(i), 1
		in.GPUNodes = append(in.GPUNodes, g.GPUNode)
		in.Nodes = append(in.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a", zone: fmt.Sprint(i % 2)}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	return in
}

func steps(all ...intstr.IntOrString) (out []v1beta1.RolloutStep) {
	for _, n := range all {
		out = append(out, v1beta1.RolloutStep{Nodes: n})
	}
	return out
}

func forecast(t *testing.T, in ForecastInput) Forecast {
	t.Helper()
	f, err := Predict(in)
	require.NoError(t, err)
	require.NoError(t, f.Estimate(in))
	return f
}

func TestOrderAndSteps(t *testing.T) {
	in := fleet(5)
	in.Plan.Spec.Strategy.Steps = steps(intstr.FromInt32(1), intstr.FromString("50%"))
	f := forecast(t, in)
	var got []string
	for _, n := range f.Nodes {
		got = append(got, fmt.Sprintf("%d %s", n.Step, n.Name))
	}
	assert.Equal(t, []string{"1 node-0", "2 node-1", "2 node-2", "3 node-3", "3 node-4"}, got, "the emptiest first")
	assert.Equal(t, 3, f.Steps)
	in.Plan.Spec.Strategy = v1beta1.RolloutStrategy{Steps: steps(intstr.FromInt32(1), intstr.FromString("100%")), MaxFailures: intstr.FromString("20%")}
	for i := range in.Plan.Spec.Strategy.Steps {
		in.Plan.Spec.Strategy.Steps[i].Approval = true
	}
	f = forecast(t, in)
	f.Nodes = nil
	assert.Equal(t, Forecast{
		Plan: "canary", Profile: "new", Steps: 2, Approvals: 1, MaxUnavailable: 1, MaxFailures: 1,
		Switch: &metav1.Duration{Duration: 10 * time.Minute}, Observed: 5, Ends: ptr.To(gpunodes.Now.Add(50 * time.Minute)),
	}, f)

	in.Plan.Spec.Strategy.Order = v1beta1.NodeOrder{By: v1beta1.OrderByLabel, LabelKey: "wave"}
	in.Nodes[4].Labels["wave"] = "1"
	assert.Equal(t, "node-4", forecast(t, in).Nodes[0].Name)
	in.Plan.Spec.Strategy.Order = v1beta1.NodeOrder{}

	// What has the profile already counts for the steps.
	in.GPUNodes[0].Status.Applied.Hash = "hash-new"
	f = forecast(t, in)
	require.Len(t, f.Nodes, 4)
	assert.Equal(t, 2, f.Nodes[0].Step)
}

func TestNodesThatAreNotSwitched(t *testing.T) {
	in := fleet(13)
	in.Nodes = in.Nodes[:12] // The last one is gone.
	in.Plan.Spec.NodeSelector = &v1beta1.NodeSelector{MatchLabels: map[string]string{"pool": "a"}}
	in.GPUNodes[0].Spec.ProfileName = "whole"
	in.GPUNodes[0].Annotations = map[string]string{names.AnnotationProfileFrom: names.LabelProfile + "=whole"}
	in.GPUNodes[1].Spec.ProfileName = "half"
	in.Nodes[2].Labels["pool"] = "b"
	in.GPUNodes[3].Status.Applied.Hash = "hash-new"
	in.Nodes[4].Labels[ControlPlaneLabel] = ""
	in.GPUNodes[5].Status.Node = nil
	in.Nodes[6].Status.Conditions[0].Status = corev1.ConditionUnknown
	in.GPUNodes[7].Spec.Paused = true
	in.GPUNodes[8].Spec.ProfileName = "mig-parted.some"
	in.GPUNodes[8].Annotations = map[string]string{names.AnnotationProfileFrom: names.LabelMIGConfig + "=some"}
	in.Nodes[9].Labels["other"] = "yes"
	in.GPUNodes[10].Status.Node.GPUCount = 0
	in.GPUNodes[11].Status.Node.OtherSystems = []v1beta1.OtherSystem{{Name: "mig-manager", Message: "mig-manager runs here"}}
	other := v1beta1.PartitionPlanSpec{Priority: 5, NodeSelector: &v1beta1.NodeSelector{MatchLabels: map[string]string{"other": "yes"}}}
	in.Others = []v1beta1.PartitionPlan{{ObjectMeta: metav1.ObjectMeta{Name: "undone"}, Spec: other, Status: v1beta1.PartitionPlanStatus{Revision: 1}}, {ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Spec: other}}
	in.Unavailable, in.Plan.Spec.Strategy.MaxFailures = intstr.FromString("100%"), intstr.FromString("75%")
	slices.Reverse(in.GPUNodes)
	f := forecast(t, in)
	assert.Equal(t, []int{4, 3}, []int{f.MaxUnavailable, f.MaxFailures}, "of those that can get the profile")
	assert.Empty(t, f.Nodes)
	assert.Equal(t, []OtherNode{
		{"node-0", names.ReasonPlanOverridden, "its label tranche.dev/profile=whole has precedence"},
		{"node-1", names.ReasonPlanOverridden, "spec.profileName half of its GPUNode has precedence"},
		{"node-11", names.ReasonOtherSystem, "another system serves its GPUs: mig-manager runs here"},
		{"node-3", names.ReasonApplied, "it has the profile already"},
		{"node-4", names.ReasonControlPlaneNotNamed, "it belongs to the control plane"},
		{"node-5", names.ReasonNoReport, "its plugin has not reported yet"},
		{"node-6", names.ReasonNotReady, "it is not ready"},
		{"node-7", names.ReasonPaused, "spec.paused of its GPUNode is true"},
		{"node-8", names.ReasonPlanOverridden, "its label nvidia.com/mig.config=some has precedence"},
		{"node-9", names.ReasonOtherPlan, "plan urgent has it, with priority 5"},
	}, f.Others)
	in.Plan.Spec.Priority = 6
	assert.Len(t, forecast(t, in).Nodes, 1)
	in.Plan.Spec.Priority, in.Plan.Name = 0, "urgent"
	assert.Len(t, forecast(t, in).Nodes, 1, "it is the plan itself")
	in.Plan.Spec.NodeSelector = &v1beta1.NodeSelector{MatchLabels: map[string]string{"pool": "training"}}
	_, err := Predict(in)
	require.EqualError(t, err, "spec.nodeSelector selects no node with GPUs: pool=training")
	in.Plan.Spec.NodeSelector = &v1beta1.NodeSelector{MatchExpressions: []v1beta1.NodeRequirement{{Key: "a", Operator: "Is"}}}
	_, err = Predict(in)
	require.ErrorContains(t, err, "spec.nodeSelector: ")
	in.Plan.Spec.NodeSelector = nil
	_, err = Predict(in)
	require.EqualError(t, err, "spec.nodeSelector is missing: {} selects all nodes")
}

func TestPrecedenceOfPlans(t *testing.T) {
	plan := func(name string, priority int32, age time.Duration) *v1beta1.PartitionPlan {
		p := &v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.PartitionPlanSpec{Priority: priority}}
		if age > 0 {
			p.CreationTimestamp = metav1.NewTime(gpunodes.Now.Add(-age))
		}
		return p
	}
	for _, test := range []struct{ first, second *v1beta1.PartitionPlan }{
		{plan("b", 1, time.Hour), plan("a", 0, 2*time.Hour)},
		{plan("b", 0, 2*time.Hour), plan("a", 0, time.Hour)},
		{plan("a", 0, time.Hour), plan("b", 0, time.Hour)},
		{plan("b", 0, time.Hour), plan("a", 0, 0)},
	} {
		assert.True(t, (&ForecastInput{Plan: test.second}).precedes(test.first))
		if !test.second.CreationTimestamp.IsZero() {
			assert.Negative(t, ComparePlans(test.first, test.second))
			assert.False(t, (&ForecastInput{Plan: test.first}).precedes(test.second))
		}
	}
}

func TestEstimate(t *testing.T) {
	const minute = time.Minute
	for name, test := range map[string]struct {
		change func(*ForecastInput)
		want   time.Duration
	}{
		"one after the other": {func(*ForecastInput) {}, 60 * minute},
		"two at once":         {func(in *ForecastInput) { in.Unavailable = intstr.FromInt32(2) }, 30 * minute},
		"two of five":         {func(in *ForecastInput) { in.Unavailable = intstr.FromString("40%") }, 30 * minute},
		"by the plan": {func(in *ForecastInput) {
			in.Plan.Spec.Strategy.MaxUnavailable = ptr.To(intstr.FromString("50%"))
		}, 20 * minute},
		"one of a zone": {func(in *ForecastInput) {
			in.Unavailable = intstr.FromInt32(6)
			in.Plan.Spec.Strategy.TopologyLimits = []v1beta1.TopologyLimit{{TopologyKey: zone, MaxUnavailable: intstr.FromInt32(1)}}
		}, 30 * minute},
		"one of a zone and of a rack": {func(in *ForecastInput) {
			in.Unavailable = intstr.FromInt32(6)
			for i := range in.Nodes { // Three racks, each in both zones.
				in.Nodes[i].Labels["rack"] = string(rune('a' + i/2))
			}
			in.Plan.Spec.Strategy.TopologyLimits = []v1beta1.TopologyLimit{
				{TopologyKey: zone, MaxUnavailable: intstr.FromInt32(3)}, {TopologyKey: "rack", MaxUnavailable: intstr.FromInt32(1)},
			}
		}, 20 * minute},
		"steps are waited for": {func(in *ForecastInput) {
			in.Unavailable = intstr.FromInt32(6)
			in.Plan.Spec.Strategy.Steps = steps(intstr.FromInt32(1), intstr.FromInt32(3))
		}, 30 * minute},
		"soak": {func(in *ForecastInput) {
			in.Unavailable = intstr.FromInt32(6)
			in.Plan.Spec.Strategy.Steps = []v1beta1.RolloutStep{{Nodes: intstr.FromInt32(1), Soak: metav1.Duration{Duration: time.Hour}, Approval: true}}
		}, 80 * minute},
		// It is 13:57. Two nodes start in the window, each later pair the next days.
		"windows": {func(in *ForecastInput) {
			in.Plan.Spec.Strategy.Windows = []v1beta1.Window{{Start: "14:00", End: "14:15"}}
		}, 48*time.Hour + 23*minute},
		"other times of the profile": {func(in *ForecastInput) {
			in.GPUNodes[0].Status.History = append(in.GPUNodes[0].Status.History, v1beta1.SwitchRecord{ToProfileName: "new", Result: v1beta1.ResultSucceeded, Duration: metav1.Duration{Duration: minute}})
		}, 6 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			in := fleet(6)
			test.change(&in)
			f := forecast(t, in)
			require.NotNil(t, f.Ends)
			assert.Equal(t, test.want, f.Ends.Sub(in.Now))
		})
	}
	in := fleet(3)
	for i := range in.GPUNodes {
		in.GPUNodes[i].Status.History = nil
	}
	none := forecast(t, in)
	assert.Nil(t, none.Ends, "nothing was observed")
	assert.Nil(t, none.Switch)
	in = fleet(1)
	in.Plan.Spec.Strategy.Windows = []v1beta1.Window{{Start: "14:00", End: "14:15", TimeZone: "Mars/Olympus"}}
	f, err := Predict(in)
	require.NoError(t, err)
	require.ErrorContains(t, f.Estimate(in), "Mars/Olympus")
	f = forecast(t, fleet(2))
	f.Nodes[0].Blocked, f.Nodes[1].Unfit = []ForecastBlocker{{Kind: BlockerPod}}, "it has no 9g.80gb"
	require.NoError(t, f.Estimate(fleet(2)))
	assert.Equal(t, gpunodes.Now, *f.Ends, "set aside")
}

func TestListed(t *testing.T) {
	assert.Nil(t, listed(nil))
	var all []v1beta1.PlanNode
	for i := range mostListed + 5 {
		all = append(all, v1beta1.PlanNode{NodeName: fmt.Sprintf("node-%02d", 50-i)})
	}
	got := lists.Map(listed(all), func(n v1beta1.PlanNode) string { return n.NodeName })
	assert.Len(t, got, mostListed)
	assert.Equal(t, "node-26", got[0])
	assert.IsIncreasing(t, got)
}
