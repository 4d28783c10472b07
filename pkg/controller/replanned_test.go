package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// The second plan names more GPUs: they are tainted before anybody leaves.
func TestASecondPlanThatNeedsMoreGPUs(t *testing.T) {
	w, node := begun(t)
	w.pod("node-a", "late", gpuB, gpuB)
	node.second = func(sw *v1beta1.Switch) ([]v1beta1.GPUChange, []string) {
		return []v1beta1.GPUChange{{GPU: gpuA}, {GPU: gpuB}}, nil
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Draining))
	assert.Equal(t, []string{gpuA, gpuB}, n.Status.Switch.GPUs)
	assert.Equal(t, int32(2), n.Status.Switch.TaintGeneration)
	assert.Equal(t, map[string]string{gpuA: "cpx", gpuB: "cpx"}, w.taintedGPUs("node-a"))
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.False(t, w.podThere("late"))
}

// A pod that the second plan keeps is not evicted for what the first one said.
func TestThePlanOfBeforeEvictsNobody(t *testing.T) {
	w, node := begun(t)
	node.second = func(*v1beta1.Switch) ([]v1beta1.GPUChange, []string) {
		return []v1beta1.GPUChange{{GPU: gpuA, KeptDevices: []string{gpuA + deviceOf}}}, []string{gpuB}
	}
	node.kept = []string{gpuA + deviceOf}
	w.wants("node-a", "cpx")
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.True(t, w.podThere("web"))
}

// A plugin that died while the node waited for its turn: nobody is disturbed, and others
// get their turn.
func TestASwitchOfASilentPluginDisturbsNobody(t *testing.T) {
	w, node := begun(t, withNodeTaint)
	w.addNode("node-b")
	w.settled("node-b", "")
	w.pod("node-b", "other", gpuA, gpuA)
	w.evict = refuse("no")
	w.wants("node-b", "cpx")
	w.run("node-b", time.Minute, is(v1beta1.Draining))
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, pending)
	node.dead = true
	w.evict = nil
	w.run("node-b", time.Minute, inProfile("cpx"))
	n := w.run("node-a", 5*time.Minute, func(n *v1beta1.GPUNode) bool {
		assert.False(t, hasNodeTaint(w.node("node-a")))
		return n.Status.State == v1beta1.Failed
	})
	assert.Equal(t, names.ReasonPluginSilent, ready(n).Reason)
	assert.True(t, w.podThere("web"))
	assert.False(t, w.busy("node-a"))
	assert.Empty(t, w.taintedGPUs("node-a"))
}

// A profile that is edited while pods leave keeps the taints until its own plan is known.
func TestAnEditInTheMiddleKeepsTheTaints(t *testing.T) {
	w, _ := begun(t)
	w.evict = refuse("no")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Draining))
	id := n.Status.Switch.ID
	w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
	n = w.run("node-a", time.Minute, func(n *v1beta1.GPUNode) bool {
		assert.NotEmpty(t, w.taintedGPUs("node-a"), "in state %s", n.Status.State)
		assert.True(t, w.busy("node-a"))
		return n.Status.State == v1beta1.Draining && n.Status.Switch.ID != id
	})
	assert.Equal(t, int32(2), n.Status.Switch.TaintGeneration)
	w.evict = nil
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
	assert.Equal(t, 1, w.budgetSeen)
}

// A controller that has just begun to lead begins no switch to a profile of before.
func TestACacheThatIsLateBeginsNoSwitch(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, inProfile("cpx"))
	w.wants("node-a", "old")
	w.freeze() // The label names the profile old.
	w.wants("node-a", "cpx")
	w.startController()
	id := len(w.gpuNode("node-a").Status.History)
	for range 5 {
		w.round("node-a")
	}
	n := w.gpuNode("node-a")
	assert.Nil(t, n.Status.Switch)
	assert.Len(t, n.Status.History, id)
	w.thaw()
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

// A GPUNode that the cache does not have yet is not gone.
func TestTheTaintOfANodeGoesWithItsGPUNode(t *testing.T) {
	w, node := switching(t, v1beta1.Draining, withNodeTaint)
	w.round("node-a")
	w.freeze()
	require.NoError(t, w.stale.Delete(t.Context(), w.gpuNode("node-a")))
	w.round("node-a")
	assert.True(t, hasNodeTaint(w.node("node-a")))
	w.thaw()
	node.dead = true
	require.NoError(t, w.api.Delete(t.Context(), w.gpuNode("node-a")))
	w.round("node-a")
	assert.False(t, hasNodeTaint(w.node("node-a")))
	assert.Empty(t, w.r.memory.nodes)
}

// A GPU that fails after each boot must not have the node reboot for ever.
func TestANodeIsRebootedOnce(t *testing.T) {
	w, node := begun(t, func(p *v1beta1.PartitionProfile) {
		p.Spec.Switch = &v1beta1.SwitchPolicy{Reboot: v1beta1.RebootIfRequired}
	})
	reboots := 0
	node.answer = func(_ *v1beta1.Switch, s v1beta1.State) (v1beta1.TaskPhase, string, string) {
		switch s {
		case v1beta1.Applying:
			return v1beta1.TaskRebootRequired, names.ReasonRebootRequired, "refuses a reset"
		case v1beta1.Rebooting:
			reboots++
			node.basis += "x" // It is another GPU after each boot.
			return v1beta1.TaskFailed, names.ReasonHardwareFailed, "EIO"
		}
		return "", "", ""
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Failed))
	assert.Contains(t, ready(n).Message, "is not rebooted again automatically")
	w.passes(12*60, time.Minute, "node-a")
	assert.Equal(t, 1, reboots)
	node.answer = nil
	w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

// A pod that came in the last moment has a device that there is not any more. A pod that got a device
// of the new profile stays. So it is, too, if free devices were not published because another claim
// tolerates the taint.
func TestAPodWhoseDeviceIsGoneLeaves(t *testing.T) {
	for name, tolerates := range map[string]bool{"devices are tainted": false, "devices are withheld": true} {
		t.Run(name, func(t *testing.T) {
			w, node := begun(t)
			if tolerates {
				w.pod("node-a", "tolerates", gpuA, gpuA+deviceOf, func(_ *corev1.Pod, c *resourceapi.ResourceClaim) {
					c.Status.Allocation.Devices.Results[0].Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
				})
			}
			withheld := false
			node.answer = func(sw *v1beta1.Switch, s v1beta1.State) (v1beta1.TaskPhase, string, string) {
				if s == v1beta1.Applying && !w.podThere("stray") {
					withheld = sw.Withhold
					node.gone = []string{gpuA + "-mig-1g-10gb-6"}
					node.kept = []string{gpuA, gpuA + "-mig-1g-10gb-6"}
					w.pod("node-a", "stray", gpuA, gpuA+"-mig-1g-10gb-6")
					w.pod("node-a", "fine", gpuA, gpuA)
				}
				return "", "", ""
			}
			w.wants("node-a", "cpx")
			w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
			assert.Equal(t, tolerates, withheld)
			assert.False(t, w.podThere("stray"))
			assert.True(t, w.podThere("fine"))
		})
	}
}
