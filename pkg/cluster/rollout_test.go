package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

func TestRolloutOf(t *testing.T) {
	const progressing = names.ConditionProgressing
	plan := func() *gpunodes.Plan {
		return gpunodes.NewPlan("canary", "balanced", 2).Counts(v1beta1.PlanNodeCounts{Selected: 4, Updated: 4})
	}
	changed := plan()
	changed.Generation = 2
	for name, test := range map[string]struct {
		plan    *gpunodes.Plan
		want    RolloutResult
		unknown bool
	}{
		"goes on":       {plan: plan().Says(progressing, true, names.ReasonRollingOut, "")},
		"complete":      {plan: plan().Says(progressing, false, names.ReasonComplete, ""), want: RolloutComplete},
		"undone":        {plan: plan().Says(progressing, false, names.ReasonUndone, ""), want: RolloutUndone},
		"stopped":       {plan: plan().Says(progressing, false, names.ReasonTooManyFailures, "1 node failed"), want: RolloutStopped},
		"is undone":     {plan: plan().Says(progressing, true, names.ReasonUndoing, "")},
		"paused":        {plan: plan().Says(progressing, false, names.ReasonPaused, "")},
		"invalid":       {plan: plan().Says(progressing, false, names.ReasonInvalidWindow, ""), want: RolloutInvalid},
		"not seen":      {plan: plan(), unknown: true},
		"changed since": {plan: changed.Says(progressing, false, names.ReasonComplete, ""), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, known := RolloutOf(&test.plan.PartitionPlan)
			assert.Equal(t, test.unknown, !known)
			assert.Equal(t, test.want, r.Result)
			assert.Equal(t, "balanced", r.Profile)
		})
	}
}

func TestRolloutLine(t *testing.T) {
	p := gpunodes.NewPlan("canary", "balanced", 2).Counts(v1beta1.PlanNodeCounts{Selected: 9, Updated: 3, Switching: 2, Failed: 1, SetAside: 1, NotReady: 1, Overridden: 1})
	r, _ := RolloutOf(&p.PartitionPlan)
	assert.Equal(t, "3 of 9 nodes updated, 2 switching, 1 failed, 1 set aside, 1 not ready, 1 overridden", r.Line())
	p.Status.CurrentStep, p.Status.StepCount = 1, 2
	p.Says(names.ConditionProgressing, true, names.ReasonSoaking, "")
	r, _ = RolloutOf(&p.PartitionPlan)
	assert.Equal(t, "step 1 of 2: 3 of 9 nodes updated, 2 switching, 1 failed, 1 set aside, 1 not ready, 1 overridden (Soaking)", r.Line())
}
