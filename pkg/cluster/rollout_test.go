package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

func TestRolloutOf(t *testing.T) {
	for name, test := range map[string]struct {
		plan    func(*gpunodes.Plan) *gpunodes.Plan
		want    RolloutResult
		unknown bool
	}{
		"goes on": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, true, names.ReasonRollingOut, "")
		}},
		"complete": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, false, names.ReasonComplete, "").Says(names.ConditionComplete, true, names.ReasonComplete, "")
		}, want: RolloutComplete},
		"undone": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, false, names.ReasonUndone, "").Says(names.ConditionComplete, false, names.ReasonUndone, "")
		}, want: RolloutUndone},
		"stopped": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, false, names.ReasonTooManyFailures, "1 node failed")
		}, want: RolloutStopped},
		"is undone": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, true, names.ReasonUndoing, "")
		}},
		"paused": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, false, names.ReasonPaused, "")
		}},
		"invalid": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			return p.Says(names.ConditionProgressing, false, names.ReasonInvalidWindow, "")
		}, want: RolloutInvalid},
		"not seen": {plan: func(p *gpunodes.Plan) *gpunodes.Plan { return p }, unknown: true},
		"changed since": {plan: func(p *gpunodes.Plan) *gpunodes.Plan {
			p.Generation = 2
			return p.Says(names.ConditionComplete, true, names.ReasonComplete, "").Says(names.ConditionProgressing, false, names.ReasonComplete, "")
		}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.plan(gpunodes.NewPlan("canary", "balanced", 2).Counts(v1alpha1.PlanNodes{Selected: 4, Updated: 4}))
			r, known := RolloutOf(&p.PartitionPlan)
			assert.Equal(t, test.unknown, !known)
			assert.Equal(t, test.want, r.Result)
			assert.Equal(t, "balanced", r.Profile)
		})
	}
}

func TestRolloutLine(t *testing.T) {
	p := gpunodes.NewPlan("canary", "balanced", 2).Counts(v1alpha1.PlanNodes{Selected: 9, Updated: 3, Switching: 2, Failed: 1, SetAside: 1, NotReady: 1, Overruled: 1})
	r, _ := RolloutOf(&p.PartitionPlan)
	assert.Equal(t, "3 of 9 nodes updated, 2 switching, 1 failed, 1 set aside, 1 not ready, 1 overruled", r.Line())
	p.Status.Step, p.Status.Steps = 1, 3
	p.Says(names.ConditionProgressing, true, names.ReasonSoaking, "")
	r, _ = RolloutOf(&p.PartitionPlan)
	assert.Equal(t, "step 1 of 3: 3 of 9 nodes updated, 2 switching, 1 failed, 1 set aside, 1 not ready, 1 overruled (Soaking)", r.Line())
}

func TestPreviousRevision(t *testing.T) {
	done := metav1.NewTime(time.Unix(1, 0))
	history := func(all ...v1alpha1.PlanRevision) Rollout { return Rollout{Revision: 4, History: all} }
	good, bad, half := v1alpha1.PlanRevision{Revision: 1, Completed: &done}, v1alpha1.PlanRevision{Revision: 2, Completed: &done, Rejected: true}, v1alpha1.PlanRevision{Revision: 3}
	assert.Zero(t, history(v1alpha1.PlanRevision{Revision: 4, Completed: &done}).Previous())
	assert.EqualValues(t, 1, history(v1alpha1.PlanRevision{Revision: 4}, half, bad, good).Previous())
	assert.Zero(t, history(half, bad).Previous())
}
