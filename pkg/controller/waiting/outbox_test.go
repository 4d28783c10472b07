package waiting

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespaces take turns, and the newest pod of each comes first. A namespace that fails waits.
func TestOutbox(t *testing.T) {
	now := time.Unix(1e9, 0)
	var o outbox
	of := func(namespace string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
	}
	for i := range 3 {
		o.add(of("a", i))
		o.add(of("a", i))
	}
	o.add(of("b", 0))
	take := func(want ...types.NamespacedName) {
		t.Helper()
		for _, w := range want {
			got, ok, _ := o.next(now)
			require.True(t, ok)
			require.Equal(t, w, got)
		}
	}
	take(of("a", 2), of("b", 0), of("a", 1))
	o.failed(of("a", 1), now)
	o.add(of("b", 1))
	take(of("b", 1))
	_, ok, wait := o.next(now)
	require.False(t, ok)
	require.Equal(t, firstDelay, wait)
	now = now.Add(firstDelay)
	take(of("a", 1))
	for range 30 {
		o.failed(of("a", 1), now)
	}
	_, ok, wait = o.next(now)
	require.False(t, ok)
	require.Equal(t, longestDelay, wait)
	now = now.Add(longestDelay)
	take(of("a", 1), of("a", 0))
	o.succeeded("a")
	_, ok, wait = o.next(now)
	require.False(t, ok)
	require.Zero(t, wait)
	require.Empty(t, o.of)
	require.Empty(t, o.turns)
}

// A namespace where events cannot be written is tried with one of its pods at a time, and delays no other.
func TestAnEventThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	w := full(t)
	var pods []types.NamespacedName
	for i := range 50 {
		pods = append(pods, w.waiting(fmt.Sprintf("p-%d", i), small))
	}
	w.see(pods...)
	w.pass(time.Minute)
	w.fail = errAway
	w.calls = 0
	w.see(pods...)
	require.Empty(t, w.events())
	assert.Equal(t, len(pods)+2+1, w.calls, "claims, nodes and one event")
	w.pass(firstDelay - time.Nanosecond)
	w.calls = 0
	require.Equal(t, time.Nanosecond, w.tell())
	require.Zero(t, w.calls)
	w.fail = nil
	w.pass(time.Nanosecond)
	w.tell()
	require.Len(t, w.events(), len(pods))
}

// What a pod is told is decided when the event is written.
func TestPodsAreToldWhatIsTrueThen(t *testing.T) {
	w := full(t)
	gone, changed := w.waiting("gone", small), w.waiting("p", small)
	w.see(gone, changed)
	w.pass(time.Minute)
	w.fail = errAway
	w.see(gone, changed)
	w.create(taint("node-0"))
	w.create(taint("node-1"))
	w.judge("node-0", "node-1")
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: gone.Namespace, Name: gone.Name}})
	w.fail = nil
	w.pass(firstDelay)
	w.tell()
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], "DevicesTainted team-a/p: ")
	require.NotContains(t, w.r.memory.pods, gone)
}

// Tell waits for pods to tell, and ends.
func TestTellEnds(t *testing.T) {
	w := full(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := w.waiting("p", small)
	w.see(p)
	w.pass(time.Minute)
	_, err := w.r.reconcilePod(ctx, request(p))
	require.NoError(t, err)
	for _, node := range w.due {
		_, err := w.r.reconcileNode(ctx, requestFor(node))
		require.NoError(t, err)
	}
	w.due = nil
	go func() { done <- w.r.Tell(ctx) }()
	require.Eventually(t, func() bool { return strings.Join(w.events(), "") == heldNote }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
