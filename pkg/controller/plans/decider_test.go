package plans

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// A plan switches one node after another; nothing is written twice.
func TestAPlanNodeByNode(t *testing.T) {
	w := newWorld(t, 2)
	w.plan("p")
	require.NoError(t, w.d.Begin(t.Context()))
	require.NoError(t, w.requireDecision("begun"))
	assert.EqualValues(t, 1, w.d.Plans()[0].Status.Revision)
	version, reader := w.gpuNode("node-0").ResourceVersion, w.d.Reader
	w.d.Reader = nil // nothing begins, so the caches are enough
	_, err := w.decide()
	require.NoError(t, err)
	w.d.Reader = reader
	assert.Equal(t, version, w.gpuNode("node-0").ResourceVersion)

	w.getsCPX("node-0", "p")
	w.clock.Step(time.Minute)
	require.NoError(t, w.requireDecision("next"))
	w.getsCPX("node-1", "p")
	w.clock.Step(time.Minute)
	require.NoError(t, w.requireDecision("complete"))
}

// Counts are written at most every few seconds, what begins at once.
func TestCountsAreWrittenLater(t *testing.T) {
	w := newWorld(t, 3)
	w.plan("p")
	_, err := w.decide()
	require.NoError(t, err)
	w.getsCPX("node-2", "p") // not by the plan
	w.change("node-2", func(s *v1beta1.GPUNodeStatus) {
		s.History = []v1beta1.SwitchRecord{{ToProfileName: "cpx", Result: v1beta1.ResultSucceeded, StartTime: metav1.NewMicroTime(noon), Duration: metav1.Duration{Duration: time.Second}}}
	})
	w.clock.Step(countsInterval - time.Second)
	require.NoError(t, w.requireDecision("counts-wait"))
	w.clock.Step(time.Second)
	require.NoError(t, w.requireDecision("counts-written"))
}

