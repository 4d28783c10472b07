package defragment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// scattered has an attempt on the second node.
func scattered(t *testing.T) (w *world, waiting string) {
	w = newWorld(t)
	waiting = w.scatter()
	require.False(t, w.pass(30*time.Second), "the pod has not waited for long enough")
	require.True(t, w.pass(31*time.Second))
	return w, waiting
}

func TestMakesRoom(t *testing.T) {
	w, waiting := scattered(t)
	a := w.attempt("node-1")
	require.NotNil(t, a)
	assert.Equal(t, v1beta1.DefragmentationReserving, a.State)
	assert.Equal(t, v1beta1.PodReference{Namespace: team, Name: waiting, UID: types.UID("uid-" + waiting)}, a.Pod)
	require.Len(t, a.Moves, 1)
	assert.Equal(t, "pod-2", a.Moves[0].Name)
	assert.Equal(t, types.UID(small), a.Moves[0].OwnerUID)
	assert.Equal(t, "node-0", a.Moves[0].ToNodeName)
	assert.NotContains(t, a.ReservedDevices, a.Devices[0])

	require.True(t, w.pass(time.Second))
	assert.Equal(t, v1beta1.DefragmentationReserving, w.attempt("node-1").State, "the taints are not published")
	w.taint("node-1")
	require.True(t, w.pass(time.Second))
	assert.Empty(t, w.evicted, "schedulers may not have noticed the taints")
	require.True(t, w.pass(3*time.Second))
	assert.Equal(t, []string{"pod-2"}, w.evicted)
	a = w.attempt("node-1")
	assert.Equal(t, v1beta1.DefragmentationEvicting, a.State)
	assert.NotNil(t, a.Moves[0].EvictionTime)
	assert.Len(t, a.EvictionTimes, 1)

	again := w.pod(small, "")
	assert.False(t, w.bind(again, "node-1"), "the room is kept")
	require.True(t, w.pass(time.Second))
	assert.False(t, w.attempt("node-1").Moves[0].Placed)
	require.True(t, w.bind(again, "node-0"))
	require.True(t, w.pass(time.Second))
	assert.True(t, w.attempt("node-1").Moves[0].Placed)
	require.True(t, w.pass(time.Second))
	assert.Equal(t, v1beta1.DefragmentationPlacing, w.attempt("node-1").State)
	require.True(t, w.bind(waiting, "node-1"), "no toleration is needed")
	require.False(t, w.pass(time.Second))
	a = w.attempt("node-1")
	assert.Equal(t, v1beta1.DefragmentationSucceeded, a.State)
	assert.Equal(t, "the waiting pod was scheduled to node node-1", a.Message)
	assert.False(t, a.Active(w.clock.Now()))
	require.NoError(t, testutil.GatherAndCompare(w.d.Registry.(*prometheus.Registry), strings.NewReader(`
# HELP tranche_defragmentation_evictions_total Evictions that made room for waiting pods: Evicted, Refused.
# TYPE tranche_defragmentation_evictions_total counter
tranche_defragmentation_evictions_total{result="Evicted"} 1
# HELP tranche_defragmentations_total Finished defragmentations: Succeeded or Aborted.
# TYPE tranche_defragmentations_total counter
tranche_defragmentations_total{result="Succeeded"} 1
`)))
	assert.False(t, w.pass(time.Hour))
}

// A new controller continues from what the GPUNode says, in every step.
func TestControllerEndsAtAnyTime(t *testing.T) {
	w, waiting := scattered(t)
	w.taint("node-1")
	placed := false
	for range 40 {
		w.start()
		w.pass(time.Second)
		w.pass(3 * time.Second)
		if len(w.evicted) > 0 && !placed {
			placed = w.bind(w.pod(small, ""), "node-0")
		}
		if a := w.attempt("node-1"); a.State == v1beta1.DefragmentationPlacing {
			w.bind(waiting, "node-1")
		}
	}
	assert.Equal(t, v1beta1.DefragmentationSucceeded, w.attempt("node-1").State, w.attempt("node-1").Message)
	assert.Equal(t, []string{"pod-2"}, w.evicted)
}

// No pod is evicted before its eviction is written to the GPUNode.
func TestNoEvictionWithoutARecord(t *testing.T) {
	w, _ := scattered(t)
	w.taint("node-1")
	w.pass(time.Second)
	w.fail = func(string) error { return assert.AnError }
	w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
	_, err := w.d.Step(t.Context())
	require.ErrorIs(t, err, assert.AnError)
	assert.Empty(t, w.evicted)
	w.fail = nil
	w.pass(time.Second)
	assert.Equal(t, []string{"pod-2"}, w.evicted)
}

