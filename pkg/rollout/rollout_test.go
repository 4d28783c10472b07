package rollout_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

func TestStepsSoakAndCompletion(t *testing.T) {
	f := newFleet(t, 10, v1beta1.RolloutStrategy{Steps: steps(time.Minute, "1", "25%"), MaxUnavailable: intOrPercent("4")}).decide()
	assert.Equal(t, []string{"node-00"}, f.admitted(), "the canary")
	assert.Equal(t, names.ReasonRollingOut, f.progressing())
	assert.EqualValues(t, 3, f.plan.Status.StepCount, "all other nodes follow")
	f.arrive().decide()
	assert.Empty(t, f.admitted())
	assert.Equal(t, names.ReasonSoaking, f.progressing())
	assert.Equal(t, noon.Add(time.Minute), f.last.Wake)
	f.after(59 * time.Second)
	assert.Empty(t, f.admitted())
	f.after(time.Second)
	assert.Equal(t, []string{"node-01", "node-02"}, f.admitted(), "25% of 10, rounded up, with the canary")
	f.arrive().decide().after(time.Minute)
	assert.Len(t, f.admitted(), 4)
	assert.NotNil(t, f.plan.Status.EstimatedCompletionTime)
	f.arrive().decide().arrive().decide()
	assert.Equal(t, names.ReasonComplete, f.progressing())
	assert.Equal(t, v1beta1.PlanNodeCounts{Selected: 10, Updated: 10}, f.plan.Status.NodeCounts)
	assert.Nil(t, f.plan.Status.EstimatedCompletionTime)
	assert.Equal(t, []string{names.EventPlanRevision, names.EventPlanStep, names.EventPlanStep, names.EventPlanComplete}, f.events)

	// An edit begins again with the canary.
	f.profile = version("2")
	f.decide()
	assert.Equal(t, []string{"node-00"}, f.admitted())
	assert.Equal(t, ptr.To[int64](2), f.plan.Status.TargetRevision)
	assert.EqualValues(t, 1, f.plan.Status.CurrentStep)
}

func TestCanaryThatFailsStopsThePlan(t *testing.T) {
	f := newFleet(t, 5, v1beta1.RolloutStrategy{Steps: steps(0, "1"), MaxUnavailable: intOrPercent("2")}).decide().fail("node-00").decide()
	assert.Empty(t, f.admitted())
	assert.Equal(t, names.ReasonTooManyFailures, f.progressing())
	assert.Equal(t, []v1beta1.PlanNode{{NodeName: "node-00", Reason: names.ReasonHardwareFailed, Message: "no"}}, f.plan.Status.FailedNodes)
	assert.True(t, f.is(names.ConditionStopped))
	assert.Contains(t, f.events, names.EventPlanStopped)
	assert.False(t, f.is(names.ConditionPaused))
	// It tries again, and nobody has said that the plan goes on.
	f.node("node-00").State = v1beta1.Planning
	assert.Empty(t, f.decide().admitted())
	// Even if it heals.
	n := f.node("node-00")
	n.State, n.Failed, n.Applied, n.Reported, n.To = v1beta1.Idle, false, "1", "1", ""
	assert.Empty(t, f.decide().admitted())
	f.plan.Spec.Accepted = &v1beta1.AcceptedFailures{RevisionReference: f.newest(), FailedNodeCount: 1}
	assert.Len(t, f.decide().admitted(), 2)
	assert.Nil(t, f.plan.Status.Stopped)
	assert.False(t, f.is(names.ConditionStopped))

	// A corrected profile begins anew.
	f.profile = version("2")
	assert.Len(t, f.decide().admitted(), 1)
}

func TestFailureGoesBackToTheLastCompleteRevision(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("2"), OnFailure: v1beta1.OnFailureUndo})
	f.decide().arrive().decide().arrive().decide()
	require.Equal(t, names.ReasonComplete, f.progressing())
	f.profile = version("2")
	f.decide().arrive().decide()
	assert.Equal(t, []string{"node-02", "node-03"}, f.admitted())
	f.fail("node-02").decide()
	assert.Equal(t, ptr.To[int64](1), f.plan.Status.TargetRevision)
	assert.Equal(t, names.ReasonUndoing, f.progressing())
	assert.True(t, f.plan.Status.History[0].Rejected)
	// The failed node has the earlier revision, and follows it at once.
	n := f.node("node-02")
	n.Desired, n.State, n.Failed, n.To = "1", v1beta1.Idle, false, ""
	f.decide().arrive().decide().arrive().decide()
	assert.Equal(t, names.ReasonUndone, f.progressing())
	assert.EqualValues(t, 4, f.plan.Status.NodeCounts.Updated)
	assert.Contains(t, f.events, names.EventPlanUndo)
	assert.True(t, f.is(names.ConditionStopped), "it remains to be seen why")
	assert.Equal(t, "1 node failed with revision 2", meta.FindStatusCondition(f.plan.Status.Conditions, names.ConditionStopped).Message)

	f.profile = version("3")
	f.decide()
	assert.Equal(t, ptr.To[int64](3), f.plan.Status.TargetRevision)
	assert.Len(t, f.admitted(), 2)
}

