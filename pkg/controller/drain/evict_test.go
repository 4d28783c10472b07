package drain

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

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
		d := &Drainer{Client: api}
		require.NoError(t, d.ask(t.Context(), &Pod{NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID, Grace: grace}, true, false))
		assert.Equal(t, want, got, grace)
	}
}

// A claim that something beside pods holds is in the way, unless pods hold it, too: it may be released
// when they have left. A pod is asked once.
func TestBlockers(t *testing.T) {
	asked := 0
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "u1"}}
	d := &Drainer{Client: interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod).Build(), interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			asked++
			return budget("The disruption budget web needs 1 healthy pods")
		},
	})}
	job := Holder{Claim: webPod().Claim, Devices: []string{gpuA}, Other: "jobs team/x"}
	alone := Holder{Claim: client.ObjectKey{Namespace: "team", Name: "other"}, Devices: []string{"gpu-b", "gpu-c"}, Other: "jobs team/y"}
	got, err := d.Blockers(t.Context(), []Holder{webPod(), webPod(), job, alone}, false)
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Equal(t, "web", got[0].Name)
	assert.Contains(t, got[0].Message, "The disruption budget web needs 1 healthy pods")
	for i, device := range alone.Devices {
		assert.Equal(t, v1beta1.Blocker{Kind: v1beta1.BlockerDevice, Name: device, Message: "reserved for jobs team/y by claim team/other"}, got[i+1])
	}
	assert.Equal(t, 1, asked)
}

func TestRefusalsAreRepeatedMoreSeldom(t *testing.T) {
	var e refusals
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

// budget is what the API server says to an eviction that a budget forbids.
func budget(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: "Cannot evict pod as it would violate the pod's disruption budget.",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "Other", Message: "of no use"}, {Type: policyv1.DisruptionBudgetCause, Message: message}}},
	}}
}

func TestWhatTheServerSaysAgainstAnEviction(t *testing.T) {
	for name, tt := range map[string]struct {
		err     error
		leaves  int
		fails   bool
		text    string
		counted string
	}{
		"it may":                 {leaves: 1, counted: "Evicted"},
		"gone":                   {err: apierrors.NewNotFound(corev1.Resource("pods"), "web")},
		"another":                {err: apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("uid"))},
		"a budget":               {err: budget("budget web"), text: "budget web", counted: "Refused"},
		"too often":              {err: apierrors.NewTooManyRequests("slow down", 3), text: "slow down", counted: "Refused"},
		"forbidden":              {err: apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("namespace ends")), text: `pods "web" is forbidden: namespace ends`, counted: "Refused"},
		"a webhook":              {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Message: "admission webhook says no"}}, text: "admission webhook says no", counted: "Refused"},
		"bad request":            {err: apierrors.NewBadRequest("admission webhook says no"), text: "admission webhook says no", counted: "Refused"},
		"logged out":             {err: apierrors.NewUnauthorized("token"), fails: true},
		"too slow":               {err: apierrors.NewTimeoutError("slow", 1), fails: true},
		"too slow, from a proxy": {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}, fails: true},
		"no answer":              {err: errors.New("connection refused"), fails: true},
		"away":                   {err: apierrors.NewServiceUnavailable("away"), fails: true},
		"two budgets":            {err: apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget")), text: "Internal error occurred: This pod has more than one PodDisruptionBudget", counted: "Refused"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := map[string]int{}
			var answers []string
			d := &Drainer{
				Clock: clocktesting.NewFakePassiveClock(noon), Count: func(answer string) { answers = append(answers, answer) },
				Client: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
					SubResourceCreate: func(_ context.Context, _ client.Client, resource string, _, _ client.Object, _ ...client.SubResourceCreateOption) error {
						asked[resource]++
						return tt.err
					},
				}),
			}
			h := webPod()
			leave, err := d.Evict(t.Context(), []Holder{h, h}, false)
			assert.Equal(t, tt.leaves, len(leave))
			assert.Equal(t, tt.fails, err != nil, err)
			assert.Equal(t, tt.text, d.refusals.refused("u1"))
			assert.Equal(t, name != "too often", d.refusals.due("u1", noon.Add(firstEvictionRetry)), "the server says when to ask again")
			assert.Equal(t, tt.counted, strings.Join(answers, " "))
			assert.Equal(t, map[string]int{"eviction": 1}, asked, "it holds two devices and is asked once")
		})
	}
}
