package defrag_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/tranche-dev/tranche/pkg/defrag"
)

// A plan is proven again with the taints of its reservation, and not if something has changed.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *fleet, waiting string, plan *defrag.Plan)
		want   defrag.Reason
	}{
		"nothing":                 {func(*fleet, string, *defrag.Plan) {}, ""},
		"waiting pod gone":        {func(f *fleet, w string, _ *defrag.Plan) { f.remove(w) }, defrag.NotWaiting},
		"scheduled":               {func(f *fleet, w string, _ *defrag.Plan) { f.pods[w].Spec.NodeName = "node-0" }, defrag.NotWaiting},
		"moved pod gone":          {func(f *fleet, _ string, p *defrag.Plan) { f.remove(p.Moves[0].Pod.Name) }, defrag.FitsNow},
		"another pod of its name": {func(f *fleet, _ string, p *defrag.Plan) { f.pods[p.Moves[0].Pod.Name].UID = "other" }, defrag.NotMovable},
		"no longer allowed":       {func(f *fleet, _ string, _ *defrag.Plan) { f.in.Namespaces = nil }, defrag.NotMovable},
		"budget":                  {func(f *fleet, _ string, _ *defrag.Plan) { f.in.Budgets = []policyv1.PodDisruptionBudget{budget(0, 1)} }, defrag.Disruptions},
		"no place any more": {func(f *fleet, _ string, _ *defrag.Plan) {
			for range 5 {
				f.run("node-0", one)
			}
		}, defrag.NoPlace},
		"node gone":     {func(f *fleet, _ string, p *defrag.Plan) { p.Node = "node-9" }, defrag.NoNode},
		"other devices": {func(_ *fleet, _ string, p *defrag.Plan) { p.Devices = p.Moves[0].To }, defrag.NotKept},
		"node closed":   {func(f *fleet, _ string, _ *defrag.Plan) { f.in.Nodes[1].Spec.Unschedulable = true }, defrag.NoNode},
	} {
		t.Run(name, func(t *testing.T) {
			f, waiting := scattered(t)
			plan, refusal := f.plan(waiting, defrag.Options{})
			require.Nil(t, refusal)
			f.reserve(plan)
			test.change(f, waiting, plan)
			if pod := f.pods[waiting]; pod != nil && pod.Spec.NodeName == "" {
				pod.Status.Phase = corev1.PodPending
			}
			err := f.planner(defrag.Options{}).Check(t.Context(), plan)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, test.want, refusal.Reason, refusal)
		})
	}
}

// A check that takes too long is a refusal, so that the reservation ends.
func TestCheckOutOfTime(t *testing.T) {
	f, waiting := scattered(t)
	plan, refusal := f.plan(waiting, defrag.Options{})
	require.Nil(t, refusal)
	require.ErrorAs(t, f.planner(defrag.Options{Timeout: time.Nanosecond}).Check(t.Context(), plan), &refusal)
	assert.Equal(t, defrag.OutOfTime, refusal.Reason)

	ctx, end := context.WithTimeout(t.Context(), time.Nanosecond)
	defer end()
	err := f.planner(defrag.Options{}).Check(ctx, plan)
	require.ErrorIs(t, err, context.DeadlineExceeded, "that its caller has no time is none")
	require.NotErrorAs(t, err, &refusal)
}

// A search whose caller gives up finds no refusal, because whether there is a plan is not known, and the
// planner keeps nothing wrong for its next search: a whole GPU is no candidate for a pod that waits for a
// part of one.
func TestPlanWhoseCallerGivesUp(t *testing.T) {
	f := newFleet(t, 1)
	for range 7 {
		f.run("node-0", one)
	}
	waiting := f.pods[f.add(three, 1, priority(5), request(corev1.ResourceCPU, "100"))]
	planner := f.planner(defrag.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	plan, err := planner.Plan(ctx, waiting)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, plan)
	_, err = planner.Plan(t.Context(), waiting)
	var refusal *defrag.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, defrag.NoResources, refusal.Reason, refusal)
}

// Devices for which a selector fails are not left out, so the allocator's error is the refusal.
func TestPlanWithASelectorThatFails(t *testing.T) {
	f, waiting := scattered(t)
	f.claims[waiting].Spec.Devices.Requests[0].Exactly.Selectors = selector(`device.attributes["example.com"].missing`)
	_, refusal := f.plan(waiting, defrag.Options{})
	require.NotNil(t, refusal)
	assert.Equal(t, defrag.Unsupported, refusal.Reason, refusal)
	assert.Contains(t, refusal.Message, "no such key: missing")
}