func TestTroubleDuringTheSoak(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{Steps: steps(time.Minute, "1")}).decide().arrive().decide()
	n := f.node("node-00")
	n.Trouble = &rollout.Trouble{Since: noon.Add(20 * time.Second), Reason: names.ReasonUnhealthy, Message: "gpu"}
	f.after(30 * time.Second)
	assert.Equal(t, names.ReasonTooManyFailures, f.progressing())
	assert.Equal(t, names.ReasonUnhealthy, f.plan.Status.FailedNodes[0].Reason)
	assert.Empty(t, f.after(time.Hour).admitted())

	// After the plan is complete it is no failure of the profile.
	f = newFleet(t, 1, v1beta1.RolloutStrategy{}).decide().arrive().decide()
	f.node("node-00").Trouble = &rollout.Trouble{Since: noon.Add(time.Hour)}
	f.after(2 * time.Hour)
	assert.Equal(t, names.ReasonComplete, f.progressing())
}

func TestNodesThatCannotBeDrainedHoldNothing(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{Steps: steps(0, "1")}).decide()
	n := f.node("node-00")
	n.Desired, n.To, n.State, n.Aside, n.Reason = "1", "1", v1beta1.Failed, true, names.ReasonDrainBlocked
	f.decide()
	assert.Equal(t, []string{"node-01"}, f.admitted(), "another canary")
	assert.EqualValues(t, 1, f.plan.Status.NodeCounts.SetAside)
	f.arrive().decide()
	assert.Equal(t, []string{"node-02"}, f.admitted())
	// The blocker is gone: it waits for room.
	n.State = v1beta1.Planning
	assert.Equal(t, []string{"node-02"}, f.decide().admitted())
	f.arrive().decide()
	assert.Equal(t, []string{"node-00"}, f.admitted())
	f.node("node-00").State = v1beta1.Failed
	f.decide()
	assert.Equal(t, names.ReasonBlocked, f.progressing())
	assert.NotNil(t, f.plan.Status.History[0].CompletionTime)
}

func TestPauseHoldsWhatHasNotBegun(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("2")}).decide()
	begun := f.node("node-00")
	begun.Desired, begun.To, begun.State, begun.Moving = "1", "1", v1beta1.Draining, true
	f.plan.Spec.Paused = true
	f.decide()
	assert.Equal(t, []string{"node-00"}, f.admitted())
	assert.Equal(t, names.ReasonPaused, f.progressing())
	assert.True(t, f.is(names.ConditionPaused))
	assert.False(t, f.is(names.ConditionStopped))
	f.plan.Spec.Paused = false
	assert.Len(t, f.decide().admitted(), 2)
	assert.False(t, f.is(names.ConditionPaused))
}

func TestARestartedControllerAdmitsNoMore(t *testing.T) {
	f := newFleet(t, 6, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("2")}).decide()
	for i, name := range f.admitted() {
		n := f.node(name)
		n.Desired, n.To = "1", "1"
		n.State = []v1beta1.State{v1beta1.Planning, v1beta1.Draining}[i]
		n.Moving = n.State == v1beta1.Draining
	}
	f.decide()
	assert.Equal(t, []string{"node-00", "node-01"}, f.admitted())
	// So many were waiting for another controller, which had admitted them within another limit.
	for _, n := range f.nodes[2:] {
		n.Desired, n.To, n.Admitted, n.State = "1", "1", "1", v1beta1.Waiting
	}
	assert.Len(t, f.decide().admitted(), 2)
}

