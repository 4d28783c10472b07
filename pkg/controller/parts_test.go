package controller

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

func TestWhatAHolderIsSaidToDo(t *testing.T) {
	for text, change := range map[string]func(*Holder){
		"pod team/web (" + gpuA + "-mig-1g-10gb-0)":                                            func(*Holder) {},
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) has ended, and its claim is being released": func(h *Holder) { h.Pod.Over = true },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) is ending, and has 30 s for it":             func(h *Holder) { h.Pod.Ending, h.Pod.Grace = ptr.To(noon), 30 },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) is ending, and finalizers keep it: a":       func(h *Holder) { h.Pod.Ending, h.Pod.Finalizers = ptr.To(noon), []string{"a"} },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) should have been gone by 11:59:54 UTC: do the node's kubelet and its plugin run, and what do the pod's events say?": func(h *Holder) {
			h.Pod.Ending, h.Pod.Grace, h.Pod.Over = ptr.To(noon.Add(-6*time.Second)), 30, true
		},
		"pod team/web (" + gpuA + "-mig-1g-10gb-0) is not evicted: no":                              func(h *Holder) { h.Pod.Refused = "no" },
		"pod team/web (" + gpuA + "-mig-1g-10gb-0); its claim tolerates the taint":                  func(h *Holder) { h.Tolerates = true },
		"jobs team/x holds " + gpuA + "-mig-1g-10gb-0 for claim team/web-gpu and cannot be evicted": func(h *Holder) { h.Pod, h.Other = nil, "jobs team/x" },
	} {
		h := webPod()
		change(&h)
		assert.Equal(t, text, h.text(noon))
	}
}

func TestWhoIsAsked(t *testing.T) {
	years := func(h *Holder) { h.Pod.Ending = ptr.To(noon.Add(3 * 365 * 24 * time.Hour)) }
	for name, tt := range map[string]struct {
		change       func(*Holder)
		force, asked bool
	}{
		"a pod":                            {func(*Holder) {}, false, true},
		"a pod, by force":                  {func(*Holder) {}, true, true},
		"one that ends":                    {func(h *Holder) { h.Pod.Ending = ptr.To(noon) }, false, false},
		"one that ends, by force":          {func(h *Holder) { h.Pod.Ending = ptr.To(noon) }, true, false},
		"one that ends in years":           {years, false, false},
		"one that ends in years, by force": {years, true, true},
		"one that is over":                 {func(h *Holder) { h.Pod.Over = true }, true, false},
		"something else":                   {func(h *Holder) { h.Pod = nil }, true, false},
	} {
		h := webPod()
		tt.change(&h)
		assert.Equal(t, tt.asked, h.asked(noon, tt.force), name)
	}
}

// A tenant chooses the grace period of a pod, and could keep a GPU for years by it.
func TestForceShortensTheGracePeriod(t *testing.T) {
	for grace, want := range map[int64]*int64{0: nil, 30: nil, 60: nil, 61: ptr.To[int64](60), 94_608_000: ptr.To[int64](60)} {
		var got *int64
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "u"}}
		api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod).Build(), interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
				got = (&client.DeleteOptions{}).ApplyOptions(opts).GracePeriodSeconds
				return nil
			},
		})
		r := &Reconciler{Client: api}
		require.NoError(t, r.ask(t.Context(), &Pod{NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID, Grace: grace}, true, false))
		assert.Equal(t, want, got, grace)
	}
}

func TestRefusalsAreRepeatedMoreSeldom(t *testing.T) {
	var e evictions
	now := noon
	var waits []time.Duration
	for range 6 {
		require.True(t, e.due("u", now))
		e.note("u", "no", now, 0)
		start := now
		for !e.due("u", now) {
			now = now.Add(time.Second)
		}
		waits = append(waits, now.Sub(start)/time.Second)
	}
	assert.Equal(t, []time.Duration{2, 4, 8, 16, 30, 30}, waits)
	assert.Equal(t, "no", e.refused("u"))
	e.note("v", "no", now, time.Hour)
	assert.True(t, e.due("v", now.Add(30*time.Second)), "the server does not say when a switch ends")
	e.note("w", "no", now.Add(2*time.Hour), 0)
	assert.Empty(t, e.refused("u"), "pods of old are forgotten")
	e.forget("w")
	assert.Empty(t, e.refused("w"))
}

func TestWhatTheServerSaysAgainstAnEviction(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		result int32
		fails  bool
		text   string
	}{
		"gone":        {err: apierrors.NewNotFound(corev1.Resource("pods"), "web")},
		"another":     {err: apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("uid"))},
		"a budget":    {err: refuse("budget web")(webPod().Pod.NamespacedName), text: "budget web"},
		"too often":   {err: apierrors.NewTooManyRequests("slow down", 3), text: "slow down"},
		"forbidden":   {err: apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("namespace ends")), text: `pods "web" is forbidden: namespace ends`},
		"a webhook":   {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Message: "admission webhook says no"}}, text: "admission webhook says no"},
		"bad request": {err: apierrors.NewBadRequest("admission webhook says no"), text: "admission webhook says no"},
		"logged out":  {err: apierrors.NewUnauthorized("token"), fails: true},
		"too slow":    {err: apierrors.NewTimeoutError("slow", 1), fails: true},
		"no answer":   {err: errors.New("connection refused"), fails: true},
		"away":        {err: apierrors.NewServiceUnavailable("away"), fails: true},
		"two budgets": {err: apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget")), text: "Internal error occurred: This pod has more than one PodDisruptionBudget"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("node-a", "web", gpuA, gpuA)
			h := webPod()
			h.Pod.UID = "pod-web"
			w.refuse = nil
			w.evict = func(types.NamespacedName) error { return tt.err }
			left, err := w.r.evict(t.Context(), "cpx", []Holder{h, h}, false)
			assert.Equal(t, tt.result, left)
			assert.Equal(t, tt.fails, err != nil, err)
			assert.Equal(t, tt.text, w.r.evictions.refused("pod-web"))
			assert.LessOrEqual(t, w.writes["eviction *v1.Pod"], 1, "it holds two devices and is asked once")
		})
	}
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

func TestTextsAreCut(t *testing.T) {
	assert.Equal(t, "a, b, c, d, e and 2 more", list([]string{"a", "b", "c", "d", "e", "f", "g"}))
	assert.Equal(t, []string{"a", "b"}, compact([]string{"a", "a", "b", "a"}))
	assert.Equal(t, "Other", reasonWord("not a reason"))
	assert.Equal(t, "Other", reasonWord(""))
	assert.Equal(t, "InUse", reasonWord("InUse"))
}
