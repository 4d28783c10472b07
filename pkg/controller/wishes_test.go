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
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// The node's label sets spec.profileName, and without it nothing is set.
func TestTheLabelHasPrecedence(t *testing.T) {
	w, _ := begun(t)
	n := w.gpuNode("node-a")
	n.Spec.ProfileName = "cpx"
	require.NoError(t, w.api.Update(t.Context(), n))
	w.round("node-a")
	n = w.gpuNode("node-a")
	w.stays(n, "old")
	assert.Equal(t, "old", n.Spec.ProfileName)
	assert.Equal(t, names.LabelProfile+"=old", n.Annotations[names.AnnotationProfileFrom])

	w.wants("node-a", "")
	w.run("node-a", time.Minute, inProfile(""))
	n = w.gpuNode("node-a")
	n.Spec.ProfileName = "cpx"
	require.NoError(t, w.api.Update(t.Context(), n))
	n = w.run("node-a", time.Minute, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.Equal(t, v1beta1.FromSpec, n.Status.Applied.Source)
	assert.True(t, meta.IsStatusConditionFalse(n.Status.Conditions, names.ConditionOverridden))
}

func TestTheProfileChangedAgainInTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		state   v1beta1.State
		records int
	}{{v1beta1.Planning, 2}, {v1beta1.Draining, 3}, {v1beta1.Applying, 3}, {v1beta1.Verifying, 3}} {
		t.Run(string(tt.state), func(t *testing.T) {
			w, node := switching(t, tt.state)
			w.profile("spx")
			w.wants("node-a", "spx")
			w.evict, node.wrong = nil, false
			n := w.run("node-a", time.Minute, inProfile("spx"))
			w.stays(n, "spx")
			assert.Len(t, n.Status.History, tt.records)
		})
	}
}

func TestAnotherOwner(t *testing.T) {
	w, node := begun(t)
	node.slow = 5 * time.Second
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Applying))
	assert.Regexp(t, "from profile old to profile cpx: the node's plugin changes "+gpuA+".* at the latest, then it is rolled back", ready(n).Message)
	node.owners = []v1beta1.OtherSystem{{Name: "mig-manager", Message: "mig-manager runs on this node: take its pod off"}}
	node.slow = 0
	n = w.run("node-a", time.Minute, is(v1beta1.Idle))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonOtherSystem, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "other systems serve GPUs of the node, so Tranche does not change their modes and partitions: mig-manager runs on this node: take its pod off")
	conflict := meta.FindStatusCondition(n.Status.Conditions, names.ConditionConflicted)
	assert.Equal(t, metav1.ConditionTrue, conflict.Status)
	assert.Equal(t, ready(n).Message, conflict.Message)
	assert.Equal(t, v1beta1.ResultRolledBack, n.Status.History[0].Result)

	node.owners = nil
	w.stays(w.run("node-a", time.Hour, inProfile("cpx")), "cpx")
}

func TestANodeOfTheControlPlane(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.label("node-a", rollout.ControlPlaneLabel, "")
	w.changeNode("node-a", func(n *corev1.Node) { n.Labels = map[string]string{rollout.ControlPlaneLabel: ""} })
	w.profile("cpx")
	w.profile("default")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Idle))
	n := w.gpuNode("node-a")
	assert.Nil(t, n.Status.Applied)
	assert.Contains(t, meta.FindStatusCondition(n.Status.Conditions, names.ConditionOverridden).Message, "only spec.profileName of the GPUNode counts")

	n.Spec.ProfileName = "cpx"
	require.NoError(t, w.api.Update(t.Context(), n))
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

func TestLeftoversAreSweptUp(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.settled("node-a", "")
	w.changeNode("node-a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: names.TaintNodeSwitching, Value: "x", Effect: corev1.TaintEffectNoSchedule}}
		n.Labels = map[string]string{"nvidia.com/gpu.deploy.dcgm": names.PausedValue}
	})
	w.round("node-a")
	_, err := w.r.Reconcile(t.Context(), requestFor("gone"))
	require.NoError(t, err)
	w.clean("node-a")
	assert.Equal(t, "true", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm"])
}