func TestTopologyAndOrder(t *testing.T) {
	f := newFleet(t, 6, v1beta1.RolloutStrategy{
		MaxUnavailable: intOrPercent("100%"), TopologyLimits: []v1beta1.TopologyLimit{{TopologyKey: "zone", MaxUnavailable: intstr.FromInt32(1)}},
		Order: v1beta1.NodeOrder{By: v1beta1.OrderByLabel, LabelKey: "wave"},
	})
	for i, n := range f.nodes {
		n.Labels = map[string]string{"zone": string(rune('a' + i%2)), "wave": []string{"10", "9", "2", "x", "", "2"}[i]}
	}
	delete(f.nodes[4].Labels, "wave")
	assert.Equal(t, []string{"node-02", "node-05"}, f.decide().admitted(), "one of each zone, 2 before 10")
	f.arrive().decide()
	assert.Equal(t, []string{"node-00", "node-01"}, f.admitted())
	f.arrive().decide()
	assert.Equal(t, []string{"node-03", "node-04"}, f.admitted())

	// Both limits hold: two of each zone, and one of each rack.
	f = newFleet(t, 6, v1beta1.RolloutStrategy{
		MaxUnavailable: intOrPercent("100%"), TopologyLimits: []v1beta1.TopologyLimit{
			{TopologyKey: "zone", MaxUnavailable: intstr.FromInt32(2)}, {TopologyKey: "rack", MaxUnavailable: intstr.FromInt32(1)},
		},
	})
	for i, n := range f.nodes { // Racks 0 to 3; those of a zone are a, a, b and c, c, d.
		n.Labels = map[string]string{"zone": string(rune('a' + i/3)), "rack": []string{"0", "0", "1", "2", "2", "3"}[i]}
	}
	assert.Equal(t, []string{"node-00", "node-02", "node-03", "node-05"}, f.decide().admitted())
	f.plan.Spec.Strategy.TopologyLimits[0].MaxUnavailable = intstr.FromInt32(1)
	f.arrive().decide()
	assert.Equal(t, []string{"node-01", "node-04"}, f.admitted())

	f = newFleet(t, 4, v1beta1.RolloutStrategy{Order: v1beta1.NodeOrder{By: v1beta1.OrderByLabel, LabelKey: "wave"}})
	f.nodes[2].Labels, f.nodes[3].Labels = map[string]string{"wave": "b"}, map[string]string{"wave": "a"}
	for _, next := range []string{"node-03", "node-02", "node-00", "node-01"} {
		assert.Equal(t, []string{next}, f.decide().admitted(), "in the order of words, those without one last")
		f.arrive()
	}

	f = newFleet(t, 3, v1beta1.RolloutStrategy{})
	f.nodes[0].Held, f.nodes[1].Held, f.nodes[2].Held = 3, 1, 1
	f.nodes[1].Free, f.nodes[2].Free = 2, 6
	assert.Equal(t, []string{"node-02"}, f.decide().admitted(), "emptiest first")
}

// An undo needs the last revision that was complete, however old it is.
func TestHistory(t *testing.T) {
	f := newFleet(t, 1, v1beta1.RolloutStrategy{})
	revisions := func() (all []int64) {
		for _, r := range f.plan.Status.History {
			all = append(all, r.Revision)
		}
		return all
	}
	assert.Empty(t, rollout.NewestHash(f.plan))
	f.decide().arrive().decide()
	require.NotNil(t, f.plan.Status.History[0].CompletionTime)
	assert.Equal(t, []string{"1"}, rollout.NewestHash(f.plan))
	for i := range 7 {
		f.profile = version(fmt.Sprint(i + 2))
		f.decide()
	}
	assert.Equal(t, []int64{8, 7, 6, 5, 4, 1}, revisions())
	f.arrive().decide()
	for i := range 7 {
		f.profile = version(fmt.Sprint(i + 9))
		f.decide().arrive().decide()
	}
	assert.Equal(t, []int64{15, 14, 13, 12, 11, 10}, revisions())
}

func TestParseLimit(t *testing.T) {
	for limit, want := range map[string]string{"1": "", "100": "", "5%": "", "100%": "", "0": "give 1 or more, or 1% to 100%", "0%": "give 1", "101%": "give 1", "few": "give 1", "": "give 1"} {
		got, err := rollout.ParseLimit(limit, 1)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, limit, got.String())
	}
	_, err := rollout.ParseLimit("0%", 0)
	require.NoError(t, err)
}

