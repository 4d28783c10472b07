package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// A node that waits for its turn, and then is to keep what it has, holds nobody's place.
func TestANodeThatKeepsItsProfileHoldsNoPlace(t *testing.T) {
	for name, keep := range map[string]func(*world){
		"disabled": func(w *world) {
			g := w.gpuNode("node-1")
			g.Spec.Enabled = ptr.To(false)
			require.NoError(t, w.api.Update(t.Context(), g))
		},
		"profile deleted": func(w *world) {
			require.NoError(t, w.api.Delete(t.Context(), &v1alpha1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "spx"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := planned(t, 3)
			w.pod("node-0", "web", gpuA, gpuA)
			w.wants("node-0", "cpx")
			w.run("node-0", time.Minute, func(g *v1alpha1.GPUNode) bool { return g.Status.State == v1alpha1.Draining })
			w.wants("node-1", "spx")
			w.round("node-1")
			keep(w)
			w.round("node-1")
			w.run("node-0", time.Minute, inProfile("cpx"))
			for range 5 {
				w.clock.Step(time.Second)
				w.all()
			}
			w.wants("node-2", "cpx")
			w.run("node-2", time.Minute, inProfile("cpx"))
			assert.Equal(t, []string{"node-1"}, w.have(names.DefaultProfile))
		})
	}
}

// A plan whose status cannot be written keeps the next controller from nothing else.
func TestAPlanThatIsRefusedHoldsUpNoOther(t *testing.T) {
	w := planned(t, 2)
	w.plan("p", func(s *v1alpha1.PartitionPlanSpec) {
		s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"none": ""}}
	})
	w.refuse = func(verb string, o client.Object) error {
		if _, ok := o.(*v1alpha1.PartitionPlan); ok && verb == "status" {
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("partitionplans").GroupResource(), o.GetName(), assert.AnError)
		}
		return nil
	}
	w.startController()
	w.wants("node-0", "cpx")
	w.run("node-0", time.Minute, inProfile("cpx"))
}

// A selector that became invalid takes no node from its plan.
func TestAnInvalidSelectorKeepsItsNodes(t *testing.T) {
	w := planned(t, 2)
	w.label("node-0", "pool", "a")
	w.plan("p", func(s *v1alpha1.PartitionPlanSpec) {
		s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	})
	w.rolls("p", time.Minute, because(names.ReasonComplete))
	w.plan("p", func(s *v1alpha1.PartitionPlanSpec) {
		s.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "in", Values: []string{"a"}}}
	})
	s := w.rolls("p", time.Minute, because(names.ReasonInvalidSelector))
	for range 5 {
		w.clock.Step(time.Second)
		w.all()
	}
	assert.EqualValues(t, 1, s.Nodes.Selected)
	assert.Equal(t, []string{"node-0"}, w.have("cpx"))
}

// Nodes report their status every few minutes. That changes no decision.
func TestWhatMattersToPlans(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: map[string]string{"pool": "a"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		change(n)
		return n
	}
	before := node(func(*corev1.Node) {})
	assert.False(t, matters(before, node(func(n *corev1.Node) { n.ResourceVersion = "2" })))
	assert.True(t, matters(before, node(func(n *corev1.Node) { n.Labels["pool"] = "b" })))
	assert.True(t, matters(before, node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })))
	gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	assert.False(t, matters(gpuNode, gpuNode))
	assert.True(t, matters(gpuNode, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}}))
}