// What the API server does not answer is asked again.
func TestEvictionsWithoutAnAnswer(t *testing.T) {
	w, _ := scattered(t)
	w.taint("node-1")
	w.pass(time.Second)
	w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
	for _, dry := range []bool{true, false} {
		w.unanswered = &dry
		_, err := w.d.Step(t.Context())
		require.ErrorIs(t, err, assert.AnError)
		assert.Empty(t, w.evicted)
	}
	w.unanswered = nil
	require.True(t, w.pass(time.Second))
	assert.Equal(t, []string{"pod-2"}, w.evicted)
}

func TestAborts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world, waiting string)
		passes time.Duration
		want   string
	}{
		"waiting pod gone": {func(w *world, waiting string) { w.remove(waiting) }, time.Second, "the waiting pod was deleted"},
		"no place any more": {func(w *world, _ string) {
			for range 5 {
				w.pod(small, "node-0")
			}
		}, 3 * time.Second, "fits nowhere else"},
		"no longer allowed": {func(w *world, _ string) {
			require.NoError(w.t, w.api.Delete(w.t.Context(), namespace()))
		}, 3 * time.Second, "has the label"},
		"budget":   {func(w *world, _ string) { w.refuseDry = "the disruption budget web needs 2" }, 3 * time.Second, "pod team-a/pod-2 cannot be evicted: the disruption budget web needs 2"},
		"refused":  {func(w *world, _ string) { w.refuse = "no" }, 3 * time.Second, "the eviction of pod team-a/pod-2 was refused: no"},
		"deadline": {func(*world, string) {}, attemptTimeout, "not scheduled before the deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			w, waiting := scattered(t)
			w.taint("node-1")
			w.pass(time.Second)
			test.change(w, waiting)
			assert.False(t, w.pass(test.passes))
			a := w.attempt("node-1")
			assert.Equal(t, v1beta1.DefragmentationAborted, a.State)
			assert.Contains(t, a.Message, test.want)
			assert.NotNil(t, a.EndTime)
			assert.Empty(t, w.evicted)
			assert.EqualValues(t, 1, testutil.ToFloat64(w.d.metrics.ended.WithLabelValues(names.OutcomeAborted)))
			assert.Equal(t, name == "refused", testutil.ToFloat64(w.d.metrics.evictions.WithLabelValues(names.EvictionRefused)) == 1)
			w.taint("node-1")
			assert.False(t, w.pass(2*time.Minute), "the node and the pod are left alone for a while")
		})
	}
}

func namespace() *corev1.Namespace {
	n := &corev1.Namespace{}
	n.Name = team
	return n
}

// Without the taints no pod is evicted.
func TestAbortsWithoutTaints(t *testing.T) {
	w, _ := scattered(t)
	assert.False(t, w.pass(taintTimeout))
	assert.Contains(t, w.attempt("node-1").Message, "check that its pod on node node-1 runs")
	assert.Empty(t, w.evicted)
}

// If the waiting pod fits meanwhile, no pod is evicted.
func TestFitsMeanwhile(t *testing.T) {
	w, waiting := scattered(t)
	w.taint("node-1")
	w.pass(time.Second)
	w.remove("pod-2")
	require.True(t, w.pass(3*time.Second))
	assert.Equal(t, v1beta1.DefragmentationPlacing, w.attempt("node-1").State)
	require.True(t, w.bind(waiting, "node-1"))
	require.False(t, w.pass(time.Second))
	assert.Empty(t, w.evicted)
}

// If a replacement gets no node, no more pods are evicted.
func TestWaitsForReplacements(t *testing.T) {
	w, _ := scattered(t)
	w.evicts("node-1")
	require.True(t, w.pass(replaceTimeout-time.Second))
	require.False(t, w.pass(time.Second))
	assert.Contains(t, w.attempt("node-1").Message, "has no node after 5m0s, so no more pods are evicted")
}

// twoMovesOneLate has a pod that was evicted and does not end. Its replacement runs.
func twoMovesOneLate(t *testing.T) (*world, *corev1.Pod) {
	w := twoMoves(t, func(w *world) { w.keepsEvicted = true })
	pod := w.get(w.evicted[0])
	pod.Finalizers = []string{"example.com/slow"}
	require.NoError(t, w.api.Update(t.Context(), pod))
	require.NoError(t, w.api.Delete(t.Context(), pod))
	require.True(t, w.bind(w.pod(small, ""), "node-0"))
	require.True(t, w.pass(time.Second))
	return w, pod
}