func TestWhoDoesNotCount(t *testing.T) {
	f := newFleet(t, 5, v1beta1.RolloutStrategy{})
	f.nodes[0].Overridden = true
	f.nodes[1].Ready = false
	joining := f.nodes[2]
	joining.Desired, joining.Applied, joining.Reported, joining.Joining = "1", "", "", true
	joining.To, joining.State, joining.Moving = "1", v1beta1.Applying, true
	assert.Equal(t, []string{"node-03"}, f.decide().admitted(), "the one that joins needs no permission and uses nobody's place")
	joining.State, joining.Moving, joining.Failed = v1beta1.Failed, false, true
	f.decide()
	assert.Nil(t, f.plan.Status.Stopped, "it was never in another state")
	assert.Equal(t, v1beta1.PlanNodeCounts{Selected: 5, Failed: 1, Switching: 1, Waiting: 1, NotReady: 1, Overridden: 1}, f.plan.Status.NodeCounts)
	assert.True(t, f.is(names.ConditionDegraded))
}

// Ready sums the other conditions up.
func TestReady(t *testing.T) {
	f := newFleet(t, 2, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("100%"), MaxFailures: intstr.FromString("50%")}).decide()
	assert.False(t, f.ready())
	f.arrive().decide()
	require.Equal(t, names.ReasonComplete, f.progressing())
	assert.True(t, f.ready())
	f.profile = version("2")
	f.decide().fail("node-00").node("node-00").Admitted = ""
	f.arrive().decide()
	require.Equal(t, names.ReasonComplete, f.progressing())
	assert.False(t, f.ready(), "a node has failed")
	assert.Equal(t, names.ReasonNodesFailed, meta.FindStatusCondition(f.plan.Status.Conditions, names.ConditionReady).Reason)
}

func (f *fleet) ready() bool { return f.is(names.ConditionReady) }

// is reports whether a condition is true.
func (f *fleet) is(condition string) bool {
	return meta.IsStatusConditionTrue(f.plan.Status.Conditions, condition)
}

// A plan is decided again when the first of its nodes has to be looked at.
func TestWhenTheNextDecisionIs(t *testing.T) {
	f := newFleet(t, 4, v1beta1.RolloutStrategy{}).decide()
	require.Zero(t, f.last.Wake)
	for i, after := range []time.Duration{0, 2 * time.Hour, time.Hour, 3 * time.Hour} {
		if after > 0 {
			f.nodes[i].Wake = noon.Add(after)
		}
	}
	assert.Equal(t, noon.Add(time.Hour), f.decide().last.Wake)
}

func TestNothingToDo(t *testing.T) {
	f := newFleet(t, 0, v1beta1.RolloutStrategy{}).decide()
	assert.Equal(t, names.ReasonNoNodes, f.progressing())
	assert.True(t, f.ready())
	assert.Nil(t, f.plan.Status.History[0].CompletionTime)
	f = newFleet(t, 2, v1beta1.RolloutStrategy{})
	f.profile = nil
	f.decide()
	assert.Equal(t, names.ReasonProfileNotFound, f.progressing())
	assert.Empty(t, f.admitted())
	assert.True(t, rollout.Gives(f.plan), "the nodes keep what they have")
}

// A node that joins in the middle of a rollout gets what has proved itself.
func TestAssign(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{Steps: steps(0, "1")}).decide()
	assert.Equal(t, "1", rollout.Assign(f.plan, true).Hash, "there is nothing else")
	f.arrive().decide().arrive().decide().arrive().decide()
	f.profile = version("2")
	f.decide()
	assert.Equal(t, "1", rollout.Assign(f.plan, true).Hash)
	assert.Equal(t, &v1beta1.ProfileSnapshot{ProfileName: "x", Source: v1beta1.FromPlan, PlanName: "p", Hash: "2"}, rollout.Assign(f.plan, false))
	f.arrive().decide()
	assert.Equal(t, "2", rollout.Assign(f.plan, true).Hash, "the last step")
}

