package switchover

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// refuse is what the API server says to an eviction that a budget forbids.
func refuse(message string) func(types.NamespacedName) error {
	return func(types.NamespacedName) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Message: "Cannot evict pod as it would violate the pod's disruption budget.",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: message}}},
		}}
	}
}

// begun is a world with a node that follows the profile old, a profile cpx, and a pod on its
// first card.
func begun(t *testing.T, change ...func(*v1alpha1.PartitionProfile)) (*world, *fakeNode) {
	w := newWorld(t)
	n := w.addNode("node-a")
	w.profile("old")
	w.wants("node-a", "old")
	w.settled("node-a", "old")
	w.profile("cpx", change...)
	w.pod("node-a", "web", cardA, cardA+deviceOf)
	return w, n
}

// stays checks that a node has ended in its old profile.
func (w *world) stays(n *v1alpha1.GPUNode, profile string) {
	w.t.Helper()
	w.clean(n.Name)
	require.NotNil(w.t, n.Status.Applied)
	assert.Equal(w.t, profile, n.Status.Applied.Profile)
	assert.Equal(w.t, n.Status.Applied.Hash, w.nodes[n.Name].applied, "the hardware")
}

func TestAProfileThatDoesNotExist(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpc")
	w.round("node-a")
	n := w.gpuNode("node-a")
	assert.Equal(t, v1alpha1.Idle, n.Status.State)
	assert.Equal(t, ReasonProfileNotFound, ready(n).Reason)
	assert.Equal(t, "the node's label tranche.dev/profile names the PartitionProfile cpc, which there is not; there are: cpx, old; it stays with profile old", ready(n).Message)
	w.stays(n, "old")
	assert.True(t, w.podThere("web"))

	w.profile("cpc")
	w.stays(w.run("node-a", time.Minute, inProfile("cpc")), "cpc")
}

func TestAProfileThatDoesNotFitTheCard(t *testing.T) {
	w, node := begun(t)
	node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
		return v1alpha1.TaskRefused, v1alpha1.ReasonProfileDoesNotFit, cardA + ": an H100 has no profile 9g"
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.True(t, w.podThere("web"), "nothing was touched")
	assert.Equal(t, v1alpha1.ReasonProfileDoesNotFit, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "no profile 9g")
	assert.Contains(t, ready(n).Message, "tried again when the profile, its policy or the cards change")

	for range 100 {
		w.round("node-a")
		w.clock.Step(time.Minute)
	}
	assert.Equal(t, n.Status.Switch.ID, w.gpuNode("node-a").Status.Switch.ID, "not tried again")

	node.answer = nil
	w.profile("cpx", func(p *v1alpha1.PartitionProfile) { p.Spec.Rules = nil })
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

func TestLabelAndSpecThatDisagree(t *testing.T) {
	w, _ := begun(t)
	n := w.gpuNode("node-a")
	n.Spec.Profile = "cpx"
	require.NoError(t, w.api.Update(t.Context(), n))
	w.round("node-a")
	n = w.gpuNode("node-a")
	w.stays(n, "old")
	c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionOverruled)
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, "the node's label tranche.dev/profile=old holds; spec.profile cpx of the GPUNode does not, until the label is taken off", c.Message)

	w.wants("node-a", "")
	n = w.run("node-a", time.Minute, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.Equal(t, v1alpha1.FromSpec, n.Status.Applied.Source)
	assert.True(t, meta.IsStatusConditionFalse(n.Status.Conditions, v1alpha1.ConditionOverruled))
}

func TestAPodThatToleratesEverythingAndNeverLeaves(t *testing.T) {
	w, _ := begun(t)
	require.NoError(t, w.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}))
	w.pod("node-a", "stuck", cardA, cardA, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		p.Finalizers = []string{"example.com/never"}
		c.Status.Allocation.Devices.Results[0].Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	})
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, ReasonDrainDeadline, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "pod team/stuck ("+cardA+") is ending, and finalizers keep it: example.com/never")
	assert.Contains(t, ready(n).Message, "The node is as before, with profile old. Try 2 begins at 12:1")
	assert.Equal(t, 1, w.writes["eviction *v1.Pod"], "it is not evicted twice")
}

func TestABudgetThatForbidsEviction(t *testing.T) {
	w, _ := begun(t)
	w.evict = refuse("The disruption budget web needs 1 healthy pods and has 1 currently")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.True(t, w.podThere("web"))
	assert.Equal(t, ReasonDrainDeadline, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "The disruption budget web needs 1 healthy pods")
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "node-a Warning DrainDeadline: profile cpx could not be reached")

	w.evict = nil
	n = w.run("node-a", time.Hour, inProfile("cpx"))
	w.stays(n, "cpx")
}

