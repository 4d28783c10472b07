package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/test/short"
)

// plan adds a plan, or changes its spec.
func (w *world) plan(name string, change func(*v1beta1.PartitionPlanSpec)) {
	var p v1beta1.PartitionPlan
	err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &p)
	require.NoError(w.t, client.IgnoreNotFound(err))
	if p.Name == "" {
		p.Name, p.Spec.ProfileName, p.Spec.NodeSelector = name, "cpx", &v1beta1.NodeSelector{}
		p.CreationTimestamp = metav1.NewTime(w.clock.Now())
		change(&p.Spec)
		require.NoError(w.t, w.api.Create(w.t.Context(), &p))
		return
	}
	change(&p.Spec)
	p.Generation++
	require.NoError(w.t, w.api.Update(w.t.Context(), &p))
}

func (w *world) planStatus(name string) *v1beta1.PartitionPlanStatus {
	var p v1beta1.PartitionPlan
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &p))
	return &p.Status
}

// revision refers to the newest revision of a plan.
func (w *world) revision(plan string) v1beta1.RevisionReference {
	return w.planStatus(plan).History[0].RevisionReference
}

func progressing(s *v1beta1.PartitionPlanStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, names.ConditionProgressing); c != nil {
		return c.Reason
	}
	return ""
}

// rolls lets time pass on all nodes until a plan is as it should be.
func (w *world) rolls(plan string, long time.Duration, done func(*v1beta1.PartitionPlanStatus) bool) *v1beta1.PartitionPlanStatus {
	w.t.Helper()
	for end := w.clock.Now().Add(long); ; w.clock.Step(time.Second) {
		w.all()
		s := w.planStatus(plan)
		if done(s) {
			return s
		}
		if !w.clock.Now().Before(end) {
			require.Failf(w.t, "it does not come to it", "plan: %+v; last error: %v", s, w.lastErr)
		}
	}
}

// all is a round of each node.
func (w *world) all() {
	for i := range len(w.nodes) {
		w.round(fmt.Sprintf("node-%d", i))
	}
}

func because(reason string) func(*v1beta1.PartitionPlanStatus) bool {
	return func(s *v1beta1.PartitionPlanStatus) bool { return progressing(s) == reason }
}

// have are the nodes that have a profile.
func (w *world) have(profile string) (names []string) {
	for i := range len(w.nodes) {
		name := fmt.Sprintf("node-%d", i)
		if inProfile(profile)(w.gpuNode(name)) {
			names = append(names, name)
		}
	}
	return names
}

// planned is a fleet in the profile old, by default.
func planned(t *testing.T, nodes int) *world {
	w := newWorld(t)
	for _, name := range []string{"cpx", "spx"} {
		w.profile(name)
	}
	w.profile(names.DefaultProfile)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		w.addNode(name)
		w.settled(name, names.DefaultProfile)
	}
	return w
}

func steps(soak time.Duration, nodes ...string) (all []v1beta1.RolloutStep) {
	for _, n := range nodes {
		all = append(all, v1beta1.RolloutStep{Nodes: intstr.Parse(n), Soak: metav1.Duration{Duration: soak}})
	}
	return all
}

func TestAPlanStepByStep(t *testing.T) {
	w := planned(t, 4)
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Strategy.Steps, s.Strategy.MaxUnavailable = steps(time.Minute, "1"), ptr.To(intstr.FromInt32(2))
	})
	s := w.rolls("p", time.Minute, because(names.ReasonSoaking))
	assert.Equal(t, []string{"node-0"}, w.have("cpx"))
	assert.Equal(t, v1beta1.PlanNodeCounts{Selected: 4, Updated: 1, Waiting: 3}, s.NodeCounts)
	g := w.gpuNode("node-3")
	assert.Equal(t, names.ReasonWaitsForPlan, meta.FindStatusCondition(g.Status.Conditions, names.ConditionRolloutPending).Reason)
	assert.Equal(t, names.DefaultProfile, g.Status.Desired.ProfileName)
	s = w.rolls("p", 3*time.Minute, because(names.ReasonComplete))
	assert.Len(t, w.have("cpx"), 4)
	assert.Equal(t, v1beta1.PlanNodeCounts{Selected: 4, Updated: 4}, s.NodeCounts)
	g = w.gpuNode("node-3")
	assert.Equal(t, "Plan p", string(g.Status.Applied.Source)+" "+g.Status.Applied.PlanName)
	assert.False(t, pending(g))
	assert.Equal(t, 2, w.budgetSeen)
	require.NotNil(t, s.MeanSwitchDuration)

	// An edit that disturbs no pod also goes step by step.
	for _, n := range w.nodes {
		n.changes = func(*v1beta1.Switch) []v1beta1.GPUChange { return nil }
	}
	w.profile("cpx", func(p *v1beta1.PartitionProfile) {
		p.Spec.Rules[0].Sharing = &v1beta1.Sharing{Replicas: ptr.To[int32](2)}
	})
	s = w.rolls("p", time.Minute, because(names.ReasonSoaking))
	assert.Equal(t, ptr.To[int64](2), s.TargetRevision)
	assert.Equal(t, int32(1), s.NodeCounts.Updated)
	w.passes(20, time.Second, "")
	assert.Equal(t, int32(1), w.planStatus("p").NodeCounts.Updated)
	w.rolls("p", 3*time.Minute, because(names.ReasonComplete))
}

