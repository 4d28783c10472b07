package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/golden"
)

// refuseNodes has somebody's policy refuse every change of a node but one that takes our
// taint off.
func refuseNodes(verb string, o client.Object) error {
	if n, ok := o.(*corev1.Node); ok && verb == "patch" && hasNodeTaint(n) {
		return apierrors.NewForbidden(corev1.Resource("nodes"), o.GetName(), assert.AnError)
	}
	return nil
}

func TestAStateEndsAtItsDeadlineThoughItsTaintIsRefused(t *testing.T) {
	for _, state := range []v1beta1.State{v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying, v1beta1.Verifying, v1beta1.RollingBack} {
		t.Run(string(state), func(t *testing.T) {
			w, node := switching(t, state, withNodeTaint)
			w.round("node-a")
			w.refuse = refuseNodes
			node.dead = true
			w.changeNode("node-a", func(n *corev1.Node) { n.Spec.Taints = nil })
			n := w.run("node-a", 30*time.Minute, is(v1beta1.Failed))
			w.clean("node-a")
			assert.Equal(t, w.gpuNode("node-a").Status.Node.PublishedTaints != nil, w.busy("node-a"), "the taints that its plugin publishes count")
			w.clock.Step(rollout.UntaintPatience)
			w.round("node-a")
			assert.False(t, w.busy("node-a"), "one node blocks no other")
			assert.NotEmpty(t, n.Status.Switch.Message)
		})
	}
}

func withNodeTaint(p *v1beta1.PartitionProfile) {
	p.Spec.Switch = &v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}
}

