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

	"github.com/tranche-dev/tranche/api/names"
)

// Namespaces take turns, so that the many pods of one do not delay the others.
func TestInTurns(t *testing.T) {
	var pods []types.NamespacedName
	for namespace, n := range map[string]int{"many": 2 * perRound, "few": 3, "one": 1} {
		for i := range n {
			pods = append(pods, types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)})
		}
	}
	got := inTurns(pods)
	require.Len(t, got, perRound)
	of := map[string]int{}
	for _, p := range got[:3] {
		of[p.Namespace]++
	}
	assert.Equal(t, map[string]int{"many": 1, "few": 1, "one": 1}, of)
	assert.Len(t, inTurns(pods[:3]), 3)
	assert.Empty(t, inTurns(nil))
}

// The longest name of a pod makes a name of an event.
func TestNamesOfEvents(t *testing.T) {
	w := newWorld(t, 0)
	e := w.e.newEvent(types.NamespacedName{Namespace: "team-a", Name: strings.Repeat("a", maxName-1) + ".-b" + strings.Repeat("c", 50)}, "u", names.EventDevicesFree, "note")
	assert.Regexp(t, "^a{199}[.][0-9a-f]{1,16}$", e.Name)
	assert.Equal(t, corev1.EventTypeNormal, e.Type)
}

// A namespace where events cannot be written is tried with one of its pods at a time, and delays no other.
func TestAnEventThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	w := full(t)
	const pods = 50
	for i := range pods {
		w.waiting(fmt.Sprintf("p-%d", i), small)
	}
	w.fail = errAway
	w.explained()
	require.Empty(t, w.events())
	assert.Equal(t, pods+2+1, w.calls, "claims, nodes and one event")
	w.pass(afterFailure - time.Nanosecond)
	w.calls = 0
	w.round()
	require.Zero(t, w.calls)
	w.fail = nil
	w.pass(time.Nanosecond)
	w.round()
	require.Len(t, w.events(), pods)
}

// What an event says is decided when it is written.
func TestEventsSayWhatIsTrueThen(t *testing.T) {
	w := full(t)
	gone := w.waiting("gone", small)
	w.waiting("p", small)
	w.fail = errAway
	w.explained()
	w.create(taint("node-0"))
	w.create(taint("node-1"))
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: gone.Namespace, Name: gone.Name}})
	w.fail = nil
	w.pass(afterFailure)
	w.round("node-0", "node-1")
	require.Len(t, w.events(), 1)
	assert.Contains(t, w.events()[0], "DevicesTainted team-a/p: ")
	require.NotContains(t, w.e.pods, gone)
}

// Run runs rounds, and ends.
func TestRunEnds(t *testing.T) {
	w := full(t)
	w.e.After = 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	w.waiting("p", small)
	go func() { done <- w.e.Run(ctx) }()
	require.Eventually(t, func() bool { return strings.Join(w.events(), "") == heldNote }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