func TestACanaryThatFailsStopsThePlanAndAFixGoesOn(t *testing.T) {
	w := planned(t, 3)
	for _, n := range w.nodes {
		n.answer = applyingEnds(v1beta1.TaskFailed, names.ReasonHardwareFailed, "EIO")
	}
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) { s.Strategy.Steps = steps(0, "1") })
	s := w.rolls("p", 5*time.Minute, because(names.ReasonTooManyFailures))
	assert.Equal(t, "node-0", s.FailedNodes[0].NodeName)
	assert.Equal(t, names.ReasonHardwareFailed, s.FailedNodes[0].Reason)
	w.passes(300, 10*time.Second, "")
	assert.Len(t, w.have(names.DefaultProfile), 2, "no other node, and the failed one waits")
	assert.Len(t, w.gpuNode("node-0").Status.History, 2, "nobody is disturbed again meanwhile")
	assert.Contains(t, fmt.Sprint(w.events.texts), "p Warning PlanStopped: 1 node failed with revision 1, and maxFailures allows 0 (node-0: HardwareFailed)")

	// A controller that starts knows it.
	w.startController()
	w.all()
	assert.Equal(t, names.ReasonTooManyFailures, progressing(w.planStatus("p")))
	for _, n := range w.nodes {
		n.answer = nil
	}
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Accepted = &v1beta1.AcceptedFailures{RevisionReference: w.revision("p"), FailedNodeCount: 1}
	})
	w.rolls("p", 10*time.Minute, because(names.ReasonComplete))
	assert.Len(t, w.have("cpx"), 3)
}

func TestAPlanThatStopsGoesBack(t *testing.T) {
	w := planned(t, 3)
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) { s.Strategy.OnFailure = v1beta1.OnFailureUndo })
	w.rolls("p", 5*time.Minute, because(names.ReasonComplete))
	good := w.gpuNode("node-1").Status.Applied.Hash
	w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
	w.rolls("p", time.Minute, func(s *v1beta1.PartitionPlanStatus) bool {
		return ptr.Equal(s.TargetRevision, ptr.To[int64](2)) && s.NodeCounts.Updated == 1
	})
	// A GPU of the node that was switched becomes unhealthy.
	n := w.nodes["node-0"]
	n.unhealthy = []v1beta1.UnhealthyGPU{{Name: gpuA, DetectionTime: metav1.NewTime(w.clock.Now())}}
	s := w.rolls("p", 5*time.Minute, because(names.ReasonUndone))
	assert.Equal(t, ptr.To[int64](1), s.TargetRevision)
	assert.True(t, s.History[0].Rejected)
	for _, name := range w.have("cpx") {
		assert.Equal(t, good, w.gpuNode(name).Status.Applied.Hash)
	}
	assert.Len(t, w.have("cpx"), 3)
}

