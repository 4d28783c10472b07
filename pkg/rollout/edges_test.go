package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// Failed nodes that try again need places, as all others do, and the others go first.
func TestRetriesNeedPlaces(t *testing.T) {
	f := newFleet(t, 6, v1beta1.RolloutStrategy{MaxFailures: intstr.FromString("100%"), MaxUnavailable: intOrPercent("6")}).decide()
	f.fail("node-00", "node-01", "node-02", "node-03", "node-04").decide()
	f.plan.Spec.Strategy.MaxUnavailable = intOrPercent("2")
	for _, n := range f.nodes[:5] {
		n.State, n.Admitted = v1beta1.Planning, ""
	}
	f.decide()
	assert.Equal(t, []string{"node-00", "node-05"}, f.admitted())
	f.nodes[0].State, f.nodes[0].Moving = v1beta1.Draining, true
	f.nodes[5].Applied, f.nodes[5].Reported, f.nodes[5].Desired = "1", "1", "1"
	f.decide()
	assert.Equal(t, []string{"node-00", "node-01"}, f.admitted())

	all := rollout.Unplanned{MaxUnavailable: intstr.FromInt32(1), Nodes: f.nodes}
	for _, n := range f.nodes[:5] {
		n.Changed, n.Moving, n.State = false, false, v1beta1.Planning
	}
	assert.Len(t, all.Decide().Admitted, 1, "also without a plan")
}

// While a failed node of a step tries again, the next step waits.
func TestAStepWaitsForRetries(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{MaxFailures: intstr.FromString("100%"), MaxUnavailable: intOrPercent("3"), Steps: steps(0, "1")}).decide()
	n := f.node("node-00")
	n.Desired, n.To, n.State, n.Moving = "1", "1", v1beta1.Draining, true
	assert.Equal(t, []string{"node-00"}, f.decide().admitted(), "it uses the place of the step")
	f.fail("node-00")
	n.State, n.Moving = v1beta1.Draining, true
	f.decide()
	assert.Equal(t, []string{"node-00"}, f.admitted())
	n.State, n.Moving = v1beta1.Failed, false
	f.decide()
	assert.Contains(t, f.admitted(), "node-01")
}

// Nodes that are away do not have a step pass without them.
func TestAStepNeedsItsNodes(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{Steps: steps(0, "1", "50%"), MaxUnavailable: intOrPercent("4")})
	for _, n := range f.nodes {
		n.Ready = false
	}
	f.after(time.Hour)
	assert.EqualValues(t, 1, f.plan.Status.CurrentStep)
	assert.Nil(t, f.plan.Status.History[0].CompletionTime)
	assert.Equal(t, names.ReasonBlocked, f.progressing())
	for _, n := range f.nodes {
		n.Ready = true
	}
	f.decide()
	assert.Equal(t, []string{"node-00"}, f.admitted())
	f.arrive().decide().arrive()
	f.nodes[2].Ready, f.nodes[3].Ready = false, false
	f.decide()
	assert.NotNil(t, f.plan.Status.History[0].CompletionTime, "half of the nodes are gone for good")

	f = newFleet(t, 3, v1beta1.RolloutStrategy{})
	f.decide().arrive()
	for _, n := range f.nodes[1:] {
		n.Ready = false
	}
	assert.Nil(t, f.decide().plan.Status.History[0].CompletionTime, "most nodes do not have it")
}

// Other steps do not make a rollout complete that is not.
func TestStepsThatAreEditedInTheSoak(t *testing.T) {
	f := newFleet(t, 5, v1beta1.RolloutStrategy{Steps: steps(time.Hour, "1")}).decide().arrive().decide()
	require.Equal(t, names.ReasonSoaking, f.progressing())
	f.plan.Spec.Strategy.Steps, f.plan.Generation = nil, 2
	f.decide()
	assert.Nil(t, f.plan.Status.History[0].CompletionTime)
	assert.Len(t, f.admitted(), 1)

	f = newFleet(t, 5, v1beta1.RolloutStrategy{Steps: steps(time.Hour, "1")}).decide().arrive().decide()
	f.plan.Spec.Strategy.Steps[0].Nodes, f.plan.Generation = intstr.FromInt32(2), 2
	f.decide()
	assert.Len(t, f.admitted(), 1)
	f.after(time.Hour).arrive().after(59 * time.Minute)
	assert.Equal(t, names.ReasonSoaking, f.progressing(), "the second node is watched as long")
}

// Fewer steps do not leave a plan behind the last one, and more nodes do not begin a soak again.
func TestStepsOfAnotherNumber(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{Steps: steps(0, "1", "2")}).decide().arrive().decide()
	require.EqualValues(t, 2, f.plan.Status.CurrentStep)
	f.plan.Spec.Strategy.Steps = nil
	assert.EqualValues(t, 1, f.decide().plan.Status.CurrentStep)

	f = newFleet(t, 4, v1beta1.RolloutStrategy{Steps: steps(time.Hour, "50%")})
	later := f.nodes[2:]
	f.nodes = f.nodes[:2]
	f.decide().arrive().decide()
	f.nodes = append(f.nodes, later...)
	f.after(30 * time.Minute)
	assert.Equal(t, noon.Add(time.Hour), f.last.Wake)
}

