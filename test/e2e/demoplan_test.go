package e2e

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// One node first, the others after an approval; a version that fits no GPU fails on one node,
// and is taken back.
func checkPlan(s *suite, pods map[string]*corev1.Pod) {
	const plan = "demo-plan"
	steady := pods["steady"]
	p := s.waitPlan(plan, "waits for an approval", progresses(names.ReasonWaitsForApproval))
	assert.EqualValues(s.t, 1, p.Status.NodeCounts.Updated)
	assert.EqualValues(s.t, len(s.nodes), p.Status.NodeCounts.Selected)
	out, err := s.rollout("approve", plan)
	require.NoError(s.t, err, out)
	out, err = s.rollout("status", plan)
	require.NoError(s.t, err, out)
	s.waitComplete(plan, 1)

	s.kubectl("apply", "--validate=strict", "-f", repository+"/demo/plan/broken/profile.yaml")
	p = s.waitPlan(plan, "has stopped", func(p *v1beta1.PartitionPlan) bool { return p.Status.Revision == 2 && p.Status.Stopped != nil })
	require.Len(s.t, p.Status.FailedNodes, 1)
	assert.Equal(s.t, names.ReasonProfileDoesNotFit, p.Status.FailedNodes[0].Reason)
	out, err = s.rollout("status", plan)
	require.Error(s.t, err, out)
	out, err = s.rollout("undo", plan)
	require.NoError(s.t, err, out)
	s.waitPlan(plan, "has gone back", func(p *v1beta1.PartitionPlan) bool {
		return ptr.Equal(p.Status.TargetRevision, ptr.To[int64](1)) && int(p.Status.NodeCounts.Updated) == len(s.nodes)
	})
	s.requireSame(steady)
}
