package controller

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestBudgets(t *testing.T) {
	for most, limits := range map[string]map[int]int{
		"1":    {0: 1, 1000: 1},
		"3":    {1: 3, 1000: 3},
		"10%":  {0: 1, 9: 1, 19: 1, 20: 2, 1000: 100},
		"100%": {7: 7},
	} {
		b, err := NewBudget(intstr.Parse(most), nil)
		require.NoError(t, err, most)
		for nodes, limit := range limits {
			b.SetNodes(nodes)
			assert.Equal(t, limit, b.Limit(), "%s of %d", most, nodes)
		}
	}
	for _, most := range []string{"0", "-1", "0%", "101%", "ten", "", "1.5"} {
		_, err := NewBudget(intstr.Parse(most), nil)
		assert.Error(t, err, most)
	}
}

func TestWhoWaitsLongestIsWokenFirst(t *testing.T) {
	var woken []string
	b, err := NewBudget(intstr.FromInt32(1), func(node string) { woken = append(woken, node) })
	require.NoError(t, err)
	take := func(node string) bool { ok, _ := b.Take(node); return ok }
	require.True(t, take("a"))
	require.True(t, take("a"), "it has a place")
	require.False(t, take("b"))
	require.False(t, take("c"))
	require.False(t, take("b"))
	_, others := b.Take("d")
	assert.Equal(t, ": 1 are being switched (a), and 1 may be at once (--max-unavailable)", others)

	b.Give("a")
	assert.Equal(t, []string{"b"}, woken)
	b.Give("b") // it does not want to any more
	assert.Equal(t, []string{"b", "c"}, woken)
	require.True(t, take("c"))
	b.Give("nobody")
	assert.Len(t, woken, 2)
}

func TestABudgetIsNeverExceeded(t *testing.T) {
	b, err := NewBudget(intstr.FromInt32(3), nil)
	require.NoError(t, err)
	b.Fill([]string{"n0"}, 20)
	var mu sync.Mutex
	has, most := map[string]bool{"n0": true}, 0
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			for range 2000 {
				node := string(rune('a'+g)) + string(rune('0'+r.IntN(10)))
				if ok, _ := b.Take(node); ok {
					mu.Lock()
					has[node] = true
					most = max(most, len(has))
					mu.Unlock()
				}
				if r.IntN(2) == 0 {
					mu.Lock()
					delete(has, node)
					b.Give(node)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most, 3)
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
	w.run("node-b", time.Minute, is(v1alpha1.Waiting))
	assert.Contains(t, ready(w.gpuNode("node-b")).Message, "waits for other nodes: 1 are being switched (node-a), and 1 may be at once")

	w.startController()
	for range 20 {
		w.round("node-b")
		w.clock.Step(10 * time.Second)
	}
	assert.Equal(t, v1alpha1.Waiting, w.gpuNode("node-b").Status.State)
	w.evict = nil
	w.run("node-a", time.Minute, inProfile("cpx"))
	n := w.run("node-b", time.Minute, inProfile("cpx"))
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
	require.False(t, later.Budget.Has("node-a"))
	w.round("node-a")
	w.run("node-b", time.Minute, is(v1alpha1.Waiting))
	w.evict = nil
	w.run("node-a", time.Minute, inProfile("cpx"))
	w.run("node-b", time.Minute, inProfile("cpx"))
	assert.Equal(t, 1, w.budgetSeen)
}

func TestClientsThatMayBePaused(t *testing.T) {
	keys := []string{"a", "b", "c", "d"}
	assert.Equal(t, map[string]string{"a": "true"}, pausable(map[string]string{"a": "true", "b": "false", "c": v1alpha1.PausedValue, "x": "true"}, keys))
	assert.Nil(t, pausable(nil, keys))

	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "true", "b": "changed", "x": v1alpha1.PausedValue}}}
	setNode(n, nil, map[string]string{"a": "true", "b": "true", "c": "true"}, keys)
	assert.Equal(t, map[string]string{"a": v1alpha1.PausedValue, "b": "changed", "x": v1alpha1.PausedValue}, n.Labels)
	assert.True(t, leftover(n, keys))
	unpause(n, map[string]string{"a": "true", "b": "true"})
	setNode(n, nil, nil, keys)
	assert.Equal(t, map[string]string{"a": "true", "b": "changed", "x": v1alpha1.PausedValue}, n.Labels)
	assert.False(t, leftover(n, keys))
}