// A controller that starts goes on where a plan waits for a person, and where one has undone it.
func TestTheControllerOfAPlanKilledWhileItWaits(t *testing.T) {
	w := planned(t, 3)
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Strategy.Steps = []v1beta1.RolloutStep{{Nodes: intstr.FromInt32(1), Approval: true}}
	})
	w.rolls("p", 5*time.Minute, because(names.ReasonWaitsForApproval))
	w.startController()
	w.passes(30, time.Second, "")
	assert.Equal(t, names.ReasonWaitsForApproval, progressing(w.planStatus("p")))
	assert.Len(t, w.have("cpx"), 1)
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Approved = &v1beta1.StepApproval{RevisionReference: w.revision("p"), Step: 1}
	})
	w.startController()
	w.rolls("p", 5*time.Minute, because(names.ReasonComplete))
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Rejected = &v1beta1.RejectedRevision{RevisionReference: w.revision("p")}
	})
	w.all()
	w.startController()
	w.passes(60, time.Second, "")
	assert.Empty(t, w.have("cpx"))
	for name := range w.nodes {
		assert.Len(t, w.gpuNode(name).Status.History, 3, "%s: the default, the plan's and the default again", name)
	}
}

func TestWhatHasPrecedenceOverAPlan(t *testing.T) {
	w := planned(t, 4)
	w.wants("node-0", "spx")
	w.changeNode("node-3", func(n *corev1.Node) { n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} })
	g := w.gpuNode("node-1")
	g.Spec.Paused = true
	require.NoError(t, w.api.Update(t.Context(), g))
	w.plan("p", func(*v1beta1.PartitionPlanSpec) {})
	s := w.rolls("p", 5*time.Minute, because(names.ReasonComplete))
	assert.Equal(t, v1beta1.PlanNodeCounts{Selected: 3, Updated: 1, Overridden: 2}, s.NodeCounts)
	assert.Equal(t, []string{"node-2"}, w.have("cpx"))
	c := meta.FindStatusCondition(w.gpuNode("node-0").Status.Conditions, names.ConditionOverridden)
	assert.Equal(t, names.ReasonPlanOverridden, c.Reason)
	assert.Equal(t, "the node's label tranche.dev/profile=spx names spx, and has precedence over PartitionPlan p, which names cpx", c.Message)
	// A label that is set later is obeyed, too.
	w.wants("node-2", "spx")
	w.rolls("p", 5*time.Minute, func(s *v1beta1.PartitionPlanStatus) bool {
		return s.NodeCounts.Overridden == 3 && len(w.have("spx")) == 2
	})
	w.wants("node-2", "")
	// Without the label the plan applies.
	w.wants("node-0", "")
	w.rolls("p", 5*time.Minute, func(s *v1beta1.PartitionPlanStatus) bool { return s.NodeCounts.Updated == 2 })
	assert.Equal(t, []string{"node-0", "node-2"}, w.have("cpx"))
}

func TestTwoPlansForOneNode(t *testing.T) {
	w := planned(t, 2)
	w.label("node-1", "rack", "b")
	w.plan("all", func(*v1beta1.PartitionPlanSpec) {})
	w.clock.Step(time.Second)
	w.plan("rack", func(s *v1beta1.PartitionPlanSpec) {
		s.ProfileName, s.Priority, s.NodeSelector = "spx", 1, &v1beta1.NodeSelector{MatchLabels: map[string]string{"rack": "b"}}
	})
	w.rolls("rack", time.Minute, because(names.ReasonComplete))
	s := w.rolls("all", time.Minute, because(names.ReasonComplete))
	assert.Equal(t, int32(1), s.NodeCounts.Selected)
	assert.Equal(t, []string{"node-1"}, w.have("spx"))
	// The other one takes over when the first is gone.
	require.NoError(t, w.api.Delete(t.Context(), &v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: "rack"}}))
	w.rolls("all", time.Minute, func(s *v1beta1.PartitionPlanStatus) bool { return s.NodeCounts.Updated == 2 })
	assert.Len(t, w.have("cpx"), 2)
}

func TestANodeThatJoins(t *testing.T) {
	w := planned(t, 2)
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {})
	w.rolls("p", time.Minute, because(names.ReasonComplete))
	w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) { s.Paused = true })
	w.all()
	w.addNode("node-2")
	w.run("node-2", time.Minute, inProfile("cpx"))
	s := w.rolls("p", time.Minute, func(s *v1beta1.PartitionPlanStatus) bool { return s.NodeCounts.Selected == 3 })
	assert.Equal(t, names.ReasonPaused, progressing(s), "it gets its profile in spite of that")
}

