package state

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

// A profile that is applied and comes from elsewhere now needs no switch.
func TestAnAppliedProfileComesFromElsewhere(t *testing.T) {
	n := inState(v1beta1.Idle)
	f := after(2*time.Second, wants("old"))
	f.Choice.Desired.Source, f.Choice.Desired.PlanName = v1beta1.FromPlan, "p"
	status := (&Machine{Deadlines: DefaultDeadlines()}).Next(n, f).Status
	assert.Equal(t, v1beta1.Idle, status.State)
	assert.Equal(t, "Plan p", string(status.Applied.Source)+" "+status.Applied.PlanName)
}

func TestWhatIsDesired(t *testing.T) {
	for reason, want := range map[string]string{names.ReasonPaused: "old", names.ReasonControlPlaneNotNamed: "old", names.ReasonProfileNotFound: "new"} {
		step := next(inState(v1beta1.Idle), after(time.Second, keeps(reason)))
		assert.Equal(t, want, step.Status.Desired.ProfileName, reason)
	}
}

func TestRetriesBecomeRarer(t *testing.T) {
	var waits []time.Duration
	for attempt := int32(1); attempt <= 8; attempt++ {
		waits = append(waits, retryAfter(attempt))
	}
	m := time.Minute
	assert.Equal(t, []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 30 * m, 30 * m, 30 * m}, waits)
	assert.Equal(t, 30*m, retryAfter(1<<30))
}

func TestATryThatFollowsAFailureIsCounted(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Failed, retryAt(time.Minute))
	step := m.Next(n, after(time.Minute))
	assert.Equal(t, int32(2), step.Status.Switch.Attempt)
	assert.NotEqual(t, "1", step.Status.Switch.ID)
	assert.Nil(t, step.Status.Switch.RetryTime)

	step = m.Next(n, after(time.Second, wants("newer")))
	assert.Equal(t, int32(1), step.Status.Switch.Attempt)

	n = inState(v1beta1.Planning, retryAt(time.Minute), answers(v1beta1.Planning, v1beta1.TaskRefused, "", "no 9g"))
	step = m.Next(n, after(time.Second))
	assert.Nil(t, step.Status.Switch.RetryTime, "another try would be refused, too")
	assert.Zero(t, step.Wake)
}

func TestAPolicyThatChangesCountsAtOnce(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Draining)
	f := after(time.Minute, held)
	f.Choice.Policy.AfterDeadline = v1beta1.Force
	f.Choice.Policy.DrainDeadline = &metav1.Duration{Duration: 30 * time.Second}
	step := m.Next(n, f)
	assert.True(t, step.Force)
	assert.Equal(t, noon.Add(30*time.Second+5*time.Minute), step.Status.Switch.DeadlineTime.Time)
}

func TestAFailureThatRepeatsKeepsOnePlaceInTheHistory(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Draining)
	for range 3 {
		step := m.Next(n, after(10*time.Minute, held))
		n = inState(v1beta1.Draining)
		n.Status.History = step.Status.History
	}
	require.Len(t, n.Status.History, 1)
	assert.Equal(t, names.ReasonDrainDeadline, n.Status.History[0].Reason)
	assert.Equal(t, 10*time.Minute, n.Status.History[0].Duration.Duration)
}

func TestRebootDrainsAllGPUs(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Applying, policy(func(p *v1beta1.SwitchPolicy) { p.Reboot = v1beta1.RebootIfRequired }),
		answers(v1beta1.Applying, v1beta1.TaskRebootRequired))
	step := m.Next(n, after(time.Second, asPolicy(n)))
	assert.Equal(t, []string{gpuA, gpuB}, step.Status.Switch.GPUs)
	assert.True(t, step.Status.Switch.RebootRequired)
	assert.Equal(t, int32(2), step.Status.Switch.TaintGeneration)
	n.Status = step.Status
	n.Status.Node.Task = &v1beta1.Task{SwitchID: "1", State: v1beta1.Tainted, TaintGeneration: 2, Phase: v1beta1.TaskPlanned}
	n.Status.Node.PublishedTaints = &v1beta1.PublishedTaints{SwitchID: "1", TaintGeneration: 2}
	n.Status.Node.GPUs[0].HeldDevices = []string{gpuA + "-keep"}
	step = m.Next(n, after(2*time.Second, asPolicy(n)))
	assert.Equal(t, v1beta1.Draining, step.Status.State, "nobody may stay on a node that reboots")
}

// A roll back that failed leaves GPUs that nobody wants so. Whoever disables the node then
// must not be told that the switch succeeded.
func TestANodeThatKeepsWhatItDoesNotHaveIsNotReady(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	step := m.Next(inState(v1beta1.Idle, follows("neither")), after(time.Second, keeps(names.ReasonPaused)))
	c := meta.FindStatusCondition(step.Status.Conditions, names.ConditionReady)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	assert.Equal(t, names.ReasonPaused, c.Reason)
	assert.Contains(t, c.Message, "its GPUs differ from profile old, which could not be restored")
	step = m.Next(inState(v1beta1.Idle), after(time.Second, keeps(names.ReasonPaused)))
	assert.True(t, meta.IsStatusConditionTrue(step.Status.Conditions, names.ConditionReady))
}