func TestABudgetThatForbidsEvictionByForce(t *testing.T) {
	w, _ := begun(t, func(p *v1alpha1.PartitionProfile) {
		p.Spec.Switch = &v1alpha1.SwitchPolicy{AfterDeadline: v1alpha1.Force, DrainDeadline: &metav1.Duration{Duration: time.Minute}}
	})
	w.evict = refuse("The disruption budget web needs 1 healthy pods and has 1 currently")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.False(t, w.podThere("web"))
	assert.Equal(t, 1, w.writes["delete *v1.Pod"])
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "web Normal Repartitioning: Deleted after the deadline")
}

func TestThePluginGoneMidSwitch(t *testing.T) {
	for _, state := range []v1alpha1.State{v1alpha1.Planning, v1alpha1.Draining, v1alpha1.Applying, v1alpha1.Verifying} {
		t.Run(string(state), func(t *testing.T) {
			w, node := begun(t)
			w.wants("node-a", "cpx")
			if state == v1alpha1.Draining {
				w.evict = refuse("no")
			}
			node.slow = 2 * time.Second
			node.wrong = state == v1alpha1.Verifying
			w.run("node-a", time.Minute, is(state))
			node.dead = true
			w.evict = nil
			n := w.run("node-a", time.Hour, is(v1alpha1.Failed))
			w.clean("node-a")
			assert.Contains(t, []string{ReasonPluginSilent, ReasonRollbackFailed, ReasonDrainDeadline}, ready(n).Reason, ready(n).Message)
			assert.Contains(t, ready(n).Message, "Try 2 begins at")
			assert.Equal(t, metav1.ConditionFalse, ready(n).Status)

			node.dead, node.wrong = false, false
			w.stays(w.run("node-a", 2*time.Hour, inProfile("cpx")), "cpx")
		})
	}
}

func TestTheNodeRebootedMidSwitch(t *testing.T) {
	w, node := begun(t)
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Applying))
	node.dead = true
	for range 60 {
		w.round("node-a")
		w.clock.Step(time.Second)
	}
	node.dead, node.task, node.working = false, v1alpha1.Task{}, ""
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

func TestTheNodeDeletedMidSwitch(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	w.evict = refuse("no")
	w.run("node-a", time.Minute, is(v1alpha1.Draining))
	w.round("node-a")
	require.NotEmpty(t, w.rules())
	require.True(t, w.r.Budget.Has("node-a"))
	require.NoError(t, w.api.Delete(t.Context(), w.gpuNode("node-a")))
	_, err := w.r.Reconcile(t.Context(), requestFor("node-a"))
	require.NoError(t, err)
	w.clean("node-a")
	assert.False(t, w.r.Budget.Has("node-a"))
	require.NoError(t, w.api.Delete(t.Context(), w.node("node-a")))
	_, err = w.r.Reconcile(t.Context(), requestFor("node-a"))
	require.NoError(t, err)
}

func TestTheControllerKilledInEachState(t *testing.T) {
	// Each write of the controller, before and after it was obeyed, is a place to die.
	for _, fails := range []bool{false, true} {
		for _, obeyed := range []bool{false, true} {
			t.Run(fmt.Sprintf("fails=%t,obeyed=%t", fails, obeyed), func(t *testing.T) {
				place := 1
				for killedAt(t, place, fails, obeyed) {
					place++
				}
				require.Greater(t, place, 8, "there are more places than that")
			})
		}
	}
}

// killedAt kills the controller at one of its writes, and tells whether there was one.
func killedAt(t *testing.T, place int, fails, obeyed bool) bool {
	w, node := begun(t)
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm", "true")
	done := inProfile("cpx")
	if fails {
		done = is(v1alpha1.Failed)
		node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
			if s == v1alpha1.Applying {
				return v1alpha1.TaskFailed, v1alpha1.ReasonHardwareFailed, "EIO"
			}
			return "", "", ""
		}
	}
	calls, dead, killed := 0, false, false
	kill := func() error {
		if calls++; calls == place {
			dead, killed = true, true
		}
		if dead {
			return errors.New("killed")
		}
		return nil
	}
	w.refuse = func(verb string, _ client.Object) error {
		switch {
		case dead:
			return errors.New("killed")
		case verb == "get" || obeyed:
			return nil
		}
		return kill()
	}
	if obeyed {
		w.lose = kill
	}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Hour, func(n *v1alpha1.GPUNode) bool {
		if dead {
			dead, w.refuse, w.lose = false, nil, nil
			w.startController()
			w.round("node-a")
			n = w.gpuNode("node-a")
		}
		return done(n)
	})
	w.round("node-a")
	n := w.gpuNode("node-a")
	w.clean("node-a")
	assert.Equal(t, "true", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm"])
	assert.False(t, w.r.Budget.Has("node-a"))
	if fails {
		w.stays(n, "old")
	} else {
		w.stays(n, "cpx")
	}
	return killed
}

