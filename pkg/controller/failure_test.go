package controller

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// refuse is what the API server says to an eviction that a budget forbids.
func refuse(message string) func(types.NamespacedName) error {
	return func(types.NamespacedName) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Message: "Cannot evict pod as it would violate the pod's disruption budget.",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: message}}},
		}}
	}
}

// idle is a world with a node in no profile, and a profile cpx.
func idle(t *testing.T) *world {
	w := newWorld(t)
	w.addNode("node-a")
	w.profile("cpx")
	w.settled("node-a", "")
	return w
}

// begun is a world with a node that follows the profile old, a profile cpx, and a pod on its
// first GPU.
func begun(t *testing.T, change ...func(*v1beta1.PartitionProfile)) (*world, *fakeNode) {
	w := newWorld(t)
	n := w.addNode("node-a")
	w.profile("old")
	w.wants("node-a", "old")
	w.settled("node-a", "old")
	w.profile("cpx", change...)
	w.pod("node-a", "web", gpuA, gpuA+deviceOf)
	return w, n
}

// switching is a world with a node that is in a state of its way from the profile old to cpx, and
// has what keeps it there for a while.
func switching(t *testing.T, state v1beta1.State, change ...func(*v1beta1.PartitionProfile)) (*world, *fakeNode) {
	w, node := begun(t, change...)
	node.slow = time.Second
	switch state {
	case v1beta1.Tainted:
		w.refuse = refuseNodes
	case v1beta1.Draining, v1beta1.Failed:
		w.evict = refuse("no")
	case v1beta1.Verifying:
		node.wrong = true
	case v1beta1.RollingBack:
		node.answer = applyingEnds(v1beta1.TaskFailed, names.ReasonHardwareFailed, "EIO")
	}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Hour, is(state))
	return w, node
}

// stays checks that a node has ended in its old profile.
func (w *world) stays(n *v1beta1.GPUNode, profile string) {
	w.t.Helper()
	w.clean(n.Name)
	require.NotNil(w.t, n.Status.Applied)
	assert.Equal(w.t, profile, n.Status.Applied.ProfileName)
	assert.Equal(w.t, n.Status.Applied.Hash, w.nodes[n.Name].applied, "the hardware")
}

func TestAProfileThatDoesNotExist(t *testing.T) {
	w, _ := begun(t)
	w.wants("node-a", "cpc")
	w.round("node-a")
	n := w.gpuNode("node-a")
	assert.Equal(t, v1beta1.Idle, n.Status.State)
	assert.Equal(t, names.ReasonProfileNotFound, ready(n).Reason)
	assert.Equal(t, "the node's label tranche.dev/profile=cpc names PartitionProfile cpc, which does not exist; existing profiles: cpx, old; it keeps profile old", ready(n).Message)
	w.stays(n, "old")
	assert.True(t, w.podThere("web"))

	w.profile("cpc")
	w.stays(w.run("node-a", time.Minute, inProfile("cpc")), "cpc")

	w = newWorld(t)
	w.profile("cpx")
	w.addNode("node-a")
	w.settled("node-a", "")
	n = w.gpuNode("node-a")
	n.Spec.ProfileName = "cpc"
	require.NoError(t, w.api.Update(t.Context(), n))
	w.round("node-a")
	assert.Equal(t, "the GPUNode's spec.profileName names PartitionProfile cpc, which does not exist; existing profiles: cpx; the GPUs do not change", ready(w.gpuNode("node-a")).Message)
}

// A node goes on from what it has.
func TestAStatusWhoseSwitchSomebodyHasRemoved(t *testing.T) {
	for _, state := range []v1beta1.State{v1beta1.Planning, v1beta1.Waiting, v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying, v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack, v1beta1.Failed} {
		t.Run(string(state), func(t *testing.T) {
			w, _ := begun(t)
			n := w.gpuNode("node-a")
			n.Status.State, n.Status.Switch = state, nil
			require.NoError(t, w.api.Status().Update(t.Context(), n))
			w.wants("node-a", "cpx")
			w.stays(w.run("node-a", time.Hour, inProfile("cpx")), "cpx")
		})
	}
}

func TestAProfileThatDoesNotFitTheGPU(t *testing.T) {
	w, node := begun(t)
	node.answer = func(_ *v1beta1.Switch, s v1beta1.State) (v1beta1.TaskPhase, string, string) {
		return v1beta1.TaskRefused, names.ReasonProfileDoesNotFit, gpuA + ": an H100 has no profile 9g"
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.True(t, w.podThere("web"), "nothing was touched")
	assert.Equal(t, names.ReasonProfileDoesNotFit, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "no profile 9g")
	assert.Contains(t, ready(n).Message, "retried when the profile, its policy, the GPUs or the plugin's settings change")

	w.passes(100, time.Minute, "node-a")
	assert.Equal(t, n.Status.Switch.ID, w.gpuNode("node-a").Status.Switch.ID, "not tried again")

	node.answer = nil
	w.profile("cpx", func(p *v1beta1.PartitionProfile) { p.Spec.Rules = nil })
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}

func TestAPodThatToleratesEverythingAndNeverLeaves(t *testing.T) {
	w, _ := begun(t)
	require.NoError(t, w.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}))
	w.pod("node-a", "stuck", gpuA, gpuA, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		p.Finalizers = []string{"example.com/never"}
		c.Status.Allocation.Devices.Results[0].Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	})
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonDrainDeadline, ready(n).Reason)
	assert.Regexp(t, "could not be applied: not all pods left the GPUs within [0-9hms]+: ", ready(n).Message)
	assert.Contains(t, ready(n).Message, "pod team/stuck ("+gpuA+") is ending, and finalizers keep it: example.com/never")
	assert.Contains(t, ready(n).Message, "The node is unchanged, with profile old. Pods were evicted for it, and are not evicted again automatically. It is retried when the profile, its policy")
	assert.Equal(t, 1, w.writes["eviction *v1.Pod"], "it is not evicted twice")
}