// It is not known when a rollout ends that waits for an approval.
func TestEstimatesOfApprovals(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{Steps: []v1beta1.RolloutStep{{Nodes: *intOrPercent("2"), Approval: true}}}).decide().arrive().decide()
	assert.Nil(t, f.plan.Status.EstimatedCompletionTime)
	f.plan.Spec.Approved = &v1beta1.StepApproval{RevisionReference: f.newest(), Step: 1}
	f.decide()
	assert.Equal(t, noon.Add(30*time.Second), f.plan.Status.EstimatedCompletionTime.Time)
}

// Nodes that joined with an earlier version take the steps like others.
func TestNodesThatJoinedEarlierUseTheSteps(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{Steps: steps(time.Hour, "1"), MaxUnavailable: intOrPercent("3")})
	for _, n := range f.nodes {
		n.Created = noon.Add(time.Minute)
	}
	f.decide().after(time.Minute).arrive().after(time.Second)
	assert.Equal(t, names.ReasonSoaking, f.progressing())
	assert.EqualValues(t, 1, f.plan.Status.NodeCounts.Updated)
	assert.Empty(t, f.admitted())

	// Those that joined with the target use no place of a step.
	f = newFleet(t, 3, v1beta1.RolloutStrategy{Steps: steps(time.Hour, "1"), MaxUnavailable: intOrPercent("3")}).decide()
	joined := f.nodes[2]
	joined.Started, joined.Ended = noon.Add(-time.Hour), noon
	joined.Created, joined.First, joined.Desired, joined.Applied, joined.Reported = noon.Add(time.Minute), true, "1", "1", "1"
	f.decide()
	assert.Equal(t, []string{"node-00"}, f.admitted())
	assert.Equal(t, names.ReasonRollingOut, f.progressing())
}

// A node that joins keeps no permission for later.
func TestANodeThatJoinsGetsNoPermission(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("1")})
	f.nodes[0].Joining, f.nodes[0].Desired, f.nodes[0].Applied, f.nodes[0].Reported = true, "", "", ""
	assert.Equal(t, []string{"node-01"}, f.decide().admitted())
}

// Nodes that fail long after a rollout was complete undo nothing.
func TestACompleteRevisionIsNotUndoneByItself(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("4"), OnFailure: v1beta1.OnFailureUndo})
	f.decide().arrive().decide()
	f.profile = version("2")
	f.nodes[3].Ready = false
	f.decide().arrive().decide()
	require.NotNil(t, f.plan.Status.History[0].CompletionTime)
	f.nodes[3].Ready = true
	f.after(30 * 24 * time.Hour).fail("node-03").decide()
	assert.Equal(t, names.ReasonTooManyFailures, f.progressing())
	assert.Equal(t, ptr.To[int64](2), f.plan.Status.TargetRevision)
	assert.False(t, f.plan.Status.History[0].Rejected)
}

// A node that joins a plan that has stopped gets what has proved itself.
func TestAssignWhileStopped(t *testing.T) {
	f := newFleet(t, 2, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("2")}).decide().arrive().decide()
	f.profile = version("2")
	f.decide().fail("node-00").decide()
	require.NotNil(t, f.plan.Status.Stopped)
	assert.Equal(t, "1", rollout.Assign(f.plan, true).Hash)
}

// A node that could not be rolled back counts, also if it is away.
func TestDamagedNodesThatAreAwayCount(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{})
	f.nodes[0].Damaged, f.nodes[0].Reported, f.nodes[0].Ready = true, "neither", false
	assert.Empty(t, f.decide().admitted())
	f.plan.Spec.Strategy.MaxFailures = intstr.FromInt32(1)
	assert.Len(t, f.decide().admitted(), 1)
}

// A node that has neither state keeps others from starting as long as it cannot be repaired itself, and gets
// a new profile first.
func TestNodesThatHaveNeitherState(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{
		MaxUnavailable: intOrPercent("3"), TopologyLimits: []v1beta1.TopologyLimit{{TopologyKey: "zone", MaxUnavailable: intstr.FromInt32(1)}},
	})
	for i, n := range f.nodes {
		n.Labels = map[string]string{"zone": string("aab"[i])}
	}
	f.nodes[0].Moving = true
	f.nodes[1].Damaged, f.nodes[1].Reported = true, "neither"
	f.decide()
	assert.Empty(t, f.nodes[2].Admitted)

	f = newFleet(t, 3, v1beta1.RolloutStrategy{})
	f.nodes[0].Ready, f.nodes[0].Reported = false, "neither"
	assert.Equal(t, []string{"node-01"}, f.decide().admitted(), "it is only away")
	f.nodes[2].Desired, f.nodes[2].Applied, f.nodes[2].Reported = "1", "1", "neither"
	f.nodes[1].Admitted = ""
	f.decide()
	assert.Equal(t, []string{"1", ""}, []string{f.nodes[2].Admitted, f.nodes[1].Admitted})
	assert.Zero(t, f.plan.Status.NodeCounts.Updated)

	f = newFleet(t, 2, v1beta1.RolloutStrategy{})
	f.nodes[0].Desired, f.nodes[0].To, f.nodes[0].State, f.nodes[0].Failed = "0", "0", v1beta1.Failed, true
	assert.Equal(t, []string{"node-00"}, f.decide().admitted(), "it failed with another profile")
}

// Where clocks are changed at midnight, a window begins on its day.
func TestAWindowOnTheDayWithoutMidnight(t *testing.T) {
	w := []v1beta1.Window{{Days: []v1beta1.Day{"Sunday"}, Start: "00:00", End: "04:00", TimeZone: "America/Havana"}}
	open, _, err := rollout.InWindow(w, time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)) // 02:00 there
	require.NoError(t, err)
	assert.True(t, open)
}
