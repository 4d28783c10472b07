package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

func newRollout(out *bytes.Buffer, objects ...runtime.Object) *rolloutRun {
	return &rolloutRun{session: newSession(out, picture.Screen{Width: 80}, connection{read.Clients{Ours: clientfake.New(objects...)}}), plan: "canary"}
}

// planned is a plan of two revisions and three steps, in one of them.
func planned(step int32, reason string) *gpunodes.Plan {
	p := gpunodes.NewPlan("canary", "balanced", 2).Counts(v1beta1.PlanNodeCounts{Selected: 4, Updated: 1, Waiting: 3}).
		Says(names.ConditionProgressing, true, reason, "as the plan says")
	p.Spec.Strategy.Steps = make([]v1beta1.RolloutStep, 2)
	p.Status.CurrentStep, p.Status.StepCount = step, 3
	return p
}

func TestEditPlan(t *testing.T) {
	paused, stopped, first := planned(1, names.ReasonPaused), planned(1, names.ReasonTooManyFailures), gpunodes.NewPlan("canary", "balanced", 1)
	paused.Spec.Paused = true
	stopped.Status.Stopped = &v1beta1.PlanStop{Revision: 2, FailedNodeCount: 3}
	both := &gpunodes.Plan{PartitionPlan: *stopped.DeepCopy()}
	both.Spec.Paused = true
	older := &gpunodes.Plan{PartitionPlan: *stopped.DeepCopy()}
	older.Status.Stopped.Revision = 1
	unseen := &gpunodes.Plan{}
	unseen.Name = "canary"
	one, two := v1beta1.RevisionReference{Revision: 1, RevisionHash: "hash-1"}, v1beta1.RevisionReference{Revision: 2, RevisionHash: "hash-2"}
	rejected := planned(1, names.ReasonRollingOut)
	rejected.Spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: two, Fallback: &one}
	const hint = "\nTo see its progress: kubectl tranche rollout status canary\n"
	for name, test := range map[string]struct {
		plan  *gpunodes.Plan
		what  string
		flags rolloutFlags
		want  func(*v1beta1.PartitionPlanSpec)
		says  string
		err   string
	}{
		"pause":       {plan: planned(1, names.ReasonRollingOut), what: "pause", want: func(s *v1beta1.PartitionPlanSpec) { s.Paused = true }, says: "Paused canary. Nodes that are being switched go on."},
		"pause again": {plan: paused, what: "pause", says: "canary is paused already."},
		"resume":      {plan: paused, what: "resume", want: func(s *v1beta1.PartitionPlanSpec) { s.Paused = false }, says: "Resumed canary."},
		"resume after failures": {plan: stopped, what: "resume", says: "Resumed canary in spite of 3 failed nodes.",
			want: func(s *v1beta1.PartitionPlanSpec) {
				s.Accepted = &v1beta1.AcceptedFailures{RevisionReference: two, FailedNodeCount: 3}
			}},
		"resume both": {plan: both, what: "resume", says: "Resumed canary in spite of 3 failed nodes.",
			want: func(s *v1beta1.PartitionPlanSpec) {
				s.Paused, s.Accepted = false, &v1beta1.AcceptedFailures{RevisionReference: two, FailedNodeCount: 3}
			}},
		"resume after failures of before": {plan: older, what: "resume", says: "canary is neither paused nor stopped."},
		"approve": {plan: planned(2, names.ReasonWaitsForApproval), what: "approve", says: "Approved step 2 of revision 2 of canary.",
			want: func(s *v1beta1.PartitionPlanSpec) {
				s.Approved = &v1beta1.StepApproval{RevisionReference: two, Step: 2}
			}},
		"approve ahead": {plan: planned(1, names.ReasonSoaking), what: "approve", flags: rolloutFlags{step: 2}, says: "Approved step 2 of revision 2 of canary.",
			want: func(s *v1beta1.PartitionPlanSpec) {
				s.Approved = &v1beta1.StepApproval{RevisionReference: two, Step: 2}
			}},
		"approve too early": {plan: planned(1, names.ReasonSoaking), what: "approve",
			err: "PartitionPlan canary does not wait for an approval (step 1 of 3: 1 of 4 nodes updated (Soaking)); to approve a step before it is reached, use --step"},
		"approve no step": {plan: planned(1, names.ReasonSoaking), what: "approve", flags: rolloutFlags{step: 3}, err: "--step 3: PartitionPlan canary has the steps 1 to 2"},
		"approve nothing": {plan: unseen, what: "approve", err: "PartitionPlan canary gives its nodes no revision, so there is nothing to approve"},
		"undo": {plan: planned(1, names.ReasonRollingOut), what: "undo", says: "canary goes back from revision 2 to revision 1.",
			want: func(s *v1beta1.PartitionPlanSpec) { s.Rejected = &v1beta1.RejectedRevision{RevisionReference: two} }},
		"undo after another": {plan: rejected, what: "undo", says: "canary goes back from revision 2 to revision 1.",
			want: func(s *v1beta1.PartitionPlanSpec) { s.Rejected.Fallback = nil }},
		"undo the first": {plan: first, what: "undo", says: "canary gives its nodes no profile any more: no revision before 1 was complete.",
			want: func(s *v1beta1.PartitionPlanSpec) { s.Rejected = &v1beta1.RejectedRevision{RevisionReference: one} }},
		"undo to a revision": {plan: planned(1, names.ReasonRollingOut), what: "undo", flags: rolloutFlags{revision: 1}, says: "canary goes back from revision 2 to revision 1.",
			want: func(s *v1beta1.PartitionPlanSpec) {
				s.Rejected = &v1beta1.RejectedRevision{RevisionReference: two, Fallback: &one}
			}},
		"undo to the newest": {plan: planned(1, names.ReasonRollingOut), what: "undo", flags: rolloutFlags{revision: 2}, err: "--to-revision 2: the earlier revisions of PartitionPlan canary are: 1"},
		"undo to no other":   {plan: first, what: "undo", flags: rolloutFlags{revision: 3}, err: "--to-revision 3: the earlier revisions of PartitionPlan canary are: none"},
		"undo nothing":       {plan: unseen, what: "undo", err: "PartitionPlan canary has no revision yet, so there is nothing to undo"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := newRollout(&out, test.plan.DeepCopy())
			r.flags = test.flags
			err := r.edit(t.Context(), test.what)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.says+hint, out.String())
			want := test.plan.Spec.DeepCopy()
			if test.want != nil {
				test.want(want)
			}
			got, err := r.read(t.Context())
			require.NoError(t, err)
			assert.Equal(t, *want, got.Spec)
		})
	}
	require.ErrorContains(t, newRollout(nil).edit(t.Context(), "pause"), "PartitionPlan canary does not exist (see kubectl get partitionplans): ")
}

