package defragment

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guard makes a pod on a node without GPUs that keeps pods with a label out of the zone of all nodes.
func (w *world) guard(namespace string, phase corev1.PodPhase, term corev1.PodAffinityTerm) {
	w.t.Helper()
	var all corev1.NodeList
	require.NoError(w.t, w.api.List(w.t.Context(), &all))
	for i := range all.Items {
		all.Items[i].Labels[corev1.LabelTopologyZone] = "zone-a"
		require.NoError(w.t, w.api.Update(w.t.Context(), &all.Items[i]))
	}
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}}})
	term.TopologyKey = corev1.LabelTopologyZone
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guard", UID: "guard"},
		Spec: corev1.PodSpec{NodeName: "cpu", Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	})
}

// No pod is evicted for one that the scheduler can never place, wherever the pod runs that keeps it away.
func TestNobodyIsEvictedForAPodThatIsKeptAway(t *testing.T) {
	bait := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "bait"}}
	for name, test := range map[string]struct {
		namespace string
		phase     corev1.PodPhase
		term      corev1.PodAffinityTerm
		begins    bool
	}{
		"same namespace":         {team, corev1.PodRunning, corev1.PodAffinityTerm{LabelSelector: bait}, false},
		"not started":            {team, corev1.PodPending, corev1.PodAffinityTerm{LabelSelector: bait}, false},
		"namespace by name":      {"other", corev1.PodRunning, corev1.PodAffinityTerm{LabelSelector: bait, Namespaces: []string{team}}, false},
		"namespaces by selector": {"other", corev1.PodRunning, corev1.PodAffinityTerm{LabelSelector: bait, NamespaceSelector: &metav1.LabelSelector{}}, false},
		"ended":                  {team, corev1.PodSucceeded, corev1.PodAffinityTerm{LabelSelector: bait}, true},
		"other namespace":        {"other", corev1.PodRunning, corev1.PodAffinityTerm{LabelSelector: bait}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := w.get(w.scatter())
			w.guard(test.namespace, test.phase, test.term)
			pod.Labels = map[string]string{"app": "bait"}
			require.NoError(t, w.api.Update(t.Context(), pod))
			assert.Equal(t, test.begins, w.pass(61*time.Second))
			assert.Equal(t, test.begins, w.attempt("node-1") != nil)
		})
	}
}

// A pod that keeps the waiting one away and comes after the plan ends the attempt before an eviction.
func TestAGuardThatComesAfterThePlan(t *testing.T) {
	w := newWorld(t)
	pod := w.get(w.scatter())
	pod.Labels = map[string]string{"app": "bait"}
	require.NoError(t, w.api.Update(t.Context(), pod))
	require.True(t, w.pass(61*time.Second))
	w.guard(team, corev1.PodRunning, corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels}})
	w.taint("node-1")
	w.pass(time.Second)
	w.pass(3 * time.Second)
	assert.Empty(t, w.evicted)
	assert.Contains(t, w.attempt("node-1").Message, "the podAntiAffinity of pod team-a/guard may keep it away")
}

// A tenant deletes the waiting pod as soon as pods were evicted for it, and creates another one: no pod is
// evicted again for a long time.
func TestPodsThatAreCreatedAgainEvictNobodyAgain(t *testing.T) {
	w := newWorld(t)
	waiting := w.scatter()
	for i := range 50 {
		w.pass(61 * time.Second)
		if a := w.attempt("node-1"); a != nil && a.EndTime == nil {
			w.taint("node-1")
			w.pass(time.Second)
			w.pass(3 * time.Second)
		}
		if len(w.evicted) > 0 {
			require.NoError(t, client.IgnoreNotFound(w.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: waiting}})))
			w.pass(time.Second)
			w.taint("node-1")
			waiting = w.pod(large, "")
			pod := w.get(waiting)
			owner := fmt.Sprint("owner-", i)
			pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = owner, types.UID(owner)
			require.NoError(t, w.api.Update(t.Context(), pod))
		}
	}
	assert.Len(t, w.evicted, 1)
}
