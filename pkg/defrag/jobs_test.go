package defrag_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/defrag"
)

// jobs adds a Job with some failed pods, which controls all pods.
func (f *fleet) jobs(failed int32) {
	f.in.Jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "set", UID: "uid-set"}, Status: batchv1.JobStatus{Failed: failed}}}
}

func ofJob(p *corev1.Pod) {
	p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "batch/v1", "Job"
}

// An evicted pod counts as failed, unless the Job ignores that.
func TestPodsOfJobs(t *testing.T) {
	disrupted := []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	undisrupted := []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}}
	codes := &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{1}}
	policy := func(rules ...batchv1.PodFailurePolicyRule) *batchv1.PodFailurePolicy {
		return &batchv1.PodFailurePolicy{Rules: rules}
	}
	rule := func(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: disrupted}
	}
	byCode := func(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: codes}
	}
	ignore := rule(batchv1.PodFailurePolicyActionIgnore)
	byDefault := batchv1.PodFailurePolicyRule{Action: ignore.Action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget}}}
	for name, test := range map[string]struct {
		failed    int32
		uncounted []types.UID
		policy    *batchv1.PodFailurePolicy
		perIndex  *int32
		movable   bool
	}{
		"a retry is left":              {failed: 5, movable: true},
		"none is left":                 {failed: 6},
		"none, with uncounted pods":    {failed: 5, uncounted: []types.UID{"x"}},
		"ignored":                      {failed: 6, policy: policy(ignore), movable: true},
		"not disrupted":                {failed: 6, policy: policy(batchv1.PodFailurePolicyRule{Action: ignore.Action, OnPodConditions: undisrupted})},
		"fails":                        {policy: policy(rule(batchv1.PodFailurePolicyActionFailJob))},
		"counts":                       {failed: 5, policy: policy(rule(batchv1.PodFailurePolicyActionCount)), movable: true},
		"counts, none is left":         {failed: 6, policy: policy(rule(batchv1.PodFailurePolicyActionCount))},
		"ignored, without a status":    {failed: 6, policy: policy(byDefault), movable: true},
		"fails its index":              {policy: policy(rule(batchv1.PodFailurePolicyActionFailIndex))},
		"retries of each index":        {perIndex: new(int32(9))},
		"fails by exit code":           {policy: policy(byCode(batchv1.PodFailurePolicyActionFailJob), ignore)},
		"counts by exit code":          {failed: 6, policy: policy(byCode(batchv1.PodFailurePolicyActionCount), ignore)},
		"ignored by exit code or not":  {failed: 6, policy: policy(byCode(batchv1.PodFailurePolicyActionIgnore), ignore), movable: true},
		"fails by exit code afterward": {failed: 6, policy: policy(ignore, byCode(batchv1.PodFailurePolicyActionFailJob)), movable: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, waiting := scattered(t, ofJob)
			f.jobs(test.failed)
			f.in.Jobs[0].Spec.PodFailurePolicy, f.in.Jobs[0].Spec.BackoffLimitPerIndex = test.policy, test.perIndex
			f.in.Jobs[0].Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: test.uncounted}
			_, refusal := f.plan(waiting, defrag.Options{})
			if test.movable {
				require.Nil(t, refusal)
				return
			}
			require.NotNil(t, refusal)
			assert.Equal(t, defrag.NotMovable, refusal.Reason)
			assert.Contains(t, refusal.Message, "its Job set would fail")
		})
	}
}

// A Job may survive the eviction of each pod alone and not that of all.
func TestSeveralPodsOfOneJob(t *testing.T) {
	f, waiting := scattered(t, ofJob)
	f.run("node-1", one, ofJob)
	f.jobs(4)
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	require.Len(t, plan.Moves, 2)
	f.jobs(5)
	_, refusal = f.plan(waiting, defrag.Options{})
	require.NotNil(t, refusal)
	assert.Equal(t, defrag.NotMovable, refusal.Reason)
	assert.Contains(t, refusal.Message, "Job team-a/set would fail if all pods were evicted")
}