// Nothing is known of a node whose plugin has not reported, and nothing is asked of a plugin that may
// answer in ways that the controller does not know.
func TestPluginsThatTheControllerDoesNotKnow(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	for name, test := range map[string]struct {
		change func(*v1beta1.GPUNode)
		status metav1.ConditionStatus
		reason string
		says   string
		state  v1beta1.State
	}{
		"no report": {func(n *v1beta1.GPUNode) { n.Status.Node = nil }, metav1.ConditionUnknown, names.ReasonNoReport, "has not reported", v1beta1.Idle},
		"newer": {func(n *v1beta1.GPUNode) {
			n.Status.Node.PluginVersion, n.Status.Node.ProtocolVersion = "v9", v1beta1.ProtocolVersion+1
		}, metav1.ConditionFalse, names.ReasonProtocolUnknown, "the node's plugin, version v9, follows protocol 2, and this controller knows 1: update the controller", v1beta1.Idle},
		"as this one": {func(n *v1beta1.GPUNode) { n.Status.Node.ProtocolVersion = v1beta1.ProtocolVersion }, metav1.ConditionFalse, names.ReasonSwitching, "", v1beta1.Planning},
	} {
		t.Run(name, func(t *testing.T) {
			n := inState(v1beta1.Idle, test.change)
			step := m.Next(n, after(time.Second, wants("new")))
			c := meta.FindStatusCondition(step.Status.Conditions, names.ConditionReady)
			assert.Equal(t, test.status, c.Status)
			assert.Equal(t, test.reason, c.Reason)
			assert.Contains(t, c.Message, test.says)
			assert.Equal(t, test.state, step.Status.State)
			assert.Equal(t, n.Generation, step.Status.ObservedGeneration)
		})
	}
}

func TestAClockThatIsSetBackMakesNoStateLonger(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	const back = -24 * time.Hour
	for _, state := range []v1beta1.State{v1beta1.Planning, v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack} {
		n := inState(state, answers("", ""))
		step := m.Next(n, after(back, held, asPolicy(n)))
		require.NotNil(t, step.Status.Switch.DeadlineTime, state)
		assert.False(t, step.Status.Switch.DeadlineTime.After(noon.Add(back+15*time.Minute)), "%s lasts until %s", state, step.Status.Switch.DeadlineTime)
		assert.False(t, step.Wake.After(noon.Add(back+15*time.Minute)), "%s is not looked at until %s", state, step.Wake)
	}
	n := inState(v1beta1.Failed, retryAt(time.Minute), because)
	step := m.Next(n, after(back, asPolicy(n)))
	assert.Equal(t, noon.Add(back+time.Minute), step.Status.Switch.RetryTime.Time)
	assert.Equal(t, noon.Add(back+time.Minute), step.Wake)
}

func TestWhatThePluginSaysIsBounded(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	n := inState(v1beta1.Applying, answers(v1beta1.Applying, v1beta1.TaskFailed, strings.Repeat("Long", 100), strings.Repeat("text ", 10_000)))
	n.Status = m.Next(n, after(time.Second)).Status
	assert.Equal(t, "Other", n.Status.Switch.Reason)
	assert.LessOrEqual(t, len(n.Status.Switch.Message), v1beta1.MaxReportText)
	step := m.Next(n, after(time.Hour))
	require.Equal(t, v1beta1.Failed, step.Status.State)
	assert.LessOrEqual(t, len(step.Status.Switch.Message), v1beta1.MaxReportText)
	assert.LessOrEqual(t, len(step.Status.History[0].Message), v1beta1.MaxRecordMessage)
}

func TestNobodyIsEvictedBeforeTheNodeIsTaintedForAClaimThatOutlivesItsPods(t *testing.T) {
	m := &Machine{Deadlines: DefaultDeadlines()}
	h := webPod()
	h.Outlives = true
	n := inState(v1beta1.Draining)
	f := after(time.Second, func(f *Facts) { f.Holders = []drain.Holder{h} })
	step := m.Next(n, f)
	assert.True(t, step.Status.Switch.NodeTaintRequired)
	assert.False(t, step.Evict)
	assert.Equal(t, f.Now, step.Wake)
	n.Status = step.Status
	assert.True(t, m.Next(n, f).Evict)
}

// The same error of each GPU leaves room for what to do.
func TestRemedyOfManyErrors(t *testing.T) {
	n := &v1beta1.GPUNodeStatus{Switch: &v1beta1.Switch{
		Reason: names.ReasonRebootRequired, Message: strings.Repeat("switch MIG on: the GPU needs a reset; ", 200), To: v1beta1.ProfileSnapshot{ProfileName: "cut"},
	}}
	said := FailedText(n)
	assert.LessOrEqual(t, len(said), v1beta1.MaxConditionMessage)
	assert.Contains(t, said, "The node is unchanged")
	assert.Contains(t, said, "or reboot the node; it is retried when the profile, its policy, the GPUs or the plugin's settings change")
}

func TestTextsAreCut(t *testing.T) {
	assert.Equal(t, "a, b, c, d, e and 2 more", list([]string{"a", "b", "c", "d", "e", "f", "g"}))
	assert.Equal(t, []string{"a", "b"}, compact([]string{"a", "a", "b", "a"}))
	assert.Equal(t, "Other", ReasonWord("not a reason"))
	assert.Equal(t, "Other", ReasonWord(""))
	assert.Equal(t, "InUse", ReasonWord("InUse"))
}

func TestChanging(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, changing(&v1beta1.Task{Changes: []v1beta1.GPUChange{{GPU: "b"}, {GPU: "a"}, {GPU: "b"}}}), "in order, once")
}

func TestGPUNames(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, gpuNames(&v1beta1.NodeReport{GPUs: []v1beta1.GPUReport{{Name: "b"}, {Name: "a"}}}))
}

func TestShrinking(t *testing.T) {
	assert.Equal(t, []string{"a", "c"}, shrinking([]string{"c", "a", "b", "c"}, []string{"b"}), "the GPUs that do not change, in order, once")
}
