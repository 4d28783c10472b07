package apiserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func (c *cluster) plan(name string) *v1alpha1.PartitionPlan {
	p, err := c.tranche.PartitionPlans().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return &v1alpha1.PartitionPlan{}
	}
	return p
}

// is tells what the plan's condition Progressing gives as its reason.
func (c *cluster) is(name, reason string) func() bool {
	return func() bool {
		got := meta.FindStatusCondition(c.plan(name).Status.Conditions, names.ConditionProgressing)
		return got != nil && got.Reason == reason
	}
}

// A plan, an edit of its profile that no node can follow, and the way back: what the controller
// writes is what the API server takes.
func TestAPlan(t *testing.T) {
	c := startCluster(t)
	c.startPlugin()
	c.startController()
	c.await("the node reports nothing", func() bool {
		n := c.gpuNode()
		return n.Status.Node != nil && n.Status.Node.Count == 2 && n.Status.State == v1alpha1.Idle
	})
	profiles, plans := c.tranche.PartitionProfiles(), c.tranche.PartitionPlans()
	whole, err := profiles.Create(t.Context(), &v1alpha1.PartitionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "whole"},
		Spec:       v1alpha1.PartitionProfileSpec{Rules: []v1alpha1.Rule{{MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGDisabled}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = plans.Create(t.Context(), &v1alpha1.PartitionPlan{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: v1alpha1.PartitionPlanSpec{Profile: "whole"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.await("the plan is not complete", c.is("fleet", names.ReasonComplete))
	applied := c.gpuNode().Status.Applied
	require.NotNil(t, applied)
	assert.Equal(t, "whole Plan fleet", applied.Profile+" "+string(applied.Source)+" "+applied.Plan)
	assert.Zero(t, c.devices(isPartition))

	whole.Spec.Rules = []v1alpha1.Rule{{MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGStatic, Partitions: []v1alpha1.StaticPartition{{Profile: "5g"}}}}}
	_, err = profiles.Update(t.Context(), whole, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.await("the plan does not stop", c.is("fleet", names.ReasonTooManyFailures))
	status := c.plan("fleet").Status
	require.Len(t, status.Failed, 1)
	assert.Equal(t, names.ReasonProfileDoesNotFit, status.Failed[0].Reason)
	require.Len(t, status.History, 2)
	assert.Equal(t, v1alpha1.MIGStatic, status.History[0].Rules[0].MIG.Mode)

	_, err = plans.Patch(t.Context(), "fleet", types.MergePatchType, []byte(`{"spec":{"undo":{"revision":2,"to":1}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	c.await("the plan does not go back", c.is("fleet", names.ReasonUndone))
	c.await("the node does not go back", func() bool {
		n := c.gpuNode().Status
		return n.State == v1alpha1.Idle && n.Desired.Hash == applied.Hash
	})
}
