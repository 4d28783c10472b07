package defragment

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// A controller that continues an attempt proves the plan again before it evicts a pod.
func TestRestartProvesAgain(t *testing.T) {
	for name, change := range map[string]func(w *world, a *v1beta1.Defragmentation){
		"before the first eviction": func(*world, *v1beta1.Defragmentation) {},
		"before a recorded eviction": func(w *world, a *v1beta1.Defragmentation) {
			now := metav1.NewMicroTime(w.clock.Now())
			a.Moves[0].EvictionTime, a.EvictionTimes = &now, []metav1.MicroTime{now}
		},
	} {
		for _, holds := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				w, _ := scattered(t)
				w.taint("node-1")
				w.change("node-1", func(a *v1beta1.Defragmentation) {
					a.State = v1beta1.DefragmentationEvicting
					change(w, a)
				})
				w.start()
				if holds {
					assert.True(t, w.pass(5*time.Minute))
					assert.Equal(t, []string{"pod-2"}, w.evicted)
					a := w.attempt("node-1")
					assert.Equal(t, []metav1.MicroTime{*a.Moves[0].EvictionTime}, a.EvictionTimes, "counted once")
					assert.True(t, a.Moves[0].EvictionTime.Time.Equal(w.clock.Now()), "counted from when it happened")
					return
				}
				for range 5 {
					w.pod(small, "node-0")
				}
				assert.False(t, w.pass(5*time.Minute))
				assert.Empty(t, w.evicted)
				assert.Contains(t, w.attempt("node-1").Message, "fits nowhere else")
			})
		}
	}
}

// twoMoves has an attempt that moves two pods from node-1, of which the first is evicted.
func twoMoves(t *testing.T, prepare ...func(*world)) *world {
	w := newWorld(t)
	for range 3 {
		w.pod(small, "node-0")
	}
	for range 2 {
		w.pod(small, "node-1")
	}
	w.pod(large, "")
	for _, f := range prepare {
		f(w)
	}
	require.True(t, w.pass(time.Minute))
	require.Len(t, w.attempt("node-1").Moves, 2)
	w.evicts("node-1")
	require.Len(t, w.evicted, 1)
	return w
}

// If a replacement takes the place that was planned for another pod, that pod may get the place that is left.
func TestReplacementTakesAnotherPlace(t *testing.T) {
	w := newWorld(t)
	w.node("node-2")
	for _, node := range []string{"node-0", "node-2"} {
		for range 6 {
			w.pod(small, node)
		}
	}
	for range 2 {
		w.pod(small, "node-1")
	}
	w.pod(large, "")
	require.True(t, w.pass(time.Minute))
	moves := w.attempt("node-1").Moves
	require.Len(t, moves, 2)
	require.NotEqual(t, moves[0].ToNodeName, moves[1].ToNodeName)
	w.evicts("node-1")
	require.True(t, w.bind(w.pod(small, ""), moves[1].ToNodeName))
	require.True(t, w.pass(time.Second))
	require.True(t, w.attempt("node-1").Moves[0].Placed)
	require.True(t, w.pass(time.Second), w.attempt("node-1").Message)
	assert.Len(t, w.evicted, 2)
}

// Without the taints, evictions could be in vain: others could take the room.
func TestAbortsIfTaintsAreRemoved(t *testing.T) {
	w := twoMoves(t)
	require.True(t, w.bind(w.pod(small, ""), "node-0"))
	require.True(t, w.pass(time.Second))
	var list resourceapi.ResourceSliceList
	require.NoError(t, w.api.List(t.Context(), &list))
	for i := range list.Items {
		for j := range list.Items[i].Spec.Devices {
			list.Items[i].Spec.Devices[j].Taints = nil
		}
		require.NoError(t, w.api.Update(t.Context(), &list.Items[i]))
	}
	assert.False(t, w.pass(time.Second))
	assert.Contains(t, w.attempt("node-1").Message, "removed the taints")
	assert.Len(t, w.evicted, 1)
}

// No eviction begins after the deadline: then the plugin removes the taints.
func TestEvictionsEndAtTheDeadline(t *testing.T) {
	w, _ := scattered(t)
	w.taint("node-1")
	w.pass(time.Second)
	w.change("node-1", func(a *v1beta1.Defragmentation) {
		a.DeadlineTime = metav1.NewMicroTime(w.clock.Now().Add(13 * time.Second))
	})
	calls := 0
	w.onEvict = func(ctx context.Context, _ bool) {
		calls++
		deadline, ok := ctx.Deadline()
		assert.True(t, ok && time.Until(deadline) <= 10*time.Second)
	}
	require.True(t, w.pass(3*time.Second))
	assert.Equal(t, 2, calls, "a dry run and an eviction")
}

