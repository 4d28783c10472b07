package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// onlyFor refuses evictions of one pod.
func onlyFor(name string) func(types.NamespacedName) error {
	return func(pod types.NamespacedName) error {
		if pod.Name == name {
			return refuse("The disruption budget web needs 1 healthy pods and has 1 currently")(pod)
		}
		return nil
	}
}

// One pod that cannot leave must not cost the others their GPU, neither once nor again
// and again.
func TestNobodyIsEvictedBesideAPodThatCannotLeave(t *testing.T) {
	w, _ := begun(t)
	w.pod("node-a", "innocent", gpuA, gpuA+"-mig-1g-10gb-6")
	w.blocks(onlyFor("web"))
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonDrainBlocked, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "no pod was evicted, because these cannot be: pod team/web: The disruption budget web needs 1 healthy pods")
	assert.Equal(t, []v1beta1.Blocker{{
		Kind: v1beta1.BlockerPod, Namespace: "team", Name: "web", UID: "pod-web", Message: "The disruption budget web needs 1 healthy pods and has 1 currently",
	}}, n.Status.Switch.Blockers)
	assert.Zero(t, n.Status.History[0].EvictedPodCount)

	id, tries := n.Status.Switch.ID, w.writes["try eviction *v1.Pod"]
	w.passes(24*60, time.Minute, "node-a")
	n = w.gpuNode("node-a")
	assert.Equal(t, id, n.Status.Switch.ID, "it is not tried again while the pod cannot leave")
	assert.Zero(t, w.writes["eviction *v1.Pod"])
	assert.Empty(t, w.taintedGPUs("node-a"))
	more := w.writes["try eviction *v1.Pod"] - tries
	assert.Greater(t, more, 24, "it is looked at every half an hour")
	assert.Less(t, more, 60, "and not much more often")

	w.blocks(nil)
	w.stays(w.run("node-a", 31*time.Minute, inProfile("cpx")), "cpx")
	assert.False(t, w.podThere("innocent"))
}

func TestABlockedSwitchIsTriedAgain(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the pod is gone": func(w *world) {
			require.NoError(w.t, w.api.Delete(w.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}))
		},
		"another policy": func(w *world) {
			w.tryEvict = nil
			w.profile("cpx", func(p *v1beta1.PartitionProfile) {
				p.Spec.Switch = &v1beta1.SwitchPolicy{AfterDeadline: v1beta1.Force, DrainDeadline: &metav1.Duration{Duration: time.Second}}
			})
		},
		"another profile": func(w *world) {
			w.blocks(nil)
			w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := begun(t)
			w.blocks(onlyFor("web"))
			w.wants("node-a", "cpx")
			w.run("node-a", time.Minute, is(v1beta1.Failed))
			change(w)
			w.stays(w.run("node-a", 5*time.Minute, inProfile("cpx")), "cpx")
		})
	}
}

// A claim that changes has the blockers looked at soon, and not all the time.
func TestAClaimWakesABlockedSwitch(t *testing.T) {
	w, _ := begun(t)
	w.blocks(onlyFor("web"))
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Failed))
	w.passes(200, time.Minute, "node-a")
	var claim resourceapi.ResourceClaim
	require.NoError(t, w.api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "web-gpu"}, &claim))
	before := w.writes["try eviction *v1.Pod"]
	for range 100 {
		require.Len(t, w.r.requestsForClaim(t.Context(), &claim), 1)
		w.round("node-a")
	}
	assert.LessOrEqual(t, w.writes["try eviction *v1.Pod"]-before, 1)
	w.blocks(nil)
	w.clock.Step(leastLook)
	w.r.requestsForClaim(t.Context(), &claim)
	w.round("node-a")
	assert.NotEqual(t, v1beta1.Failed, w.gpuNode("node-a").Status.State)
}

// The plugin reports that a pod has left while the controller writes that it may begin: what the
// controller saw is looked at again soon.
func TestALookThatIsLostIsRepeatedSoon(t *testing.T) {
	w, _ := begun(t)
	w.blocks(onlyFor("web"))
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Failed))
	w.passes(10, time.Minute, "node-a")
	var claim resourceapi.ResourceClaim
	require.NoError(t, w.api.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "web-gpu"}, &claim))
	w.blocks(nil)
	w.r.requestsForClaim(t.Context(), &claim)
	conflicts := 0
	w.refuse = func(verb string, o client.Object) error {
		if _, ok := o.(*v1beta1.GPUNode); ok && verb == "status" && conflicts == 0 {
			conflicts++
			return apierrors.NewConflict(v1beta1.GroupVersion.WithResource("gpunodes").GroupResource(), o.GetName(), assert.AnError)
		}
		return nil
	}
	w.round("node-a")
	require.Equal(t, 1, conflicts)
	w.clock.Step(leastLook)
	w.round("node-a")
	assert.NotEqual(t, v1beta1.Failed, w.gpuNode("node-a").Status.State)
}

// A budget that lets its pods go one after the other blocks nobody.
func TestABudgetForOneAtATimeIsNoBlocker(t *testing.T) {
	w, _ := begun(t)
	w.pod("node-a", "second", gpuA, gpuA+"-mig-1g-10gb-6")
	last := time.Time{}
	w.evict = func(pod types.NamespacedName) error {
		if w.clock.Now().Sub(last) < 20*time.Second {
			return refuse("one at a time")(pod)
		}
		last = w.clock.Now()
		return nil
	}
	w.wants("node-a", "cpx")
	w.stays(w.run("node-a", 5*time.Minute, inProfile("cpx")), "cpx")
}

// Anybody can write the annotation of mirror pods and an owner, but no static pod has a
// claim. A pod that pretends to be one must not block a switch.
func TestAPodThatPretendsToBeStaticIsAskedToLeave(t *testing.T) {
	w, _ := begun(t)
	w.pod("node-a", "pretender", gpuA, gpuA+"-mig-1g-10gb-6", func(p *corev1.Pod, _ *resourceapi.ResourceClaim) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "node-node-a", Controller: ptr.To(true)}}
	})
	w.wants("node-a", "cpx")
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.False(t, w.podThere("pretender"))
}

// A budget that allows the dry run and not the eviction costs the others one eviction, and no
// second one, whatever its owner does. Another policy is tried at once.
func TestADrainThatEndedEvictsNobodyAgain(t *testing.T) {
	w, _ := begun(t)
	w.evict = onlyFor("web")
	w.pod("node-a", "other", gpuA, gpuA+"-mig-1g-10gb-6")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, is(v1beta1.Failed))
	assert.Equal(t, names.ReasonDrainDeadline, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "web")
	assert.Nil(t, n.Status.Switch.RetryTime)
	assert.Empty(t, n.Status.Switch.Blockers)
	assert.False(t, w.podThere("other"))
	w.blocks(nil)
	w.pod("node-a", "next", gpuA, gpuA+"-mig-1g-10gb-6")
	w.passes(12*60, time.Minute, "node-a")
	assert.True(t, w.podThere("next"))
	assert.Equal(t, n.Status.Switch.ID, w.gpuNode("node-a").Status.Switch.ID)
	w.profile("cpx", func(p *v1beta1.PartitionProfile) {
		p.Spec.Switch = &v1beta1.SwitchPolicy{DrainDeadline: &metav1.Duration{Duration: time.Hour}}
	})
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}
