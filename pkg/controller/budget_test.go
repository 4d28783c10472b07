package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
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

// ready sets the condition Ready of a node.
func (w *world) ready(node string, status corev1.ConditionStatus) {
	n := w.node(node)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), n))
}

// pending reports whether a node waits for its rollout.
func pending(n *v1beta1.GPUNode) bool {
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
	w.run("node-a", time.Minute, is(v1beta1.Draining))
	n := w.run("node-b", time.Minute, pending)
	why := meta.FindStatusCondition(n.Status.Conditions, names.ConditionRolloutPending)
	assert.Equal(t, names.ReasonWaitsForNodes, why.Reason)
	assert.Equal(t, "the switch to profile cpx waits for other nodes: 1 may be switched at once (the chart's controller.maxUnavailable)", why.Message)
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
	w.twoNodes("cpx")
	w.evict = refuse("no")
	w.pod("node-a", "web", gpuA, gpuA)
	earlier := w.r
	w.startController()
	require.NoError(t, w.r.Plans.Begin(t.Context()))
	later := w.r
	w.r = earlier
	w.run("node-a", time.Minute, is(v1beta1.Draining))
	w.r = later
	w.round("node-a")
	w.run("node-b", time.Minute, pending)
	w.evict = nil
	w.run("node-a", time.Minute, inProfile("cpx"))
	w.run("node-b", time.Minute, inProfile("cpx"))
	assert.Equal(t, 1, w.budgetSeen)
}

// The controller dies after it has written an admission, and the profile changes meanwhile: the next
// controller takes the place back before another node gets it.
func TestAnAdmissionThatIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the profile changes":      func(w *world) { w.wants("node-a", "") },
		"the node is not ready":    func(w *world) { w.ready("node-a", corev1.ConditionFalse) },
		"its plugin does not work": func(w *world) { w.nodes["node-a"].dead = true },
		"another profile":          func(w *world) { w.wants("node-a", "spx") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.profile("cpx")
			w.profile("spx")
			w.twoNodes("")
			w.wants("node-a", "cpx")
			w.byHand = true
			w.round("node-a")
			w.decide("node-a")
			require.NotEmpty(t, w.gpuNode("node-a").Status.AdmittedHash)
			w.startController()
			w.byHand = false
			change(w)
			w.wants("node-b", "cpx")
			w.run("node-b", 5*time.Minute, func(n *v1beta1.GPUNode) bool {
				w.round("node-a")
				return inProfile("cpx")(n)
			})
			assert.Equal(t, 1, w.budgetSeen)
		})
	}
}

// A node that begins while a decision takes its place away keeps it, and nobody else is admitted.
func TestANodeThatBeginsWhileItsAdmissionIsWithdrawn(t *testing.T) {
	w := newWorld(t)
	w.profile("cpx")
	w.twoNodes("cpx")
	w.pod("node-a", "web", gpuA, gpuA)
	w.evict = refuse("no")
	w.round("node-a")
	w.round("node-b")
	w.freeze()
	w.byHand = true
	w.run("node-a", time.Minute, is(v1beta1.Draining))
	// By its cache, the controller can still give the place to another node.
	for _, name := range []string{"node-a", "node-b"} {
		var n corev1.Node
		require.NoError(t, w.stale.Get(t.Context(), client.ObjectKey{Name: name}, &n))
		ready := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[name == "node-b"]
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		require.NoError(t, w.stale.Status().Update(t.Context(), &n))
	}
	w.decide("")
	assert.NotEmpty(t, w.gpuNode("node-a").Status.AdmittedHash)
	assert.Empty(t, w.gpuNode("node-b").Status.AdmittedHash)
	w.thaw()
	w.byHand, w.evict = false, nil
	w.run("node-a", time.Minute, inProfile("cpx"))
	w.run("node-b", time.Minute, inProfile("cpx"))
	assert.Equal(t, 1, w.budgetSeen)
}

// A node whose admission can be neither used nor withdrawn blocks no other, and does not begin while
// another has its place.
func TestAnAdmissionThatCannotBeWithdrawn(t *testing.T) {
	w := newWorld(t)
	w.profile("cpx")
	w.twoNodes("cpx")
	w.round("node-a")
	require.NotEmpty(t, w.gpuNode("node-a").Status.AdmittedHash)
	w.refuse = func(verb string, o client.Object) error {
		if verb == "status" && o.GetName() == "node-a" {
			return apierrors.NewInvalid(v1beta1.GroupVersion.WithKind("GPUNode").GroupKind(), o.GetName(), nil)
		}
		return nil
	}
	w.evict = refuse("no")
	w.pod("node-b", "web", gpuA, gpuA)
	w.run("node-b", 5*time.Minute, func(n *v1beta1.GPUNode) bool {
		w.round("node-a")
		return n.Status.State == v1beta1.Draining
	})
	w.refuse = nil
	w.passes(20, time.Second, "node-a")
	w.evict = nil
	w.run("node-b", time.Minute, inProfile("cpx"))
	w.run("node-a", time.Minute, inProfile("cpx"))
	assert.Equal(t, 1, w.budgetSeen)
}

// A node whose status is refused is left alone for a while, and then begins by itself.
func TestARefusedAdmissionIsNotRetriedAllTheTime(t *testing.T) {
	w := newWorld(t)
	w.profile("cpx")
	w.addNode("node-a")
	w.settled("node-a", "")
	w.wants("node-a", "cpx")
	w.byHand = true
	w.round("node-a")
	w.decide("node-a")
	require.NotEmpty(t, w.gpuNode("node-a").Status.AdmittedHash)
	refused := 0
	w.refuse = func(verb string, o client.Object) error {
		if _, ok := o.(*v1beta1.GPUNode); ok && verb == "status" {
			refused++
			return apierrors.NewInvalid(v1beta1.GroupVersion.WithKind("GPUNode").GroupKind(), o.GetName(), nil)
		}
		return nil
	}
	w.round("node-a")
	require.Equal(t, 1, refused)
	for range 20 {
		w.decide("node-a")
		w.clock.Step(decideAfter)
	}
	assert.Equal(t, 1, refused)
	w.refuse = nil
	w.clock.Step(10 * time.Second)
	assert.True(t, w.decide("node-a"), "nothing else would wake it")
	w.byHand = false
	w.run("node-a", time.Minute, inProfile("cpx"))
}

// A decision that waits for the API server holds up no reconciliation.
func TestADecisionHoldsUpNoNode(t *testing.T) {
	w := newWorld(t)
	w.profile("cpx")
	w.twoNodes("")
	w.wants("node-a", "cpx")
	w.byHand = true
	w.round("node-a")
	writing, answer, decided := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.lose = func() error {
		w.lose = nil
		w.mu.Unlock()
		close(writing)
		<-answer
		w.mu.Lock()
		return nil
	}
	go func() {
		defer close(decided)
		_, err := w.r.Plans.Decide(t.Context())
		assert.NoError(t, err)
	}()
	<-writing
	_, err := w.r.Reconcile(t.Context(), requestFor("node-b"))
	require.NoError(t, err)
	close(answer)
	<-decided
}

// A switch ends though somebody has deleted the Node: nothing of it is left to remove.
func TestANodeThatIsGoneIsReleased(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.r.release(t.Context(), "gone", &v1beta1.Switch{}))
}

func TestMonitoringThatMayBePaused(t *testing.T) {
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