func TestADrainThatIsBlockedHoldsNothing(t *testing.T) {
	w := planned(t, 3)
	w.pod("node-0", "web", gpuA, gpuA)
	w.blocks(refuse("no"))
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Strategy.Order = v1beta1.NodeOrder{By: v1beta1.OrderByLabel, LabelKey: "none"}
	})
	s := w.rolls("p", 5*time.Minute, because(names.ReasonBlocked))
	assert.Equal(t, []string{"node-1", "node-2"}, w.have("cpx"))
	assert.Equal(t, names.ReasonDrainBlocked, s.SetAsideNodes[0].Reason)
	assert.Nil(t, s.Stopped)
	w.blocks(nil)
	w.rolls("p", time.Hour, because(names.ReasonComplete))
}

// The controller dies after each of its writes; no pod is evicted twice, and no more nodes are
// on their way than may be.
func TestTheControllerOfAPlanKilledAtEachWrite(t *testing.T) {
	each := short.Of(4, 1)
	for at := 0; ; at += each {
		w := planned(t, 3)
		w.pod("node-0", "web", gpuA, gpuA)
		w.plan("p", func(s *v1beta1.PartitionPlanSpec) { s.Strategy.Steps = steps(5*time.Second, "1") })
		writes, killed := 0, false
		w.lose = func() error {
			if writes++; writes == at+1 {
				killed = true
				w.refuse = func(string, client.Object) error { return errors.New("dead") }
				return errors.New("dead")
			}
			return nil
		}
		w.rolls("p", 10*time.Minute, func(s *v1beta1.PartitionPlanStatus) bool {
			if killed && w.refuse != nil {
				w.refuse, w.lose = nil, nil
				w.startController()
			}
			return progressing(s) == names.ReasonComplete
		})
		assert.Equal(t, 1, w.writes["eviction *v1.Pod"], "write %d", at)
		assert.Equal(t, 1, w.budgetSeen, "write %d", at)
		switches := []v1beta1.SwitchRecord{w.gpuNode("node-0").Status.History[0], w.gpuNode("node-1").Status.History[0], w.gpuNode("node-2").Status.History[0]}
		slices.SortFunc(switches, func(a, b v1beta1.SwitchRecord) int { return a.StartTime.Compare(b.StartTime.Time) })
		canary := switches[0].StartTime.Add(switches[0].Duration.Duration)
		assert.GreaterOrEqual(t, switches[1].StartTime.Sub(canary), 5*time.Second, "the soak, write %d", at)
		if !killed {
			require.Greater(t, at, 10)
			return
		}
	}
}

// refusePlans has somebody's policy refuse the status of plans.
func refusePlans(verb string, o client.Object) error {
	if _, ok := o.(*v1beta1.PartitionPlan); ok && verb == "status" {
		return apierrors.NewForbidden(v1beta1.GroupVersion.WithResource("partitionplans").GroupResource(), o.GetName(), assert.AnError)
	}
	return nil
}

func TestAPlanWhoseStatusIsRefusedBeginsNothing(t *testing.T) {
	w := planned(t, 2)
	w.refuse = refusePlans
	w.plan("p", func(*v1beta1.PartitionPlanSpec) {})
	w.passes(10, time.Second, "")
	assert.Empty(t, w.have("cpx"))
	w.refuse = nil
	w.rolls("p", 5*time.Minute, because(names.ReasonComplete))
}

// More nodes fail with a profile that has no plan than may.
func TestNodesWithoutAPlanStopToo(t *testing.T) {
	w := planned(t, 3)
	for i := range 3 {
		w.nodes[fmt.Sprintf("node-%d", i)].answer = applyingEnds(v1beta1.TaskFailed, names.ReasonHardwareFailed, "EIO")
		w.wants(fmt.Sprintf("node-%d", i), "cpx")
	}
	w.passes(30, time.Second, "")
	assert.Len(t, w.have(names.DefaultProfile), 2)
	g := w.gpuNode("node-2")
	c := meta.FindStatusCondition(g.Status.Conditions, names.ConditionRolloutPending)
	require.NotNil(t, c)
	assert.Equal(t, names.ReasonTooManyFailures, c.Reason)
	assert.Equal(t, "more nodes failed with profile cpx than may (the chart's controller.maxFailures: 0): node-0: HardwareFailed", c.Message)
	w.wants("node-0", "")
	for _, n := range w.nodes {
		n.answer = nil
	}
	w.run("node-0", time.Minute, inProfile(names.DefaultProfile))
	w.run("node-1", time.Minute, inProfile("cpx"))
	w.run("node-2", time.Minute, inProfile("cpx"))
}

