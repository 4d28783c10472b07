package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

// next is the next step of a node, by the usual deadlines.
func next(n *v1beta1.GPUNode, f *Facts) Step {
	return (&Machine{Deadlines: DefaultDeadlines()}).Next(n, f)
}

func TestWhatTheConditionsSay(t *testing.T) {
	failed := func(change func(*v1beta1.Switch)) *v1beta1.GPUNode {
		return inState(v1beta1.Failed, because, func(n *v1beta1.GPUNode) { change(n.Status.Switch) })
	}
	const inUse = "profile new could not be applied: process 12. The node is unchanged, with profile old. "
	later := func(f *Facts) { f.LookAgain = noon.Add(time.Hour) }
	for name, tt := range map[string]struct {
		node            *v1beta1.GPUNode
		facts           *Facts
		kind            string
		is              bool
		reason, message string
	}{
		"applied": {inState(v1beta1.Idle), after(time.Second, wants("old"), func(f *Facts) { f.Choice.SetBy = "a label" }), names.ConditionReady, true, names.ReasonApplied, "profile old is applied, as set by a label"},
		"applied, not all of it": {inState(v1beta1.Idle, func(n *v1beta1.GPUNode) {
			n.Status.Node.GPUs[0].Pending, n.Status.Node.GPUs[1].Problems = "later", []v1beta1.GPUProblem{{Message: "ECC"}}
		}), after(time.Second, wants("old")), names.ConditionReady, true, names.ReasonApplied, "profile old is applied; " + gpuA + ": later; " + gpuB + ": ECC"},
		"no GPUs": {inState(v1beta1.Idle, func(n *v1beta1.GPUNode) { n.Status.Node.GPUs, n.Status.Node.GPUCount = nil, 0 }), after(time.Second, wants("old")), names.ConditionReady, true, names.ReasonNoGPUs, "the node has no GPUs"},
		"kept":    {inState(v1beta1.Idle), after(time.Second, keeps(names.ReasonPaused), func(f *Facts) { f.Choice.Message = "it is paused" }), names.ConditionReady, true, names.ReasonPaused, "it is paused: it keeps profile old"},
		"kept, without a profile": {inState(v1beta1.Idle, func(n *v1beta1.GPUNode) { n.Status.Applied = nil }),
			after(time.Second, keeps(names.ReasonPaused), func(f *Facts) { f.Choice.Message = "it is paused" }), names.ConditionReady, true, names.ReasonPaused, "it is paused: the GPUs do not change"},
		"no Node": {inState(v1beta1.Idle), after(time.Second, func(f *Facts) { f.Choice = WithoutNode(v1beta1.SwitchPolicy{}) }), names.ConditionReady, false, names.ReasonNodeNotFound,
			"the Node does not exist, so its labels are not known; it keeps profile old"},
		"failed, after evictions": {failed(func(s *v1beta1.Switch) { s.EvictedPodCount = 1 }), after(time.Second, later), names.ConditionReady, false, names.ReasonInUse,
			inUse[:len(inUse)-1] + " Pods were evicted for it, and are not evicted again automatically. It is retried when the profile, its policy, the GPUs or the plugin's settings change"},
		"failed, once more": {failed(func(s *v1beta1.Switch) { s.RetryTime = ptr.To(metav1.NewMicroTime(noon.Add(time.Minute))) }), after(time.Second), names.ConditionReady, false, names.ReasonInUse, inUse + "Attempt 2 starts at 12:01:00 UTC"},
		"failed, rebooted": {failed(func(s *v1beta1.Switch) { s.RebootRequested = true }), after(time.Second), names.ConditionReady, false, names.ReasonInUse,
			inUse + "The node was rebooted for it and is not rebooted again automatically: it is retried when the profile or its policy changes"},
		"failed, blocked": {failed(func(s *v1beta1.Switch) { s.Blockers = []v1beta1.Blocker{{Name: "x"}} }), after(time.Second), names.ConditionReady, false, names.ReasonInUse,
			inUse + "It is retried when they can be evicted, which is checked at least every 30 minutes, or when the profile or its policy changes"},
		"overridden": {inState(v1beta1.Idle), after(time.Second, wants("old"), func(f *Facts) { f.Choice.Overridden.Reason, f.Choice.Overridden.Message = "ByLabel", "a label says so" }),
			names.ConditionOverridden, true, "ByLabel", "a label says so"},
		"not overridden": {inState(v1beta1.Idle), after(time.Second, wants("old")), names.ConditionOverridden, false, names.ReasonNone, ""},
		"waits for a rollout": {inState(v1beta1.Idle), after(time.Second, wants("old"), func(f *Facts) { f.Choice.Pending = &Pending{Reason: "Stopped", Message: "others failed"} }),
			names.ConditionRolloutPending, true, "Stopped", "others failed"},
		"another system": {inState(v1beta1.Idle, owned), after(time.Second, wants("old")), names.ConditionConflicted, true, names.ReasonOtherSystem,
			"other systems serve GPUs of the node, so Tranche does not change their modes and partitions: mig-manager runs here"},
		"idle":                       {inState(v1beta1.Idle), after(time.Second, wants("old")), names.ConditionSwitching, false, "Idle", "no switch is in progress"},
		"failed":                     {failed(func(*v1beta1.Switch) {}), after(time.Second), names.ConditionSwitching, false, "Failed", "no switch is in progress"},
		"tainted, one is in the way": {inState(v1beta1.Tainted), after(time.Second, blocks("1")), names.ConditionSwitching, true, "Tainted", "keeps new pods off " + gpuA + "; no pod was evicted, because these cannot be: pod team/1: a budget; until 12:01:00 UTC at the latest, then it is canceled and the GPUs stay as they are"},
		"draining": {inState(v1beta1.Draining, func(n *v1beta1.GPUNode) { n.Status.Switch.Withhold, n.Status.Switch.NodeTaintRequired = true, true }), after(time.Second, held, without), names.ConditionSwitching, true, "Draining",
			"evicts pods from " + gpuA + ", and taints the node, because device taints would not keep all new pods off, whose free devices are not published, because a claim tolerates their taint: " +
				"pod team/web (" + gpuA + "-mig-1g-10gb-0); the node cannot be tainted; until 12:10:00 UTC at the latest, then it is canceled and the GPUs stay as they are"},
	} {
		t.Run(name, func(t *testing.T) {
			step := next(tt.node, tt.facts)
			c := meta.FindStatusCondition(step.Status.Conditions, tt.kind)
			assert.Equal(t, []any{statusOf(tt.is), tt.reason, tt.message}, []any{c.Status, c.Reason, c.Message})
		})
	}
}