func TestFollowRollout(t *testing.T) {
	said, done, ours := make(lines), make(chan error, 1), clientfake.New(planned(1, names.ReasonRollingOut).DeepCopy())
	r := newRollout(nil)
	r.Ours, r.out = ours, said
	go func() { done <- r.follow(t.Context(), 0) }()
	assert.Equal(t, "step 1 of 3: 1 of 4 nodes updated (RollingOut)", <-said)
	w := &waiting{ours: ours}
	w.watches(t)
	change := func(p *gpunodes.Plan) {
		_, err := ours.PartitionPlans().Update(t.Context(), &p.PartitionPlan, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	p := planned(3, names.ReasonRollingOut).Counts(v1beta1.PlanNodeCounts{Selected: 4, Updated: 3, Switching: 1})
	change(p)
	assert.Equal(t, "step 3 of 3: 3 of 4 nodes updated, 1 switching (RollingOut)", <-said)
	p.Status.MeanSwitchDuration = &metav1.Duration{Duration: time.Second} // nothing that is said again
	change(p)
	change(p.Counts(v1beta1.PlanNodeCounts{Selected: 4, Updated: 4}).Says(names.ConditionProgressing, false, names.ReasonComplete, ""))
	assert.Equal(t, "step 3 of 3: 4 of 4 nodes updated (Complete)", <-said)
	require.NoError(t, <-done)
}

func TestFollowEnds(t *testing.T) {
	stopped := planned(1, names.ReasonTooManyFailures).Says(names.ConditionProgressing, false, names.ReasonTooManyFailures, "1 node failed, and maxFailures allows 0")
	for want, p := range map[string]*gpunodes.Plan{
		"the rollout is not complete (TooManyFailures): 1 node failed, and maxFailures allows 0":      stopped,
		"the rollout is not complete (Undone): as the plan says":                                      planned(1, names.ReasonUndone),
		"the rollout is not complete (InvalidWindow): as the plan says":                               planned(1, names.ReasonInvalidWindow),
		"the rollout is not complete yet; it goes on: kubectl tranche rollout status canary shows it": planned(1, names.ReasonPaused),
	} {
		var out bytes.Buffer
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if p.Status.Conditions[0].Reason == names.ReasonPaused { // it does not end by itself
			ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
		}
		err := newRollout(&out, p.DeepCopy()).follow(ctx, 0)
		cancel()
		if p.Status.Conditions[0].Reason == names.ReasonPaused {
			require.ErrorContains(t, err, "the rollout is not complete")
			continue
		}
		require.EqualError(t, err, want)
	}
	r := newRollout(&bytes.Buffer{}, planned(1, names.ReasonPaused).DeepCopy())
	require.EqualError(t, r.follow(t.Context(), time.Millisecond), "the rollout is not complete after 1ms; it goes on: kubectl tranche rollout status canary shows it")
	require.ErrorContains(t, newRollout(nil).follow(t.Context(), 0), "PartitionPlan canary does not exist")
}

// On a terminal, the picture replaces the one before.
func TestFollowOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := planned(3, names.ReasonComplete).Says(names.ConditionProgressing, false, names.ReasonComplete, "all nodes have revision 2")
	r := newRollout(&out, p.DeepCopy())
	r.screen = func() picture.Screen { return picture.Screen{Width: 80, Live: true} }
	require.NoError(t, r.follow(t.Context(), 0))
	assert.Contains(t, out.String(), "canary: profile balanced, revision 2, step 3 of 3\n  │")
}

func TestShowRollout(t *testing.T) {
	var out bytes.Buffer
	r := newRollout(&out, planned(1, names.ReasonSoaking).DeepCopy())
	r.output = "json"
	require.NoError(t, showPlans(t.Context(), r.session, []string{"canary"}))
	var shown v1beta1.PartitionPlan
	require.NoError(t, json.Unmarshal(out.Bytes(), &shown))
	assert.Equal(t, "PartitionPlan", shown.Kind)
	assert.EqualValues(t, 4, shown.Status.NodeCounts.Selected)
	out.Reset()
	r.output = ""
	require.NoError(t, showPlans(t.Context(), r.session, []string{"canary"}))
	assert.Contains(t, out.String(), "1 of 4 nodes updated")
}

func TestArgumentsOfRollout(t *testing.T) {
	for want, args := range map[string][]string{
		"name a plan: kubectl tranche rollout pause PLAN...":                            {"rollout", "pause"},
		"name a plan: kubectl tranche rollout status PLAN...":                           {"rollout", "status"},
		`unknown command "statuss" for "kubectl tranche rollout"; did you mean status?`: {"rollout", "statuss"},
		`unknown command "topp" for "kubectl tranche"; did you mean top?`:               {"topp"},
		`unknown command "zzzzz" for "kubectl tranche"`:                                 {"zzzzz"},
		`unsupported output format "wide": use json or yaml`:                            {"rollout", "status", "a", "-o", "wide"},
	} {
		_, err := run(t, args...)
		assert.EqualError(t, err, want, args)
	}
	out, err := run(t, "rollout")
	require.NoError(t, err)
	assert.Contains(t, out, "kubectl tranche rollout approve canary")
	assert.Equal(t, "canary", planName("partitionplan.tranche.dev/canary"))
}