func TestANodeThatRegistersAnewIsNotSwitched(t *testing.T) {
	w, _ := begun(t)
	old := w.node("node-a")
	require.NoError(t, w.api.Delete(t.Context(), old.DeepCopy()))
	for range 10 {
		w.round("node-a")
		w.clock.Step(time.Second)
	}
	n := w.gpuNode("node-a")
	assert.Equal(t, v1alpha1.Idle, n.Status.State)
	assert.Equal(t, ReasonNodeNotFound, ready(n).Reason)
	old.ResourceVersion = ""
	require.NoError(t, w.api.Create(t.Context(), old))
	w.round("node-a")
	n = w.gpuNode("node-a")
	w.stays(n, "old")
	assert.Equal(t, ReasonApplied, ready(n).Reason)
	assert.True(t, w.podThere("web"))
}

func TestAReportInTheLastMomentCostsNoWrites(t *testing.T) {
	w, node := begun(t)
	w.wants("node-a", "cpx")
	reported := 0
	w.refuse = func(verb string, o client.Object) error {
		// The rules go, and the plugin reports before the controller has said so.
		if _, ok := o.(*resourceapi.DeviceTaintRule); ok && verb == "delete" && reported == 0 {
			reported++
			node.foreign = []string{"something"}
			node.plugin(w)
		}
		return nil
	}
	w.writes = map[string]int{}
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.Equal(t, 1, reported)
	assert.Equal(t, 1, w.writes["create *v1.DeviceTaintRule"], "%v", w.writes)
}

func TestADriverReloadThatFails(t *testing.T) {
	w, node := begun(t)
	node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
		if s == v1alpha1.Applying {
			return v1alpha1.TaskFailed, v1alpha1.ReasonHardwareFailed, "modprobe -r amdgpu: device or resource busy"
		}
		return "", "", ""
	}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.RollingBack))
	assert.NotEmpty(t, w.rules(), "the card is kept from pods while it is put back")
	n := w.run("node-a", time.Minute, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, v1alpha1.ReasonHardwareFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "profile cpx could not be reached: modprobe -r amdgpu: device or resource busy. The node is as before, with profile old. Try 2 begins at")
	assert.Equal(t, v1alpha1.ResultRolledBack, n.Status.History[0].Result)
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "node-a Warning HardwareFailed: Rolling back to profile old: modprobe")
}

func TestADriverReloadThatSilentlyKeepsTheOldMode(t *testing.T) {
	w, node := begun(t)
	node.wrong = true // the slices show something else than the plugin says
	w.wants("node-a", "cpx")
	w.run("node-a", time.Hour, is(v1alpha1.RollingBack))
	node.wrong = false
	n := w.run("node-a", time.Hour, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, ReasonNotVerified, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "the devices of "+cardA+" in the API server are not those that the plugin publishes")
}

func TestWhatWasCannotBePutBack(t *testing.T) {
	w, node := begun(t)
	node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
		if s == v1alpha1.Planning {
			return "", "", ""
		}
		return v1alpha1.TaskFailed, v1alpha1.ReasonHardwareFailed, "EIO while " + string(s)
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, ReasonRollbackFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "EIO while Applying; and profile old could not be put back: EIO while RollingBack")
	assert.NotContains(t, ready(n).Message, "as before")
}

func TestACardBusyWithAProcessOutsideKubernetes(t *testing.T) {
	w, node := begun(t)
	busy := true
	node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
		if busy && s == v1alpha1.Applying {
			return v1alpha1.TaskFailed, v1alpha1.ReasonInUse, cardA + " is used by process 4711 (python3)"
		}
		return "", "", ""
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, v1alpha1.ReasonInUse, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "process 4711 (python3)")
	busy = false
	n = w.run("node-a", 10*time.Minute, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.Len(t, n.Status.History, 3)
}