// Who has precedence over a plan, and what it does not select.
func TestWhatAPlanSelects(t *testing.T) {
	w := newWorld(t, 1)
	w.node(gpunodes.WithProfile("named", "spx"), nil)
	w.node(gpunodes.WithProfile("control-plane", ""), map[string]string{"node-role.kubernetes.io/control-plane": ""})
	w.node(gpunodes.WithProfile("rack-b", ""), map[string]string{"rack": "b"})
	w.change("named", func(s *v1beta1.GPUNodeStatus) { s.RequestedHash = "hash-new" })
	w.create(&gpunodes.WithProfile("no-node", "").GPUNode)
	for _, name := range []string{"silent", "no-gpus"} {
		w.create(&v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.change("no-gpus", func(s *v1beta1.GPUNodeStatus) { s.Node = &v1beta1.NodeReport{} })
	w.node(gpunodes.WithProfile("kept", ""), nil)
	w.d.SetProblem("kept", names.ReasonProfileNotFound, "the label names nothing")
	w.plan("all")
	w.plan("before", func(p *v1beta1.PartitionPlan) {
		p.Spec.Priority, p.Spec.NodeSelector = 1, &v1beta1.NodeSelector{MatchLabels: map[string]string{"rack": "b"}}
	})
	w.plan("deleted", func(p *v1beta1.PartitionPlan) {
		p.Spec.Priority, p.Finalizers = 2, []string{"example.com/keep"}
	})
	require.NoError(t, w.api.Delete(t.Context(), &v1beta1.PartitionPlan{ObjectMeta: metav1.ObjectMeta{Name: "deleted"}}))
	w.plan("invalid", func(p *v1beta1.PartitionPlan) {
		p.Spec.Priority = 3
		p.Spec.NodeSelector = &v1beta1.NodeSelector{MatchExpressions: []v1beta1.NodeRequirement{{Key: "rack", Operator: "in", Values: []string{"b"}}}}
	})
	w.change("rack-b", func(s *v1beta1.GPUNodeStatus) { s.Desired.PlanName = "before" })
	require.NoError(t, w.requireDecision("selected"))
	given := func(name string, labels map[string]string) string {
		if g := w.d.Of(w.gpuNode(name), labels); g != nil {
			return g.Plan + " " + g.Profile
		}
		return ""
	}
	assert.Equal(t, "all cpx", given("node-0", nil))
	assert.Equal(t, "before cpx", given("rack-b", map[string]string{"rack": "b"}))
	assert.Empty(t, given("control-plane", map[string]string{"node-role.kubernetes.io/control-plane": ""}))
	w.change("node-0", func(s *v1beta1.GPUNodeStatus) { s.Desired.PlanName = "invalid" })
	assert.Equal(t, "invalid cpx", given("node-0", nil), "it keeps the nodes that it has")

	// What was wrong with the label is corrected, and another node leaves its rack.
	w.d.SetProblem("kept", "", "")
	require.NoError(t, w.api.Update(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rack-b"}}))
	w.clock.Step(time.Minute)
	require.NoError(t, w.requireDecision("selected-kept"))
}

// Nodes without a plan take turns, too.
func TestNodesWithoutAPlan(t *testing.T) {
	w := newWorld(t, 3)
	for _, name := range []string{"node-0", "node-1"} {
		w.change(name, func(s *v1beta1.GPUNodeStatus) { s.RequestedHash = "hash-new" })
	}
	require.NoError(t, w.requireDecision("without-a-plan"))
	moving, limit := w.d.Switching()
	assert.Equal(t, [2]int{1, 1}, [2]int{moving, limit})
	// Who gives up its wish loses its place, before another one gets it.
	w.change("node-0", func(s *v1beta1.GPUNodeStatus) { s.RequestedHash = "" })
	var written []string
	w.lost = func(o runtime.Object) error {
		written = append(written, o.(client.Object).GetName())
		return nil
	}
	require.NoError(t, w.requireDecision("without-a-plan-next"))
	assert.Equal(t, []string{"node-0", "node-1"}, written)
	// Those that are to have the same hear that one has failed.
	w.change("node-1", func(s *v1beta1.GPUNodeStatus) {
		*s = gpunodes.WithProfile("node-1", "").GPUs(gpunodes.XCP("SPX", ""), "gpu-0").Fails("new", names.ReasonHardwareFailed, "no", false).Status
		s.History[0].Result = v1beta1.ResultRolledBack
	})
	require.NoError(t, w.requireDecision("without-a-plan-stopped"))
}

func forbid(kind client.Object, verb string) func(string, runtime.Object) error {
	gvk := func(o runtime.Object) string {
		switch o.(type) {
		case *v1beta1.GPUNode:
			return "gpunodes"
		case *v1beta1.PartitionPlan:
			return "partitionplans"
		case *v1beta1.PartitionProfile:
			return "partitionprofiles"
		}
		return ""
	}
	return func(v string, o runtime.Object) error {
		if v != verb || gvk(o) != gvk(kind) {
			return nil
		}
		return apierrors.NewForbidden(v1beta1.Resource(gvk(o)), "x", errors.New("no"))
	}
}

// While the profile of a plan cannot be read, nodes that were admitted stay so, and no other is.
func TestProfileThatCannotBeRead(t *testing.T) {
	w := newWorld(t, 2)
	w.plan("p")
	_, err := w.decide()
	require.NoError(t, err)
	w.refuse = forbid(&v1beta1.PartitionProfile{}, "get")
	require.Error(t, w.requireDecision("profile-unreadable"))
	assert.Equal(t, hashOfCPX(), w.gpuNode("node-0").Status.AdmittedHash)

	w = newWorld(t, 1)
	w.plan("p")
	w.d.Reader = unreadable{w.api, "*v1beta1.PartitionPlan"}
	_, err = w.decide()
	require.EqualError(t, err, "read PartitionPlan p: no answer")
	assert.Empty(t, w.gpuNode("node-0").Status.AdmittedHash)
}

func TestProfileThatDoesNotExist(t *testing.T) {
	w := newWorld(t, 1)
	w.plan("p", func(p *v1beta1.PartitionPlan) { p.Spec.ProfileName = "none" })
	require.NoError(t, w.requireDecision("profile-missing"))
}

// A cache that is late begins nothing.
func TestOldProfileInTheCache(t *testing.T) {
	w := newWorld(t, 2)
	w.plan("p")
	old := w.d.Client
	w.d.Client = staleProfiles{Client: old}
	err := w.requireDecision("profile-old")
	require.ErrorIs(t, err, ErrOutdated)
	w.d.Client = old
	_, err = w.decide()
	require.NoError(t, err)
	assert.Equal(t, hashOfCPX(), w.gpuNode("node-0").Status.AdmittedHash)

	// Nor does it in the middle of a rollout.
	w.getsCPX("node-0", "p")
	w.d.Client = staleProfiles{old, cpx}
	var profile v1beta1.PartitionProfile
	require.NoError(t, w.api.Get(t.Context(), client.ObjectKey{Name: "cpx"}, &profile))
	profile.Spec.Rules = nil
	require.NoError(t, w.api.Update(t.Context(), &profile))
	_, err = w.decide()
	require.ErrorIs(t, err, ErrOutdated)
	assert.Empty(t, w.gpuNode("node-1").Status.AdmittedHash)
}

// The plan is changed between two looks: what was read last counts.
func TestOldPlanInTheCache(t *testing.T) {
	w := newWorld(t, 1)
	w.plan("p")
	require.NoError(t, w.d.list(t.Context()))
	w.freezeCaches()
	var p v1beta1.PartitionPlan
	require.NoError(t, w.api.Get(t.Context(), client.ObjectKey{Name: "p"}, &p))
	p.Spec.Paused = true
	require.NoError(t, w.api.Update(t.Context(), &p))
	require.NoError(t, w.requireDecision("plan-old"))
}

func TestWritesThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		refuse   func(string, runtime.Object) error
		outdated bool
	}{
		"plan-refused": {refuse: forbid(&v1beta1.PartitionPlan{}, "write")},
		"node-refused": {refuse: forbid(&v1beta1.GPUNode{}, "write")},
		"node-lost": {refuse: func(verb string, o runtime.Object) error {
			if _, ok := o.(*v1beta1.GPUNode); ok && verb == "write" {
				return errors.New("the answer was lost")
			}
			return nil
		}},
		"plan-conflict": {func(verb string, o runtime.Object) error {
			if p, ok := o.(*v1beta1.PartitionPlan); ok && verb == "write" {
				return apierrors.NewConflict(v1beta1.Resource("partitionplans"), p.Name, errors.New("changed"))
			}
			return nil
		}, true},
		"node-conflict": {func(verb string, o runtime.Object) error {
			if g, ok := o.(*v1beta1.GPUNode); ok && verb == "write" {
				return apierrors.NewConflict(v1beta1.Resource("gpunodes"), g.Name, errors.New("changed"))
			}
			return nil
		}, true},
		"nodes-unlisted": {refuse: func(verb string, o runtime.Object) error {
			if _, ok := o.(*corev1.NodeList); ok {
				return errors.New("no answer")
			}
			return nil
		}},
		"plans-unlisted": {refuse: func(verb string, o runtime.Object) error {
			if _, ok := o.(*v1beta1.PartitionPlanList); ok {
				return errors.New("no answer")
			}
			return nil
		}},
		"gpunodes-unlisted": {refuse: func(verb string, o runtime.Object) error {
			if _, ok := o.(*v1beta1.GPUNodeList); ok {
				return errors.New("no answer")
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.plan("p")
			w.refuse = test.refuse
			err := w.requireDecision(name)
			require.Error(t, err)
			assert.Equal(t, test.outdated, errors.Is(err, ErrOutdated))

			// When it works again, a node begins.
			w.refuse = nil
			w.clock.Step(suspendedFor)
			_, err = w.decide()
			require.NoError(t, err)
			admitted := 0
			for _, node := range []string{"node-0", "node-1"} {
				if w.gpuNode(node).Status.AdmittedHash == hashOfCPX() {
					admitted++
				}
			}
			assert.Equal(t, 1, admitted)
			assert.NoError(t, w.d.Begin(t.Context()))
		})
	}
}

// What was decided counts until the caches have it, also if nobody has heard that it was written.
func TestLateCaches(t *testing.T) {
	for name, test := range map[string]struct {
		kind string
		err  error
	}{
		"written":            {},
		"not heard":          {"*v1beta1.GPUNode", errors.New("the answer was lost")},
		"written by a retry": {"*v1beta1.GPUNode", apierrors.NewConflict(v1beta1.Resource("gpunodes"), "node-0", errors.New("changed"))},
		"a plan, not heard":  {"*v1beta1.PartitionPlan", errors.New("the answer was lost")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.plan("p")
			w.freezeCaches()
			w.lost = func(o runtime.Object) error {
				if fmt.Sprintf("%T", o) == test.kind {
					return test.err
				}
				return nil
			}
			w.d.Reader = unreadable{w.api, "*v1beta1.GPUNode"}
			_, err := w.decide()
			require.ErrorIs(t, err, test.err)
			w.lost, w.d.Reader = nil, w.api
			for _, after := range []time.Duration{time.Second, suspendedFor} {
				w.clock.Step(after)
				_, err = w.decide()
				require.NoError(t, err)
			}
			assert.Equal(t, []string{hashOfCPX(), ""}, []string{w.gpuNode("node-0").Status.AdmittedHash, w.gpuNode("node-1").Status.AdmittedHash})
		})
	}
}

// A plan that was undone and gives nothing selects no nodes any more.
func TestAPlanThatGivesNothing(t *testing.T) {
	w := newWorld(t, 1)
	w.plan("p")
	_, err := w.decide()
	require.NoError(t, err)
	p := w.d.Plans()[0].DeepCopy()
	p.Spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: p.Status.History[0].RevisionReference}
	require.NoError(t, w.api.Update(t.Context(), p))
	require.NoError(t, w.requireDecision("undone"))
	assert.Nil(t, w.d.Of(w.gpuNode("node-0"), nil))
}

// A node whose status cannot be written is left out until its time is over, and then is woken.
func TestSuspendedNode(t *testing.T) {
	w := newWorld(t, 1)
	w.plan("p")
	w.d.Suspend("node-0")
	assert.Equal(t, 1, w.again)
	require.NoError(t, w.requireDecision("suspended"))
	w.change("node-0", func(s *v1beta1.GPUNodeStatus) { s.AdmittedHash = hashOfCPX() })
	assert.False(t, w.d.mayBegin(w.gpuNode("node-0"), hashOfCPX()), "whatever its status says")
	w.clock.Step(suspendedFor)
	require.NoError(t, w.requireDecision("resumed"))
	assert.True(t, w.d.mayBegin(w.gpuNode("node-0"), hashOfCPX()))
}

// The first decision is made once, and not without the API server.
func TestBegin(t *testing.T) {
	w := newWorld(t, 1)
	w.d.Reader = failing{w.api}
	require.ErrorContains(t, w.d.Begin(t.Context()), "list the GPUNodes: no answer")
	assert.False(t, w.d.Decided())
	w.d.Reader = w.api
	require.NoError(t, w.d.Begin(t.Context()))
	assert.True(t, w.d.Decided())
	assert.Equal(t, 1, w.again)
	w.d.Reader = failing{w.api}
	require.NoError(t, w.d.Begin(t.Context()))
	assert.Equal(t, 1, w.again)
}

func TestProblemsAreToldOnce(t *testing.T) {
	w := newWorld(t, 1)
	for _, step := range []struct {
		reason string
		again  int
	}{{"", 0}, {"A", 1}, {"A", 1}, {"B", 2}, {"", 3}, {"", 3}} {
		w.d.SetProblem("node-0", step.reason, "")
		assert.Equal(t, step.again, w.again, step.reason)
	}
	assert.Empty(t, w.d.problems)
	w.d.SetProblem("gone", "A", "")
	_, err := w.decide()
	require.NoError(t, err)
	assert.Equal(t, map[string]state.Pending{}, w.d.problems)
}

// A node that is gone is forgotten.
func TestSuspendedNodeThatIsGone(t *testing.T) {
	w := newWorld(t, 1)
	w.d.Suspend("node-9")
	_, err := w.decide()
	require.NoError(t, err)
	assert.Empty(t, w.d.suspended)
}
