package picture

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

func rollouts() map[string]*v1beta1.PartitionPlan {
	soaks := gpunodes.NewPlan("canary", "all-balanced", 3).Counts(v1beta1.PlanNodeCounts{Selected: 100, Updated: 45, Switching: 2, Failed: 1, SetAside: 1, Overridden: 1, Waiting: 50}).
		Says(names.ConditionProgressing, true, names.ReasonSoaking, "the nodes of step 2 are watched until 14:10:00 UTC")
	soaks.Status.CurrentStep, soaks.Status.StepCount = 2, 3
	soaks.Status.EstimatedCompletionTime = &metav1.Time{Time: gpunodes.Now.Add(40 * time.Minute)}
	soaks.Status.FailedNodes = []v1beta1.PlanNode{{NodeName: "node-a", Reason: "HardwareFailed", Message: "GPU gpu-0000-1b-00-0: CreateGpuInstance: Unknown Error"}}
	soaks.Status.SetAsideNodes = []v1beta1.PlanNode{{NodeName: "node-b", Reason: "DrainBlocked", Message: "pod team/serving-0: the disruption budget always-one needs 1 healthy pods and has 1 currently"}}
	stopped := gpunodes.NewPlan("canary", "all-balanced", 1).Counts(v1beta1.PlanNodeCounts{Selected: 40, Failed: 12, Waiting: 28}).
		Says(names.ConditionProgressing, false, names.ReasonTooManyFailures, "12 nodes failed with revision 1, and maxFailures allows 0 (node-00: Unhealthy, and 11 more)")
	for i := range 12 {
		stopped.Status.FailedNodes = append(stopped.Status.FailedNodes, v1beta1.PlanNode{NodeName: fmt.Sprintf("node-%02d", i), Reason: "Unhealthy"})
	}
	complete := gpunodes.NewPlan("whole-fleet", "mixed", 1).Counts(v1beta1.PlanNodeCounts{Selected: 3, Updated: 3}).
		Says(names.ConditionProgressing, false, names.ReasonComplete, "all nodes have revision 1")
	return map[string]*v1beta1.PartitionPlan{
		"rollout-soaks": &soaks.PartitionPlan, "rollout-stopped": &stopped.PartitionPlan, "rollout-complete": &complete.PartitionPlan,
		"rollout-new": {ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: v1beta1.PartitionPlanSpec{ProfileName: "mixed"}},
	}
}

func TestPicturesOfRollouts(t *testing.T) {
	for name, plan := range rollouts() {
		far, _ := cluster.RolloutOf(plan)
		checkDrawn(t, name, func(p *Page) { DrawRollout(p, far, now) })
	}
}

func TestPicturesOfForecasts(t *testing.T) {
	ends := now.Add(90 * time.Minute)
	stays := rollout.ForecastBlocker{Kind: rollout.BlockerPod, ForecastPod: rollout.ForecastPod{Namespace: "team", Name: "serving-0"}, Why: "The disruption budget always needs 1 healthy pods and has 1 currently"}
	group := rollout.ForecastBlocker{
		Kind: rollout.BlockerOtherConsumer, APIGroup: "scheduling.k8s.io", Resource: "podgroups",
		ForecastPod: rollout.ForecastPod{Namespace: "team", Name: "workers"}, Why: "it is not a pod, so it cannot be evicted",
	}
	leaves := rollout.ForecastPod{Namespace: "team", Name: "train-0"}
	for name, f := range map[string]rollout.Forecast{
		"forecast": {
			Plan: "canary", Profile: "balanced", Steps: 2, Approvals: 2, Switch: &metav1.Duration{Duration: 42 * time.Second}, Observed: 7, Ends: &ends,
			Nodes: []rollout.ForecastNode{
				{Name: "node-a", Step: 1}, {Name: "node-b", Step: 2, Evicts: []rollout.ForecastPod{leaves}}, {Name: "node-c", Step: 2, Evicts: []rollout.ForecastPod{leaves}, Blocked: []rollout.ForecastBlocker{stays, group}},
				{Name: "node-d", Step: 2, Evicts: []rollout.ForecastPod{leaves}, Unknown: []string{"gpu-a"}}, {Name: "node-e", Step: 2, Unfit: "GPU gpu-a does not support MIG"},
			},
			Others: []rollout.OtherNode{{Name: "node-x", Why: "it has the profile already"}}, Unread: unread,
		},
		"forecast-nothing": {Plan: "canary", Profile: "balanced", Steps: 1},
		"forecast-new":     {Plan: "canary", Profile: "balanced", Steps: 1, Nodes: []rollout.ForecastNode{{Name: "node-a", Step: 1}}},
		"forecast-never":   {Plan: "canary", Profile: "balanced", Steps: 1, Observed: 1, MaxFailures: 1, Nodes: []rollout.ForecastNode{{Name: "node-a", Step: 1, Unfit: "no"}}},
	} {
		checkDrawn(t, name, func(p *Page) { DrawForecast(p, f, []string{"You are not allowed to do everything."}, now) })
	}
}

// A kind of nodes of which there is one is always seen, and the bar has its width.
func TestShareOut(t *testing.T) {
	for _, counts := range [][]int32{{0, 0, 0}, {5000, 1, 1}, {1, 1, 5000}, {3, 3, 3}, {1, 0, 0}, {4999, 0, 1}, {1, 4998, 1}} {
		for _, width := range []int{8, 20, 60} {
			sum := 0
			for i, columns := range shareOut(counts, width) {
				assert.Equal(t, counts[i] > 0 || counts[0]+counts[1]+counts[2] == 0 && i == 2, columns > 0, "%v %d", counts, width)
				sum += columns
			}
			assert.Equal(t, width, sum, "%v %d", counts, width)
		}
	}
}