// What the controller reads and writes depends on these.
func TestQuestions(t *testing.T) {
	unanswered := func(n *v1beta1.GPUNode) { n.Status.Node.Task = nil }
	for name, tt := range map[string]struct {
		node                        *v1beta1.GPUNode
		enforced, current, answered bool
	}{
		"idle":                      {inState(v1beta1.Idle), false, false, false},
		"planning":                  {inState(v1beta1.Planning), false, false, false},
		"tainted, no answer":        {inState(v1beta1.Tainted, unanswered), false, false, false},
		"tainted, with the node":    {inState(v1beta1.Tainted, unanswered, func(n *v1beta1.GPUNode) { n.Status.Switch.NodeTaintRequired = true }), true, false, false},
		"tainted, answered":         {inState(v1beta1.Tainted), true, true, false},
		"tainted, another's answer": {inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Node.Task.SwitchID = "0" }), false, false, false},
		"tainted, the first answer": {inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Node.Task.State = v1beta1.Planning }), false, false, false},
		"tainted, published before": {inState(v1beta1.Tainted, func(n *v1beta1.GPUNode) { n.Status.Node.PublishedTaints.TaintGeneration = 0 }), true, false, false},
		"tainted, not published":    {inState(v1beta1.Tainted, unpublished), true, false, false},
		"tainted, refused":          {inState(v1beta1.Tainted, plans(v1beta1.TaskFailed)), true, false, false},
		"tainted, more GPUs":        {inState(v1beta1.Tainted, plans(v1beta1.TaskPlanned, changes(gpuA, gpuB))), true, false, false},
		"draining":                  {inState(v1beta1.Draining), true, true, false},
		"applying":                  {inState(v1beta1.Applying, unanswered), true, false, false},
		"applying, done":            {inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskDone)), true, false, true},
		"applying, another is done": {inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskDone), func(n *v1beta1.GPUNode) { n.Status.Node.Task.SwitchID = "0" }), true, false, false},
	} {
		s := &tt.node.Status
		assert.Equal(t, []bool{tt.enforced, tt.current, tt.answered}, []bool{Enforced(s), ReportCurrent(s), Answered(s)}, name)
	}
}