// A node that waits for its turn, and then is to keep what it has, holds nobody's place.
func TestANodeThatKeepsItsProfileHoldsNoPlace(t *testing.T) {
	for name, keep := range map[string]func(*world){
		"paused": func(w *world) {
			g := w.gpuNode("node-1")
			g.Spec.Paused = true
			require.NoError(t, w.api.Update(t.Context(), g))
		},
		"profile deleted": func(w *world) {
			require.NoError(t, w.api.Delete(t.Context(), &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "spx"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := planned(t, 3)
			w.pod("node-0", "web", gpuA, gpuA)
			w.wants("node-0", "cpx")
			w.run("node-0", time.Minute, func(g *v1beta1.GPUNode) bool { return g.Status.State == v1beta1.Draining })
			w.wants("node-1", "spx")
			w.round("node-1")
			keep(w)
			w.round("node-1")
			w.run("node-0", time.Minute, inProfile("cpx"))
			w.passes(5, time.Second, "")
			w.wants("node-2", "cpx")
			w.run("node-2", time.Minute, inProfile("cpx"))
			assert.Equal(t, []string{"node-1"}, w.have(names.DefaultProfile))
		})
	}
}

// A node whose label names what does not exist keeps its profile, and holds no place of its plan.
func TestANodeOfAPlanWhoseLabelCannotBeFollowed(t *testing.T) {
	w := planned(t, 3)
	w.opts.Labels.Projects = map[adopt.Project]adopt.ConfigMap{adopt.MIGParted: migConfigs}
	w.configMap(migConfigs, migConfig)
	w.startController()
	w.label("node-0", names.LabelMIGConfig, "none")
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.Strategy.Order = v1beta1.NodeOrder{By: v1beta1.OrderByLabel, LabelKey: "none"}
	})
	s := w.rolls("p", 5*time.Minute, because(names.ReasonBlocked))
	assert.Equal(t, []string{"node-1", "node-2"}, w.have("cpx"))
	require.Len(t, s.SetAsideNodes, 1)
	assert.Equal(t, names.ReasonProfileNotFound, s.SetAsideNodes[0].Reason)
	assert.Contains(t, s.SetAsideNodes[0].Message, "the node's label nvidia.com/mig.config")
	before := w.gpuNode("node-0").ResourceVersion
	w.passes(10, time.Minute, "")
	assert.Equal(t, before, w.gpuNode("node-0").ResourceVersion, "nothing is admitted again and again")
	w.label("node-0", names.LabelMIGConfig, "")
	w.rolls("p", time.Minute, because(names.ReasonComplete))
}

// A plan whose status cannot be written keeps the next controller from nothing else.
func TestAPlanThatIsRefusedHoldsUpNoOther(t *testing.T) {
	w := planned(t, 2)
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.NodeSelector = &v1beta1.NodeSelector{MatchLabels: map[string]string{"none": ""}}
	})
	w.refuse = refusePlans
	w.startController()
	w.wants("node-0", "cpx")
	w.run("node-0", time.Minute, inProfile("cpx"))
}

// A selector that became invalid takes no node from its plan.
func TestAnInvalidSelectorKeepsItsNodes(t *testing.T) {
	w := planned(t, 2)
	w.label("node-0", "pool", "a")
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.NodeSelector = &v1beta1.NodeSelector{MatchLabels: map[string]string{"pool": "a"}}
	})
	w.rolls("p", time.Minute, because(names.ReasonComplete))
	w.plan("p", func(s *v1beta1.PartitionPlanSpec) {
		s.NodeSelector.MatchExpressions = []v1beta1.NodeRequirement{{Key: "pool", Operator: "in", Values: []string{"a"}}}
	})
	s := w.rolls("p", time.Minute, because(names.ReasonInvalidSelector))
	w.passes(5, time.Second, "")
	assert.EqualValues(t, 1, s.NodeCounts.Selected)
	assert.Equal(t, []string{"node-0"}, w.have("cpx"))
}