func TestATaintThatIsRefusedIsToldAndNobodyIsEvictedMeanwhile(t *testing.T) {
	w, _ := switching(t, v1beta1.Draining, withNodeTaint)
	w.round("node-a")
	w.refuse = refuseNodes
	w.changeNode("node-a", func(n *corev1.Node) { n.Spec.Taints = nil })
	w.evict = nil
	w.passes(30, time.Second, "node-a")
	assert.True(t, w.podThere("web"), "it would come back to the GPU")
	assert.True(t, apierrors.IsForbidden(w.lastErr), w.lastErr)
	assert.Contains(t, ready(w.gpuNode("node-a")).Message, "patch the taint and the labels of node node-a")
	w.refuse = nil
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

// What a round reads in which nothing has changed, and when the next one is due (0s: if something changes).
// Nothing is written.
func TestCallsOfAnotherRound(t *testing.T) {
	var got strings.Builder
	for _, state := range []v1beta1.State{v1beta1.Idle, v1beta1.Draining, v1beta1.Applying, v1beta1.Verifying, v1beta1.RollingBack, v1beta1.Failed} {
		w, _ := begun(t)
		if state != v1beta1.Idle {
			w, _ = switching(t, state, withNodeTaint)
		}
		w.round("node-a")
		calls := map[string]int{}
		w.refuse = func(verb string, o client.Object) error { calls[fmt.Sprintf("%s %T", verb, o)]++; return nil }
		w.failList = func(l client.ObjectList) error { calls[fmt.Sprintf("list %T", l)]++; return nil }
		wait := w.round("node-a")
		fmt.Fprintf(&got, "%s: %v, again in %v\n", state, calls, wait)
	}
	golden.Equal(t, "testdata/calls.txt", got.String())
}

// Whatever a round cannot read, it says so.
func TestEachReadThatFails(t *testing.T) {
	for _, state := range []v1beta1.State{v1beta1.Idle, v1beta1.Planning, v1beta1.Draining, v1beta1.Applying, v1beta1.Verifying, v1beta1.RollingBack, v1beta1.Failed} {
		t.Run(string(state), func(t *testing.T) {
			w, _ := begun(t)
			if state == v1beta1.Idle {
				w.wants("node-a", "unknown")
			} else {
				w, _ = switching(t, state, withNodeTaint)
			}
			for fails, reads := 1, 1; fails <= reads; fails++ {
				reads = 0
				var what string
				read := func(verb string, o any) error {
					if reads++; reads != fails {
						return nil
					}
					what = fmt.Sprintf("%s %T, read %d", verb, o, fails)
					return assert.AnError
				}
				w.refuse = func(verb string, o client.Object) error {
					if verb == "get" {
						return read(verb, o)
					}
					return nil
				}
				w.failList = func(l client.ObjectList) error { return read("list", l) }
				w.lastErr = nil
				w.round("node-a")
				if what != "" {
					assert.ErrorIs(t, w.lastErr, assert.AnError, what)
				}
			}
		})
	}
}

// Messages are not written more often than people read them, and are not forgotten.
func TestAMessageWaits(t *testing.T) {
	for _, wake := range []time.Time{{}, noon.Add(time.Hour), noon.Add(2 * time.Second)} {
		w, _ := begun(t)
		w.r.memory.written("node-a", noon, true)
		w.clock.SetTime(noon.Add(time.Second))
		n := w.gpuNode("node-a")
		step := state.Step{Status: *n.Status.DeepCopy(), Wake: wake}
		step.Status.Conditions[0].Message = "news"
		require.NoError(t, w.r.write(t.Context(), n, &step, false))
		assert.Equal(t, rollout.Earliest(wake, noon.Add(minMessageInterval)), step.Wake)
		assert.NotEqual(t, "news", w.gpuNode("node-a").Status.Conditions[0].Message)
		require.NoError(t, w.r.write(t.Context(), n, &step, true))
		assert.Equal(t, "news", w.gpuNode("node-a").Status.Conditions[0].Message, "urgent")
	}
}

func TestADrainEndsAtItsDeadlineThoughPodsCannotBeSeen(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	hidden := true
	w.failList = func(l client.ObjectList) error {
		if _, ok := l.(*corev1.PodList); ok && hidden {
			return apierrors.NewForbidden(corev1.Resource("pods"), "", assert.AnError)
		}
		return nil
	}
	n := w.run("node-a", time.Hour, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonTaintFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "it is not known who holds the GPUs: list the pods of node node-a: pods is forbidden")
	assert.True(t, w.podThere("web"))
	hidden = false
	w.stays(w.run("node-a", time.Hour, inProfile("cpx")), "cpx")
}

func TestARollBackEndsThoughSlicesCannotBeSeen(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	w.failList = func(l client.ObjectList) error {
		if _, ok := l.(*resourceapi.ResourceSliceList); ok {
			return apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "", assert.AnError)
		}
		return nil
	}
	n := w.run("node-a", time.Hour, is(v1beta1.Failed))
	w.clean("node-a")
	assert.Equal(t, names.ReasonRollbackFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "list the ResourceSlices of node node-a")
	assert.Equal(t, metav1.ConditionFalse, ready(n).Status)
}

func TestConflictsWithoutEndAreAnError(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	w.byHand = true
	w.refuse = func(verb string, o client.Object) error {
		if verb == "status" {
			return apierrors.NewConflict(v1beta1.GroupVersion.WithResource("gpunodes").GroupResource(), o.GetName(), assert.AnError)
		}
		return nil
	}
	for range manyClashes {
		assert.Equal(t, 10*time.Millisecond, w.round("node-a"))
		require.NoError(t, w.lastErr)
	}
	w.round("node-a")
	require.Error(t, w.lastErr, "the wait between tries must grow")
	w.refuse, w.lastErr, w.byHand = nil, nil, false
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.NoError(t, w.lastErr)
}

func TestANodeWhoseStatusIsRefusedBlocksNoOther(t *testing.T) {
	w := newWorld(t)
	w.profile("cpx")
	w.twoNodes("cpx")
	w.refuse = func(verb string, o client.Object) error {
		if g, ok := o.(*v1beta1.GPUNode); ok && verb == "status" && g.Name == "node-a" && g.Status.RequestsTaints() {
			return apierrors.NewInvalid(v1beta1.GroupVersion.WithKind("GPUNode").GroupKind(), g.Name, nil)
		}
		return nil
	}
	for range 3 {
		w.round("node-a")
	}
	require.Error(t, w.lastErr)
	w.run("node-b", time.Minute, inProfile("cpx"))
	w.refuse = nil
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.Equal(t, 1, w.budgetSeen)
}
