package controller

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

func TestThePluginGoneMidSwitch(t *testing.T) {
	for _, state := range []v1beta1.State{v1beta1.Planning, v1beta1.Draining, v1beta1.Applying, v1beta1.Verifying} {
		t.Run(string(state), func(t *testing.T) {
			w, node := switching(t, state)
			node.dead = true
			w.evict = nil
			n := w.run("node-a", time.Hour, is(v1beta1.Failed))
			w.clean("node-a")
			assert.Contains(t, []string{names.ReasonPluginSilent, names.ReasonRollbackFailed, names.ReasonDrainDeadline}, ready(n).Reason, ready(n).Message)
			assert.Contains(t, ready(n).Message, map[bool]string{true: "It is retried when they can be evicted", false: "Attempt 2 starts at"}[state == v1beta1.Draining])
			assert.Equal(t, metav1.ConditionFalse, ready(n).Status)

			node.dead, node.wrong = false, false
			w.stays(w.run("node-a", 2*time.Hour, inProfile("cpx")), "cpx")
		})
	}
}

func TestTheNodeDeletedMidSwitch(t *testing.T) {
	w, _ := switching(t, v1beta1.Draining)
	w.round("node-a")
	require.NotEmpty(t, w.taintedGPUs("node-a"))
	require.True(t, w.busy("node-a"))
	require.NoError(t, w.api.Delete(t.Context(), w.gpuNode("node-a")))
	_, err := w.r.Reconcile(t.Context(), requestFor("node-a"))
	require.NoError(t, err)
	w.clean("node-a")
	assert.False(t, w.busy("node-a"))
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

// killedAt kills the controller at one of its writes, and reports whether there was one.
func killedAt(t *testing.T, place int, fails, obeyed bool) bool {
	w, node := begun(t)
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm", "true")
	done := inProfile("cpx")
	if fails {
		done = is(v1beta1.Failed)
		node.answer = applyingEnds(v1beta1.TaskFailed, names.ReasonHardwareFailed, "EIO")
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
	w.run("node-a", time.Hour, func(n *v1beta1.GPUNode) bool {
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
	assert.False(t, w.busy("node-a"))
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
	w.passes(10, time.Second, "node-a")
	n := w.gpuNode("node-a")
	assert.Equal(t, v1beta1.Idle, n.Status.State)
	assert.Equal(t, names.ReasonNodeNotFound, ready(n).Reason)
	old.ResourceVersion = ""
	require.NoError(t, w.api.Create(t.Context(), old))
	w.round("node-a")
	n = w.gpuNode("node-a")
	w.stays(n, "old")
	assert.Equal(t, names.ReasonApplied, ready(n).Reason)
	assert.True(t, w.podThere("web"))
}

// The taint of the node is removed, and its GPUNode changes before the controller writes that the
// switch has ended.
func TestAChangeInTheLastMomentCostsNoWrites(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a report of the plugin": func(w *world) {
			w.nodes["node-a"].foreign = []string{"something"}
			w.nodes["node-a"].plugin(w)
		},
		"a decision": func(w *world) {
			n := w.gpuNode("node-a")
			n.Status.AdmittedHash = "another"
			require.NoError(w.t, w.api.Status().Update(w.t.Context(), n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := begun(t, func(p *v1beta1.PartitionProfile) {
				p.Spec.Switch = &v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}
			})
			w.wants("node-a", "cpx")
			changed := 0
			w.refuse = func(verb string, o client.Object) error {
				if n, ok := o.(*corev1.Node); ok && verb == "patch" && !hasNodeTaint(n) && changed == 0 {
					changed++
					change(w)
				}
				return nil
			}
			w.writes = map[string]int{}
			w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
			assert.Equal(t, 1, changed)
			assert.Equal(t, 2, w.writes["patch *v1.Node"], "%v", w.writes)
		})
	}
}

func TestTheAPIServerAwayForAMinute(t *testing.T) {
	for _, state := range []v1beta1.State{v1beta1.Planning, v1beta1.Draining, v1beta1.Applying, v1beta1.Verifying, v1beta1.RollingBack} {
		t.Run(string(state), func(t *testing.T) {
			w, node := switching(t, state)
			node.wrong, w.evict = false, nil
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

func TestAnAnswerThatGetsLostInTheEndBlocksNoOtherNode(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Draining))
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
	assert.False(t, w.busy("node-a"))
}