func TestWindows(t *testing.T) {
	night := v1beta1.Window{Start: "22:00", End: "06:00", TimeZone: "Europe/Berlin"}
	for _, c := range []struct {
		name    string
		windows []v1beta1.Window
		now     string
		open    bool
		changes string
	}{
		{"none", nil, "2026-11-21T12:00:00Z", true, ""},
		{"before", []v1beta1.Window{night}, "2026-11-21T12:00:00Z", false, "2026-11-21T21:00:00Z"},
		{"in", []v1beta1.Window{night}, "2026-11-21T21:00:00Z", true, "2026-11-22T05:00:00Z"},
		{"after midnight", []v1beta1.Window{night}, "2026-11-22T04:59:59Z", true, "2026-11-22T05:00:00Z"},
		{"over", []v1beta1.Window{night}, "2026-11-22T05:00:00Z", false, "2026-11-22T21:00:00Z"},
		{"only sundays", []v1beta1.Window{{Days: []v1beta1.Day{"Sunday"}, Start: "22:00", End: "06:00"}}, "2026-11-23T05:00:00Z", true, "2026-11-23T06:00:00Z"},
		{"next week", []v1beta1.Window{{Days: []v1beta1.Day{"Sunday"}, Start: "22:00", End: "06:00"}}, "2026-11-23T06:00:00Z", false, "2026-11-29T22:00:00Z"},
		{"summer begins", []v1beta1.Window{night}, "2026-03-28T23:00:00Z", true, "2026-03-29T04:00:00Z"},
		{"two", []v1beta1.Window{night, {Start: "13:00", End: "14:00"}}, "2026-11-21T12:00:00Z", false, "2026-11-21T13:00:00Z"},
		{"a later one in another", []v1beta1.Window{{Start: "13:00", End: "14:00"}, {Start: "10:00", End: "15:00"}}, "2026-11-21T12:00:00Z", true, "2026-11-21T15:00:00Z"},
		{"one in another", []v1beta1.Window{{Start: "11:30", End: "12:30"}, {Start: "10:00", End: "14:00"}}, "2026-11-21T12:00:00Z", true, "2026-11-21T12:30:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, c.now)
			require.NoError(t, err)
			open, changes, err := rollout.InWindow(c.windows, now)
			require.NoError(t, err)
			assert.Equal(t, c.open, open)
			want := time.Time{}
			if c.changes != "" {
				want, err = time.Parse(time.RFC3339, c.changes)
				require.NoError(t, err)
			}
			assert.True(t, want.Equal(changes), changes)
		})
	}
	for says, w := range map[string]v1beta1.Window{
		"time zone Mars/Base does not exist": {Start: "01:00", End: "02:00", TimeZone: "Mars/Base"},
		`"1 am" is not a time of day`:        {Start: "1 am", End: "02:00"},
		`"24:00" is not a time of day`:       {Start: "01:00", End: "24:00"},
	} {
		_, _, err := rollout.InWindow([]v1beta1.Window{w}, noon)
		require.ErrorContains(t, err, says)
	}
	f := newFleet(t, 2, v1beta1.RolloutStrategy{Windows: []v1beta1.Window{night}}).decide()
	assert.Empty(t, f.admitted())
	assert.Equal(t, names.ReasonOutsideWindow, f.progressing())
	assert.Len(t, f.after(9*time.Hour).admitted(), 1)
	f.plan.Spec.Strategy.Windows[0].TimeZone = "Mars/Base"
	f.arrive().decide()
	assert.Equal(t, names.ReasonInvalidWindow, f.progressing())
}

// Nodes without a plan share limits, whatever each of them is to have.
func TestUnplanned(t *testing.T) {
	f := newFleet(t, 8, v1beta1.RolloutStrategy{})
	for i, n := range f.nodes {
		n.Wanted = []string{"a", "b"}[i/4]
		n.Held = int32(i % 4)
	}
	f.nodes[5].Wake = noon.Add(time.Hour)
	all := rollout.Unplanned{MaxUnavailable: intstr.FromInt32(3), MaxFailures: intstr.FromInt32(0), Nodes: f.nodes}
	r := all.Decide()
	assert.Equal(t, map[string]string{"node-00": "a", "node-04": "b", "node-01": "a"}, r.Admitted, "those with few claims first")
	assert.Equal(t, []any{3, noon.Add(time.Hour)}, []any{r.Moving, r.Wake})
	f.writes(r.Admitted)
	assert.Equal(t, r, all.Decide())

	f.fail("node-00")
	f.node("node-00").Wanted = ""
	r = all.Decide()
	assert.Len(t, r.Stopped["a"], 1)
	assert.Equal(t, map[string]string{"node-04": "b", "node-05": "b", "node-06": "b"}, r.Admitted)
	f.node("node-00").Changed = false
	assert.Empty(t, all.Decide().Stopped, "a node that refuses a profile keeps it from no other")
	f.node("node-00").Changed = true
	all.MaxFailures = intstr.FromInt32(1)
	assert.Empty(t, all.Decide().Stopped)

	// A node that is to have something else, and does not ask for it, keeps what it has.
	n := f.node("node-07")
	n.Wanted, n.Desired, n.Held = "", "b", -1
	assert.NotContains(t, all.Decide().Admitted, "node-07")
}