func TestABudgetThatForbidsEviction(t *testing.T) {
	w, _ := begun(t)
	w.evict = refuse("The disruption budget web needs 1 healthy pods and has 1 currently")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.True(t, w.podThere("web"))
	assert.Equal(t, names.ReasonDrainDeadline, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "The disruption budget web needs 1 healthy pods")
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "node-a Warning DrainDeadline: profile cpx could not be applied")

	w.evict = nil
	n = w.run("node-a", time.Hour, inProfile("cpx"))
	w.stays(n, "cpx")
}

func withForce(p *v1beta1.PartitionProfile) {
	p.Spec.Switch = &v1beta1.SwitchPolicy{AfterDeadline: v1beta1.Force, DrainDeadline: &metav1.Duration{Duration: time.Minute}}
}

func TestABudgetThatForbidsEvictionByForce(t *testing.T) {
	w, _ := begun(t, withForce)
	w.evict = refuse("The disruption budget web needs 1 healthy pods and has 1 currently")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Hour, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.False(t, w.podThere("web"))
	assert.Equal(t, 1, w.writes["delete *v1.Pod"])
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "web Normal EvictedForSwitch: Deleted after the deadline")
}

func TestADriverReloadThatFails(t *testing.T) {
	w, node := begun(t)
	node.answer = applyingEnds(v1beta1.TaskFailed, names.ReasonHardwareFailed, "modprobe -r amdgpu: device or resource busy")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.RollingBack))
	assert.NotEmpty(t, w.taintedGPUs("node-a"), "the GPU is kept from pods while it is put back")
	assert.Contains(t, ready(w.gpuNode("node-a")).Message, "rolls back to profile old, because modprobe -r amdgpu")
	n := w.run("node-a", time.Minute, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonHardwareFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "profile cpx could not be applied: modprobe -r amdgpu: device or resource busy. The node is unchanged, with profile old. Attempt 2 starts at")
	assert.Equal(t, v1beta1.ResultRolledBack, n.Status.History[0].Result)
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "node-a Warning HardwareFailed: Rolling back to profile old: modprobe")

	node.answer = nil
	n = w.run("node-a", 10*time.Minute, inProfile("cpx"))
	w.stays(n, "cpx")
	assert.Len(t, n.Status.History, 3)
}

func TestADriverReloadThatSilentlyKeepsTheOldMode(t *testing.T) {
	w, node := begun(t)
	node.wrong = true // the slices show something else than the plugin says
	w.wants("node-a", "cpx")
	w.run("node-a", time.Hour, is(v1beta1.RollingBack))
	node.wrong = false
	n := w.run("node-a", time.Hour, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonNotVerified, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "the devices of "+gpuA+" in the API server are not those that the plugin publishes")
}

func TestWhatWasCannotBePutBack(t *testing.T) {
	w, node := begun(t)
	node.answer = func(_ *v1beta1.Switch, s v1beta1.State) (v1beta1.TaskPhase, string, string) {
		if s == v1beta1.Planning || s == v1beta1.Tainted {
			return "", "", ""
		}
		return v1beta1.TaskFailed, names.ReasonHardwareFailed, "EIO while " + string(s)
	}
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Failed))
	w.stays(n, "old")
	assert.Equal(t, names.ReasonRollbackFailed, ready(n).Reason)
	assert.Contains(t, ready(n).Message, "EIO while Applying; and the rollback to profile old failed: EIO while RollingBack")
	assert.NotContains(t, ready(n).Message, "The node is unchanged")
}

func TestARebootWhereItIsAllowed(t *testing.T) {
	w, node := begun(t, func(p *v1beta1.PartitionProfile) {
		p.Spec.Switch = &v1beta1.SwitchPolicy{Reboot: v1beta1.RebootIfRequired}
	})
	w.pod("node-a", "second", gpuB, gpuB)
	node.answer = applyingEnds(v1beta1.TaskRebootRequired, names.ReasonRebootRequired, gpuA+" refuses a reset")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Rebooting))
	assert.False(t, w.podThere("second"), "the whole node is drained")
	assert.Len(t, w.taintedGPUs("node-a"), 2)
	assert.True(t, hasNodeTaint(w.node("node-a")))
	w.stays(w.run("node-a", time.Minute, inProfile("cpx")), "cpx")
}