func TestTheAPIServerAwayForAMinute(t *testing.T) {
	for _, state := range []v1alpha1.State{v1alpha1.Planning, v1alpha1.Draining, v1alpha1.Applying, v1alpha1.Verifying, v1alpha1.RollingBack} {
		t.Run(string(state), func(t *testing.T) {
			w, node := begun(t)
			node.slow = time.Second
			if state == v1alpha1.RollingBack {
				node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
					if s == v1alpha1.Applying {
						return v1alpha1.TaskFailed, v1alpha1.ReasonHardwareFailed, "EIO"
					}
					return "", "", ""
				}
			}
			node.wrong = state == v1alpha1.Verifying
			w.wants("node-a", "cpx")
			w.run("node-a", time.Minute, is(state))
			node.wrong = false
			back := w.clock.Now().Add(time.Minute)
			w.refuse = func(string, client.Object) error {
				if w.clock.Now().Before(back) {
					return apierrors.NewServiceUnavailable("away")
				}
				return nil
			}
			node.dead = true // it reaches nobody either
			for w.clock.Now().Before(back) {
				w.round("node-a")
				w.clock.Step(time.Second)
			}
			node.dead, node.answer = false, nil
			w.stays(w.run("node-a", 10*time.Minute, inProfile("cpx")), "cpx")
		})
	}
}

func TestTheProfileChangedAgainInTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		state   v1alpha1.State
		records int
	}{{v1alpha1.Planning, 2}, {v1alpha1.Draining, 3}, {v1alpha1.Applying, 3}, {v1alpha1.Verifying, 3}} {
		t.Run(string(tt.state), func(t *testing.T) {
			w, node := begun(t)
			node.slow = time.Second
			if tt.state == v1alpha1.Draining {
				w.evict = refuse("no")
			}
			node.wrong = tt.state == v1alpha1.Verifying
			w.profile("spx")
			w.wants("node-a", "cpx")
			w.run("node-a", time.Minute, is(tt.state))
			w.wants("node-a", "spx")
			w.evict, node.wrong = nil, false
			n := w.run("node-a", time.Minute, inProfile("spx"))
			w.stays(n, "spx")
			assert.Len(t, n.Status.History, tt.records)
		})
	}
}

func TestTheProfileDeletedInTheMiddle(t *testing.T) {
	w, _ := begun(t)
	w.evict = refuse("no")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Draining))
	require.NoError(t, w.api.Delete(t.Context(), &v1alpha1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx"}}))
	w.evict = nil
	n := w.run("node-a", time.Minute, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.Equal(t, ReasonProfileNotFound, ready(n).Reason, "what is followed is not there any more")
}

func TestAPersonEditsOurTaintRule(t *testing.T) {
	for name, edit := range map[string]func(*world, *resourceapi.DeviceTaintRule) error{
		"deletes it": func(w *world, r *resourceapi.DeviceTaintRule) error { return w.api.Delete(w.t.Context(), r) },
		"selects another pool": func(w *world, r *resourceapi.DeviceTaintRule) error {
			r.Spec.DeviceSelector.Pool = ptr.To("node-b/x")
			return w.api.Update(w.t.Context(), r)
		},
		"makes it evict": func(w *world, r *resourceapi.DeviceTaintRule) error {
			r.Spec.Taint.Effect = resourceapi.DeviceTaintEffectNoExecute
			return w.api.Update(w.t.Context(), r)
		},
		"takes its labels off": func(w *world, r *resourceapi.DeviceTaintRule) error {
			r.Labels = nil
			return w.api.Update(w.t.Context(), r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := begun(t)
			w.evict = refuse("no")
			w.wants("node-a", "cpx")
			w.run("node-a", time.Minute, is(v1alpha1.Draining))
			w.round("node-a")
			want := w.rules()
			require.NoError(t, edit(w, want[0].DeepCopy()))
			w.round("node-a")
			got := w.rules()
			require.Len(t, got, 1)
			assert.Equal(t, want[0].Spec, got[0].Spec)
			assert.Equal(t, want[0].Labels, got[0].Labels)

			require.NoError(t, edit(w, got[0].DeepCopy()))
			w.evict = nil
			w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
			assert.Empty(t, w.rules())
		})
	}
}

func TestARuleOfOursByAnotherHandIsLeftAlone(t *testing.T) {
	w, _ := begun(t)
	rule := ruleOf("node-a", cardA, "x")
	rule.Labels, rule.Annotations = nil, nil
	rule.Spec.Taint.Key = "mine"
	require.NoError(t, w.api.Create(t.Context(), rule))
	w.wants("node-a", "cpx")
	n := w.run("node-a", 10*time.Minute, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, ReasonTaintFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "it is not Tranche's; give it another name")
	assert.Len(t, w.rules(), 1)
}

func TestASwitchDisabledInTheMiddle(t *testing.T) {
	w, _ := begun(t)
	w.evict = refuse("no")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Draining))
	n := w.gpuNode("node-a")
	n.Spec.Enabled = ptr.To(false)
	require.NoError(t, w.api.Update(t.Context(), n))
	n = w.run("node-a", time.Minute, is(v1alpha1.Idle))
	w.stays(n, "old")
	assert.Equal(t, metav1.ConditionTrue, ready(n).Status)
	assert.Equal(t, "spec.enabled is false, so the node keeps what is applied: it stays with profile old", ready(n).Message)
}