// The controller's clock may be a little ahead of the API server's, which sets creation times.
func TestReplacementBeforeItsEviction(t *testing.T) {
	w, _ := scattered(t)
	w.evicts("node-1")
	now := w.clock.Now()
	w.clock.SetTime(now.Add(-2500 * time.Millisecond))
	require.True(t, w.bind(w.pod(small, ""), "node-0"))
	w.clock.SetTime(now)
	require.True(t, w.pass(time.Second))
	assert.True(t, w.attempt("node-1").Moves[0].Placed)
}

// The replacement of one pod is not that of the next pod, too.
func TestEachPodNeedsAReplacement(t *testing.T) {
	w := twoMoves(t)
	require.True(t, w.bind(w.pod(small, ""), "node-0"))
	require.True(t, w.pass(time.Second))
	require.True(t, w.attempt("node-1").Moves[0].Placed)
	require.True(t, w.pass(time.Second))
	require.Len(t, w.evicted, 2)
	require.True(t, w.pass(time.Second))
	assert.False(t, w.attempt("node-1").Moves[1].Placed)
	require.True(t, w.bind(w.pod(small, ""), "node-0"))
	require.True(t, w.pass(time.Second))
	assert.True(t, w.attempt("node-1").Moves[1].Placed)
}

// The namespace of an evicted pod may have very many pods, so it is not listed all the time.
func TestNamespacesAreListedRarely(t *testing.T) {
	w, _ := scattered(t)
	w.evicts("node-1")
	lists := func() (n int) {
		for _, what := range w.listed {
			if what == "*v1.PodList "+team+" " {
				n++
			}
		}
		return n
	}
	w.listed = nil
	for range 25 {
		require.True(t, w.pass(time.Second))
	}
	assert.Equal(t, 3, lists())
	w.node("node-2")
	require.True(t, w.bind(w.pod(small, ""), "node-2"), "not where the plan says")
	require.True(t, w.pass(namespaceInterval))
	assert.True(t, w.attempt("node-1").Moves[0].Placed)
}

// A cache that still has an attempt of a moment ago changes nothing.
func TestAttemptThatOnlyTheCacheHas(t *testing.T) {
	for name, now := range map[string]func(*v1beta1.Defragmentation) *v1beta1.Defragmentation{
		"ended": func(a *v1beta1.Defragmentation) *v1beta1.Defragmentation {
			ended := metav1.NewMicroTime(a.StartTime.Add(time.Second))
			a.State, a.EndTime, a.Message = v1beta1.DefragmentationAborted, &ended, "the node was switched"
			return a
		},
		"removed": func(*v1beta1.Defragmentation) *v1beta1.Defragmentation { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := scattered(t)
			w.freezeCache()
			var node v1beta1.GPUNode
			require.NoError(t, w.api.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &node))
			node.Status.Defragmentation = now(node.Status.Defragmentation)
			require.NoError(t, w.api.Status().Update(t.Context(), &node))
			want := w.attempt("node-1")
			assert.False(t, w.pass(time.Second))
			assert.Equal(t, want, w.attempt("node-1"))
			assert.Empty(t, w.evicted)
		})
	}
}

// Whatever cannot be read or written is told, and the next step continues.
func TestEachCallThatFails(t *testing.T) {
	w := newWorld(t)
	waiting := w.scatter()
	w.calls.Each(t, func() error {
		w.clock.SetTime(w.clock.Now().Add(time.Hour)) // a search that fails is not repeated at once
		_, err := w.d.Step(t.Context())
		return err
	})
	require.NotNil(t, w.attempt("node-1"))
	each := func() { w.calls.Each(t, func() error { _, err := w.d.Step(t.Context()); return err }) }
	step := func(until v1beta1.DefragmentationState) {
		t.Helper()
		each()
		require.Equal(t, until, w.attempt("node-1").State)
	}
	w.taint("node-1")
	w.pass(time.Second)
	w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
	step(v1beta1.DefragmentationEvicting)
	assert.Equal(t, []string{"pod-2"}, w.evicted, "once")
	require.True(t, w.bind(w.pod(small, ""), "node-0"))
	each()
	step(v1beta1.DefragmentationPlacing)
	require.True(t, w.bind(waiting, "node-1"))
	step(v1beta1.DefragmentationSucceeded)
}
