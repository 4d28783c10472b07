package controller

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

func withStartupTaint(w *world) { w.opts.StartupTaint = names.TaintStartup }

// register gives a node the taints that new nodes register with.
func (w *world) register(name string) {
	w.t.Helper()
	n := w.node(name)
	n.Spec.Taints = []corev1.Taint{
		{Key: names.TaintStartup, Effect: corev1.TaintEffectNoSchedule},
		{Key: names.TaintStartup, Effect: corev1.TaintEffectNoExecute},
		{Key: "example.com/dedicated", Effect: corev1.TaintEffectNoSchedule},
	}
	require.NoError(w.t, w.api.Update(w.t.Context(), n))
}

func (w *world) starting(name string) bool { return hasTaint(w.node(name), names.TaintStartup) }

// A new node keeps the taint until its profile is applied, and other taints for good.
func TestStartupTaintGoesWhenTheProfileIsApplied(t *testing.T) {
	for name, profile := range map[string]string{"with a profile": "cpx", "without a profile": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withStartupTaint)
			w.addNode("node-a")
			w.register("node-a")
			if profile != "" {
				w.profile(profile)
				w.wants("node-a", profile)
			}
			w.run("node-a", time.Hour, func(n *v1beta1.GPUNode) bool {
				if n.Status.State != v1beta1.Idle {
					assert.True(t, w.starting("node-a"), n.Status.State)
				}
				return !w.starting("node-a")
			})
			assert.True(t, inProfile(profile)(w.gpuNode("node-a")))
			assert.True(t, hasTaint(w.node("node-a"), "example.com/dedicated"))
		})
	}
}

// It stays while the devices are not those that the plugin reports, while slices belong to an
// earlier node with the same name, and while the profile does not exist.
func TestStartupTaintStays(t *testing.T) {
	for name, prepare := range map[string]func(*world, *fakeNode){
		"other devices": func(_ *world, n *fakeNode) { n.wrong = true },
		"no devices":    func(_ *world, n *fakeNode) { n.quick = true },
		"no profile":    func(w *world, _ *fakeNode) { w.wants("node-a", "missing") },
		"earlier node": func(w *world, _ *fakeNode) {
			n := w.node("node-a")
			n.UID = "another"
			require.NoError(w.t, w.api.Update(w.t.Context(), n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withStartupTaint)
			n := w.addNode("node-a")
			prepare(w, n)
			if n.quick {
				require.NoError(t, w.api.DeleteAllOf(t.Context(), &resourceapi.ResourceSlice{}))
			}
			w.register("node-a")
			w.passes(20, time.Second, "node-a")
			assert.True(t, w.starting("node-a"))
		})
	}
}

// A node whose driver is being installed is not looked at every second until then, and gets rid of
// the taint soon after.
func TestStartupTaintIsLookedAtEverMoreSeldom(t *testing.T) {
	w := newWorld(t, withStartupTaint)
	n := w.addNode("node-a")
	n.quick = true
	require.NoError(t, w.api.DeleteAllOf(t.Context(), &resourceapi.ResourceSlice{}))
	w.register("node-a")
	lists := 0
	w.list = func(list client.ObjectList, _ *client.ListOptions) bool {
		if _, ok := list.(*resourceapi.ResourceSliceList); ok {
			lists++
		}
		return false
	}
	for end := w.clock.Now().Add(30 * time.Minute); w.clock.Now().Before(end); {
		wait := w.round("node-a")
		w.clock.Step(cmp.Or(wait, time.Minute))
	}
	assert.Less(t, lists, 120)
	n.quick = false
	w.run("node-a", lastStartupLook+time.Second, func(*v1beta1.GPUNode) bool { return !w.starting("node-a") })
}

// Without a key the controller leaves all taints of others alone.
func TestNoStartupTaint(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.register("node-a")
	before := slices.Clone(w.node("node-a").Spec.Taints)
	w.settled("node-a", "")
	assert.Equal(t, before, w.node("node-a").Spec.Taints)
}