func TestAnotherOwner(t *testing.T) {
	w, node := begun(t)
	node.slow = 5 * time.Second
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Applying))
	node.owners = []string{"mig-manager runs on this node: take its pod off"}
	node.slow = 0
	n := w.run("node-a", time.Minute, is(v1alpha1.Idle))
	w.stays(n, "old")
	assert.Equal(t, ReasonConflict, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "mig-manager runs on this node: take its pod off")
	assert.True(t, meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionConflict))
	assert.Equal(t, v1alpha1.ResultRolledBack, n.Status.History[0].Result)

	node.owners = nil
	w.stays(w.run("node-a", time.Hour, inProfile("cpx")), "cpx")
}

func TestANodeOfTheControlPlane(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.label("node-a", controlPlaneLabel, "")
	w.changeNode("node-a", func(n *corev1.Node) { n.Labels = map[string]string{controlPlaneLabel: ""} })
	w.profile("cpx")
	w.profile("default")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Idle))
	n := w.gpuNode("node-a")
	assert.Nil(t, n.Status.Applied)
	assert.Contains(t, meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionOverruled).Message, "only the GPUNode's spec.profile counts")

	n.Spec.Profile = "cpx"
	require.NoError(t, w.api.Update(t.Context(), n))
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

func TestARebootWhereItIsAllowed(t *testing.T) {
	w, node := begun(t, func(p *v1alpha1.PartitionProfile) {
		p.Spec.Switch = &v1alpha1.SwitchPolicy{Reboot: v1alpha1.RebootAllowed}
	})
	w.pod("node-a", "second", cardB, cardB)
	node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
		if s == v1alpha1.Applying {
			return v1alpha1.TaskRebootRequired, v1alpha1.ReasonNeedsReset, cardA + " refuses a reset"
		}
		return "", "", ""
	}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Rebooting))
	assert.False(t, w.podThere("second"), "the whole node is drained")
	assert.Len(t, w.rules(), 2)
	assert.True(t, hasNodeTaint(w.node("node-a")))
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

func TestARebootWhereItIsNotAllowed(t *testing.T) {
	w, node := begun(t)
	node.answer = func(_ *v1alpha1.Switch, s v1alpha1.State) (v1alpha1.TaskPhase, string, string) {
		if s == v1alpha1.Applying {
			return v1alpha1.TaskRebootRequired, v1alpha1.ReasonNeedsReset, cardA + " refuses a reset"
		}
		return "", "", ""
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1alpha1.Failed))
	w.stays(n, "old")
	assert.Equal(t, ReasonRebootRequired, ready(n).Reason)
	assert.Nil(t, n.Status.Switch.Retry, "pods are not disturbed again for nothing")
	assert.Contains(t, ready(n).Message, "reboot: Allowed")
}

func TestLeftoversAreSweptUp(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.settled("node-a", "")
	require.NoError(t, w.api.Create(t.Context(), ruleOf("node-a", cardA, "x")))
	require.NoError(t, w.api.Create(t.Context(), ruleOf("gone", cardA, "x")))
	w.changeNode("node-a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: TaintKey, Value: "x", Effect: corev1.TaintEffectNoSchedule}}
		n.Labels = map[string]string{"nvidia.com/gpu.deploy.dcgm": PausedValue}
	})
	w.round("node-a")
	_, err := w.r.Reconcile(t.Context(), requestFor("gone"))
	require.NoError(t, err)
	w.clean("node-a")
	assert.Empty(t, w.rules())
	assert.Equal(t, "true", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm"])
}

func TestAnAnswerThatGetsLostInTheEndBlocksNoOtherNode(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Draining))
	w.lose = func() error {
		if w.tainted["node-a"] {
			return nil
		}
		w.lose = nil
		return errors.New("lost")
	}
	w.run("node-a", time.Minute, inProfile("cpx"))
	require.Nil(t, w.lose, "it was not lost")
	w.round("node-a")
	assert.False(t, w.r.Budget.Has("node-a"))
}
