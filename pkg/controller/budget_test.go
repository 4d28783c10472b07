package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestLimits(t *testing.T) {
	for _, most := range []string{"0", "-1", "0%", "101%", "ten", "", "1.5"} {
		_, _, err := ParseLimits(most, "")
		assert.ErrorContains(t, err, "give 1 or more", most)
	}
	for _, failures := range []string{"-1", "101%", "few"} {
		_, _, err := ParseLimits("1", failures)
		assert.ErrorContains(t, err, "give 0 or more", failures)
	}
	most, failures, err := ParseLimits("10%", "0%")
	require.NoError(t, err)
	assert.Equal(t, "10% 0%", most.String()+" "+failures.String())
}

// pending tells whether a node waits for its rollout.
func pending(n *v1alpha1.GPUNode) bool {
	return meta.IsStatusConditionTrue(n.Status.Conditions, names.ConditionRolloutPending)
}

func TestABudgetSurvivesTheController(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.addNode("node-b")
	w.profile("cpx")
	w.settled("node-a", "")
	w.settled("node-b", "")
	w.pod("node-a", "web", gpuA, gpuA)
	w.evict = refuse("no")
	w.wants("node-a", "cpx")
	w.wants("node-b", "cpx")
	w.run("node-a", time.Minute, is(v1alpha1.Draining))
	n := w.run("node-b", time.Minute, pending)
	why := meta.FindStatusCondition(n.Status.Conditions, names.ConditionRolloutPending)
	assert.Equal(t, names.ReasonWaitsForNodes, why.Reason)
	assert.Equal(t, "profile cpx waits for other nodes: 1 may be switched at once (--max-unavailable)", why.Message)
	assert.True(t, inProfile("")(n), "its plugin is not asked yet")

	w.startController()
	w.passes(20, 10*time.Second, "node-b")
	assert.True(t, pending(w.gpuNode("node-b")))
	w.evict = nil
	w.run("node-a", time.Minute, inProfile("cpx"))
	n = w.run("node-b", time.Minute, inProfile("cpx"))
	assert.False(t, pending(n))
	assert.Less(t, n.Status.History[0].Duration.Duration, 10*time.Second, "the wait does not count")
	assert.Equal(t, 1, w.budgetSeen)
}

// An earlier leader's last write may be obeyed after the next one has looked who is being
// switched.
func TestASwitchThatAnEarlierLeaderHasBegunCounts(t *testing.T) {
	w := newWorld(t)
	w.profile("cpx")
	for _, name := range []string{"node-a", "node-b"} {
		w.addNode(name)
		w.settled(name, "")
		w.wants(name, "cpx")
	}
	w.evict = refuse("no")
	w.pod("node-a", "web", gpuA, gpuA)
	earlier := w.r
	w.startController()
	require.NoError(t, w.r.begin(t.Context()))
	later := w.r
	w.r = earlier
	w.run("node-a", time.Minute, is(v1alpha1.Draining))
	w.r = later
	w.round("node-a")
	w.run("node-b", time.Minute, pending)
	w.evict = nil
	w.run("node-a", time.Minute, inProfile("cpx"))
	w.run("node-b", time.Minute, inProfile("cpx"))
	assert.Equal(t, 1, w.budgetSeen)
}

func TestClientsThatMayBePaused(t *testing.T) {
	keys := []string{"a", "b", "c", "d"}
	assert.Equal(t, map[string]string{"a": "true"}, pausable(map[string]string{"a": "true", "b": "false", "c": names.PausedValue, "x": "true"}, keys))
	assert.Nil(t, pausable(nil, keys))

	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "true", "b": "changed", "x": names.PausedValue}}}
	setNode(n, nil, map[string]string{"a": "true", "b": "true", "c": "true"}, keys)
	assert.Equal(t, map[string]string{"a": names.PausedValue, "b": "changed", "x": names.PausedValue}, n.Labels)
	assert.True(t, leftover(n, keys))
	unpause(n, map[string]string{"a": "true", "b": "true"})
	setNode(n, nil, nil, keys)
	assert.Equal(t, map[string]string{"a": "true", "b": "changed", "x": names.PausedValue}, n.Labels)
	assert.False(t, leftover(n, keys))
}