func TestPodThatDoesNotEnd(t *testing.T) {
	w, pod := twoMovesOneLate(t)
	require.False(t, w.pass(replaceTimeout))
	assert.Contains(t, w.attempt("node-1").Message, pod.Name+" was evicted and still holds its devices after 5m0s; see kubectl describe pod -n "+team)
	assert.Len(t, w.evicted, 1)
}

// An evicted pod holds its device until it has ended, also if its replacement runs.
func TestWaitsForTheEndOfPods(t *testing.T) {
	w, pod := twoMovesOneLate(t)
	require.True(t, w.pass(time.Second))
	assert.Len(t, w.evicted, 1, "the first one still holds its device")

	pod = w.get(pod.Name)
	pod.Finalizers = nil
	require.NoError(t, w.api.Update(t.Context(), pod))
	require.True(t, w.pass(time.Second))
	assert.Len(t, w.evicted, 1, "its claim is not released")
	w.release(pod.Name)
	require.True(t, w.pass(time.Second))
	require.True(t, w.pass(time.Second))
	assert.Len(t, w.evicted, 2)
}

// Evictions of the last hour count, also those of attempts that were aborted and of other nodes.
func TestHourlyLimit(t *testing.T) {
	w := newWorld(t)
	w.pod(small, "node-0")
	w.pod(small, "node-1")
	w.pod(large, "")
	var node v1beta1.GPUNode
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Name: "node-0"}, &node))
	ended := metav1.NewMicroTime(w.clock.Now())
	node.Status.Defragmentation = &v1beta1.Defragmentation{ID: "old", State: v1beta1.DefragmentationSucceeded, EndTime: &ended}
	for range 3 {
		node.Status.Defragmentation.EvictionTimes = append(node.Status.Defragmentation.EvictionTimes, metav1.NewMicroTime(w.clock.Now()))
	}
	require.NoError(t, w.api.Status().Update(t.Context(), &node))
	assert.False(t, w.pass(59*time.Minute))
	assert.True(t, w.pass(time.Minute))
}

// Each search plans for pods of all namespaces, and for other pods of a namespace that has many.
func TestRoundRobin(t *testing.T) {
	pods := map[string][]*corev1.Pod{}
	add := func(namespace, name string) {
		p := &corev1.Pod{}
		p.Namespace, p.Name = namespace, name
		pods[namespace] = append(pods[namespace], p)
	}
	for i := range 40 {
		add("many", string(rune('A'+39-i)))
	}
	add("few", "x")
	of := func(offset int) (all []string) {
		copied := map[string][]*corev1.Pod{}
		for k, v := range pods {
			copied[k] = v
		}
		for _, p := range roundRobin(copied, offset) {
			all = append(all, p.Namespace+"/"+p.Name)
		}
		return all
	}
	assert.Len(t, of(0), maxWaitingPods)
	assert.Equal(t, []string{"few/x", "many/A", "many/B"}, of(0)[:3])
	assert.Equal(t, []string{"many/Q", "few/x", "many/R"}, of(1)[:3])
	assert.Empty(t, roundRobin(nil, 0))
}

func TestStorable(t *testing.T) {
	devices := func(n int) []defrag.Device { return make([]defrag.Device, n) }
	moves := func(n, from, to int) []defrag.Move {
		return slices.Repeat([]defrag.Move{{From: devices(from), To: devices(to)}}, n)
	}
	const gpus, most = v1beta1.MaxGPUs, v1beta1.MaxMoves
	const each = v1beta1.MaxMovedDevices / most / 2
	for name, test := range map[string]struct {
		plan     defrag.Plan
		reserved int
		want     bool
	}{
		"at every bound":        {defrag.Plan{Devices: devices(gpus), Moves: moves(most, each, each)}, v1beta1.MaxReservedDevices, true},
		"too many devices":      {defrag.Plan{Devices: devices(gpus + 1)}, 0, false},
		"too many reserved":     {defrag.Plan{}, v1beta1.MaxReservedDevices + 1, false},
		"too many moves":        {defrag.Plan{Moves: moves(most+1, 1, 1)}, 0, false},
		"too many from one pod": {defrag.Plan{Moves: moves(1, gpus+1, 1)}, 0, false},
		"too many to one pod":   {defrag.Plan{Moves: moves(1, 1, gpus+1)}, 0, false},
		"too many that move":    {defrag.Plan{Moves: append(moves(most-1, each, each), moves(1, each+1, each)...)}, 0, false},
	} {
		assert.Equal(t, test.want, storable(&test.plan, devices(test.reserved)), name)
	}
}