// Free devices are withheld while a claim tolerates the taint, until the GPUs have changed.
func TestDevicesAreWithheld(t *testing.T) {
	h := webPod()
	h.Tolerates = true
	holders := func(h drain.Holder) func(*Facts) { return func(f *Facts) { f.Holders = []drain.Holder{h} } }
	for _, state := range []v1beta1.State{v1beta1.Tainted, v1beta1.Draining} {
		step := next(inState(state), after(time.Second, holders(h)))
		assert.Equal(t, []any{v1beta1.Tainted, true, int32(2), false}, []any{step.Status.State, step.Status.Switch.Withhold, step.Status.Switch.TaintGeneration, step.Evict})
		monitor := h
		monitor.Admin = true
		step = next(inState(state), after(time.Second, holders(monitor)))
		assert.Equal(t, []any{v1beta1.Draining, false}, []any{step.Status.State, step.Status.Switch.Withhold})
	}
	withheld := func(n *v1beta1.GPUNode) { n.Status.Node.PublishedTaints.Withheld = true }
	step := next(inState(v1beta1.Tainted, withheld), after(time.Second, holders(h)))
	assert.Equal(t, []any{v1beta1.Tainted, false, true, noon.Add(time.Second)}, []any{step.Status.State, step.Status.Switch.Withhold, step.Status.Switch.NodeTaintRequired, step.Wake}, "the plugin publishes no taints")

	n := inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskDone), follows("new"), func(n *v1beta1.GPUNode) { n.Status.Switch.Withhold = true })
	step = next(n, after(time.Second))
	assert.Equal(t, []any{v1beta1.Verifying, false, int32(2), noon.Add(time.Second)}, []any{step.Status.State, step.Status.Switch.Withhold, step.Status.Switch.TaintGeneration, step.Wake})
	n.Status = step.Status
	step = next(n, after(2*time.Second, holders(h)))
	assert.Equal(t, []any{v1beta1.Verifying, true}, []any{step.Status.State, step.Evict}, "its device is gone")
	assert.Equal(t, v1beta1.Idle, next(n, after(2*time.Second)).Status.State)

	for evicted, want := range map[int32]bool{0: false, 1: true} {
		failed := inState(v1beta1.Failed, func(n *v1beta1.GPUNode) {
			retry := metav1.NewMicroTime(noon)
			n.Status.Switch.EvictedPodCount, n.Status.Switch.RetryTime = evicted, &retry
		})
		again := next(failed, after(time.Hour)).Status
		assert.Equal(t, []any{int32(2), want}, []any{again.Switch.Attempt, again.Switch.Withhold}, "%d evicted before", evicted)
	}
}

// Monitoring pods are paused as the policy says, also those that an earlier switch has paused.
func TestPausedMonitoring(t *testing.T) {
	planned := func(pause bool, before map[string]string) *v1beta1.GPUNode {
		return inState(v1beta1.Planning, policy(func(p *v1beta1.SwitchPolicy) { p.PauseMonitoring = &pause }), func(n *v1beta1.GPUNode) { n.Status.Switch.PausedLabels = before })
	}
	labels := func(n *v1beta1.GPUNode) map[string]string {
		return next(n, after(time.Second, admitted, asPolicy(n), func(f *Facts) { f.Pausable = map[string]string{"dcgm": "true"} })).Status.Switch.PausedLabels
	}
	assert.Equal(t, map[string]string{"dcgm": "true"}, labels(planned(true, nil)))
	before := map[string]string{"nfd": "yes"}
	assert.Equal(t, map[string]string{"dcgm": "true", "nfd": "yes"}, labels(planned(true, before)))
	assert.Len(t, before, 1)
	assert.Empty(t, labels(planned(false, before)))
}

// A switch does not begin while it is not known who holds the GPUs.
func TestUnseenHolders(t *testing.T) {
	unseen := func(f *Facts) { f.Unseen = "no answer" }
	step := next(inState(v1beta1.Tainted), after(time.Second, unseen))
	assert.Equal(t, v1beta1.Tainted, step.Status.State)
	assert.Contains(t, meta.FindStatusCondition(step.Status.Conditions, names.ConditionSwitching).Message, "keeps new pods off "+gpuA+"; it is not known who is there: no answer")
	step = next(inState(v1beta1.Tainted), after(time.Hour, unseen))
	assert.Equal(t, []any{v1beta1.Failed, names.ReasonTaintFailed, "it is not known who holds the GPUs: no answer"}, []any{step.Status.State, step.Status.Switch.Reason, step.Status.Switch.Message})
}

// Why a switch ends before it has changed anything.
func TestSupersededText(t *testing.T) {
	changed := func(f *Facts) { f.Choice.Desired.Hash = "hash of another version" }
	for message, f := range map[string]*Facts{"profile newer is desired now": after(time.Second, wants("newer")), "profile new was changed": after(time.Second, changed)} {
		step := next(inState(v1beta1.Draining), f)
		require.NotNil(t, step.Record, message)
		assert.Equal(t, message, step.Record.Message)
	}
}

// A node that has had no profile and gets none has not been switched.
func TestNoProfileIsNoSwitch(t *testing.T) {
	n := inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskDone), follows("new"), func(n *v1beta1.GPUNode) { n.Status.Switch.From.ProfileName, n.Status.Switch.To.ProfileName = "", "" })
	step := next(n, after(time.Second))
	assert.Equal(t, v1beta1.Idle, step.Status.State)
	assert.Nil(t, step.Record)
	assert.Empty(t, step.Status.History)
}
