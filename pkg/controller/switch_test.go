package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

func TestASwitch(t *testing.T) {
	w := idle(t)
	w.pod("node-a", "web", gpuA, gpuA+deviceOf)
	w.pod("node-a", "other", gpuB, gpuB+deviceOf)
	w.wants("node-a", "cpx")

	n := w.run("node-a", time.Minute, is(v1beta1.Draining))
	assert.Equal(t, map[string]string{gpuA: "cpx"}, w.taintedGPUs("node-a"))
	assert.False(t, hasNodeTaint(w.node("node-a")), "the claim goes with its pod")
	assert.Equal(t, names.ReasonSwitching, ready(n).Reason)

	n = w.run("node-a", time.Minute, inProfile("cpx"))
	w.clean("node-a")
	assert.False(t, w.podThere("web"))
	assert.True(t, w.podThere("other"), "only the GPU that changes is disturbed")
	assert.Zero(t, w.writes["patch *v1.Node"])
	assert.Equal(t, "profile cpx is applied, as set by the node's label tranche.dev/profile=cpx", ready(n).Message)
	assert.Equal(t, metav1.ConditionTrue, ready(n).Status)
	require.Len(t, n.Status.History, 1)
	h := n.Status.History[0]
	assert.Equal(t, v1beta1.ResultSucceeded, h.Result)
	assert.Equal(t, int32(1), h.EvictedPodCount)
	assert.LessOrEqual(t, h.Duration.Duration, 3*time.Second, "of the switch's own")
	assert.Contains(t, w.events.texts, "web Normal EvictedForSwitch: Asked to leave, because the GPUs that it uses are switched to profile cpx")
	assert.Contains(t, strings.Join(w.events.texts, "\n"), "node-a Normal SwitchSucceeded: Switched to profile cpx in")
	assert.Equal(t, 1.0, testutil.ToFloat64(w.r.metrics.switches.WithLabelValues(string(v1beta1.ResultSucceeded), "")))
	assert.Equal(t, 1.0, testutil.ToFloat64(w.r.metrics.evictions.WithLabelValues("Evicted")))
}

// The pod that asked for nvidia.com/gpu names no claim: the scheduler has made one for it.
func TestAPodThatAsksForAnExtendedResourceLeaves(t *testing.T) {
	w := idle(t)
	w.pod("node-a", "old-name", gpuA, gpuA+deviceOf, func(p *corev1.Pod, c *resourceapi.ResourceClaim) {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name}
	})
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, inProfile("cpx"))
	assert.False(t, w.podThere("old-name"))
	assert.Equal(t, 1.0, testutil.ToFloat64(w.r.metrics.evictions.WithLabelValues("Evicted")))
}

func TestASwitchOfEightGPUsTakesAtMost40Writes(t *testing.T) {
	var gpus []string
	for i := range 8 {
		gpus = append(gpus, fmt.Sprintf("gpu-0000-%02x-00-0", i))
	}
	w := newWorld(t)
	n := w.addNode("node-a", gpus...)
	n.slow = 300 * time.Millisecond
	n.changes = func(*v1beta1.Switch) []v1beta1.GPUChange {
		var all []v1beta1.GPUChange
		for _, gpuID := range gpus {
			all = append(all, v1beta1.GPUChange{GPU: gpuID, Description: "memory mode NPS4"})
		}
		return all
	}
	w.profile("cpx-nps4", func(p *v1beta1.PartitionProfile) {
		p.Spec.Switch = &v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}
	})
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm", "true")
	w.settled("node-a", "")
	for _, gpuID := range gpus {
		w.pod("node-a", "on-"+gpuID, gpuID, gpuID)
	}
	before := len(w.events.texts)
	w.wants("node-a", "cpx-nps4")
	w.run("node-a", time.Minute, inProfile("cpx-nps4"))
	w.clean("node-a")

	total := 0
	for what, n := range w.writes {
		if !strings.HasPrefix(what, "eviction") {
			total += n
		}
	}
	total += len(w.events.texts) - before - len(gpus)
	t.Logf("%d writes: %v", total, w.writes)
	assert.LessOrEqual(t, total, 40)
}

func TestMonitoringIsPausedAndStartedAgain(t *testing.T) {
	w := idle(t)
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm-exporter", "true")
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm", "false")
	w.label("node-a", "nvidia.com/gpu.deploy.nvsm", "paused-for-mig-change")
	monitoring := monitoringPod("gpu-operator", "dcgm-exporter", "DaemonSet")
	require.NoError(t, w.api.Create(t.Context(), monitoring))

	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, is(v1beta1.Draining))
	assert.Equal(t, map[string]string{
		"nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-tranche", "nvidia.com/gpu.deploy.dcgm": "false",
		"nvidia.com/gpu.deploy.nvsm": "paused-for-mig-change", names.LabelProfile: "cpx",
	}, w.node("node-a").Labels)
	assert.Contains(t, ready(n).Message, "gpu-operator/dcgm-exporter is a paused monitoring pod")
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "gpu-operator", Name: "dcgm-exporter"}, monitoring), "whoever has started it ends it")
	require.NoError(t, w.api.Delete(t.Context(), monitoring))

	w.run("node-a", time.Minute, inProfile("cpx"))
	w.clean("node-a")
	assert.Equal(t, "true", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm-exporter"])
	assert.Equal(t, "false", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm"])
}

// The chart's values changed during a switch: what was paused before is started again.
func TestMonitoringOfEarlierValuesAreStartedAgain(t *testing.T) {
	w := idle(t)
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm-exporter", "true")
	monitoring := monitoringPod("gpu-operator", "dcgm-exporter", "DaemonSet")
	require.NoError(t, w.api.Create(t.Context(), monitoring))
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Draining))
	require.Equal(t, "paused-for-tranche", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm-exporter"])
	w.r.PauseLabels = nil
	require.NoError(t, w.api.Delete(t.Context(), monitoring))
	w.run("node-a", time.Minute, inProfile("cpx"))
	assert.Equal(t, "true", w.node("node-a").Labels["nvidia.com/gpu.deploy.dcgm-exporter"])
}

// monitoringPod is a pod on node-a that a label of the node has started.
func monitoringPod(namespace, name, kind string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "owner", Controller: ptr.To(true)}}
	pod.Spec.NodeName, pod.Spec.NodeSelector = "node-a", map[string]string{"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
	return pod
}

// A tenant's pod with the nodeSelector of a monitoring pod does not hold up a switch.
func TestPodsOfTenantsAreNoPausedMonitoring(t *testing.T) {
	w := idle(t)
	w.label("node-a", "nvidia.com/gpu.deploy.dcgm-exporter", "true")
	for _, pod := range []*corev1.Pod{monitoringPod("team", "tenant", "DaemonSet"), monitoringPod("gpu-operator", "replica", "ReplicaSet")} {
		require.NoError(t, w.api.Create(t.Context(), pod))
	}
	began := w.clock.Now()
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, inProfile("cpx"))
	assert.Less(t, w.clock.Now().Sub(began), state.DefaultDeadlines().Monitoring)
	w.clean("node-a")
}

func TestWhatIsTheAdministratorsStays(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a")
	w.profile("cpx", func(p *v1beta1.PartitionProfile) {
		p.Spec.Switch = &v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}
	})
	taint := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	w.changeNode("node-a", func(n *corev1.Node) { n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{taint} })
	w.settled("node-a", "")
	w.pod("node-a", "web", gpuA, gpuA)
	w.wants("node-a", "cpx")

	w.run("node-a", time.Minute, is(v1beta1.Draining))
	w.round("node-a")
	assert.Equal(t, []corev1.Taint{taint, {Key: names.TaintNodeSwitching, Value: "cpx", Effect: corev1.TaintEffectNoSchedule}}, w.node("node-a").Spec.Taints)
	second := corev1.Taint{Key: "late", Effect: corev1.TaintEffectNoExecute}
	w.changeNode("node-a", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, second) })

	w.run("node-a", time.Minute, inProfile("cpx"))
	w.clean("node-a")
	node := w.node("node-a")
	assert.True(t, node.Spec.Unschedulable)
	assert.Equal(t, []corev1.Taint{taint, second}, node.Spec.Taints)
}

func TestWhereTheAPIServerDropsTaintsTheNodeIsTainted(t *testing.T) {
	w := newWorld(t)
	w.addNode("node-a").dropped = true
	w.profile("cpx")
	w.settled("node-a", "")
	w.pod("node-a", "web", gpuA, gpuA)
	w.evict = func(types.NamespacedName) error {
		assert.True(t, hasNodeTaint(w.node("node-a")), "nobody is evicted before the node is tainted")
		return nil
	}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, inProfile("cpx"))
	w.clean("node-a")
}

func TestMonitorsLeaveAfterTheTenants(t *testing.T) {
	w := idle(t)
	admin := func(_ *corev1.Pod, c *resourceapi.ResourceClaim) {
		r := &c.Status.Allocation.Devices.Results[0]
		r.AdminAccess, r.Tolerations = ptr.To(true), []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	}
	w.pod("node-a", "a-monitor", gpuA, gpuA+"-monitor", admin)
	w.pod("node-a", "b-monitor", gpuB, gpuB+"-monitor", admin)
	w.pod("node-a", "web", gpuA, gpuA+deviceOf)
	var left []string
	w.evict = func(pod types.NamespacedName) error {
		left = append(left, pod.Name)
		return nil
	}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, inProfile("cpx"))
	assert.Equal(t, []string{"web", "a-monitor"}, left)
	assert.True(t, w.podThere("b-monitor"), "its GPU does not change")
	w.clean("node-a")
}

func TestWhoHoldsWhatIsKeptMayStay(t *testing.T) {
	w := newWorld(t)
	n := w.addNode("node-a")
	n.changes = func(*v1beta1.Switch) []v1beta1.GPUChange {
		return []v1beta1.GPUChange{{GPU: gpuA, Description: "partitions", KeptDevices: []string{gpuA + "-mig-1g-10gb-6"}}}
	}
	w.profile("cpx")
	w.settled("node-a", "")
	w.pod("node-a", "goes", gpuA, gpuA+deviceOf)
	w.pod("node-a", "stays", gpuA, gpuA+"-mig-1g-10gb-6")
	n.kept = []string{gpuA + "-mig-1g-10gb-6"}
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, inProfile("cpx"))
	assert.False(t, w.podThere("goes"))
	assert.True(t, w.podThere("stays"))
}

func TestALongDrainWritesSeldom(t *testing.T) {
	w := idle(t)
	w.pod("node-a", "web", gpuA, gpuA)
	left := 0
	w.evict = refuse("The disruption budget web needs 1 healthy pods and has 1 currently")
	w.wants("node-a", "cpx")
	w.run("node-a", time.Minute, is(v1beta1.Draining))
	w.writes = map[string]int{}
	w.run("node-a", 15*time.Minute, func(n *v1beta1.GPUNode) bool {
		left++
		w.evict = refuse(fmt.Sprintf("The disruption budget web needs 1 healthy pods and has %d currently", left))
		return n.Status.State == v1beta1.Failed
	})
	assert.LessOrEqual(t, w.writes["status *v1beta1.GPUNode"], 20)
	assert.LessOrEqual(t, w.writes["eviction *v1.Pod"], 30, "a pod is not asked all the time")
}

func TestConditionsSpeakToPeople(t *testing.T) {
	w := idle(t)
	w.pod("node-a", "web", gpuA, gpuA+deviceOf)
	w.evict = refuse("The disruption budget web needs 1 healthy pods and has 1 currently")
	w.wants("node-a", "cpx")
	n := w.run("node-a", time.Minute, func(n *v1beta1.GPUNode) bool {
		return n.Status.State == v1beta1.Draining && strings.Contains(ready(n).Message, "budget")
	})
	assert.Equal(t, "evicts pods from "+gpuA+": pod team/web ("+gpuA+"-mig-1g-10gb-0) is not evicted: "+
		"The disruption budget web needs 1 healthy pods and has 1 currently; "+
		"until 12:10:05 UTC at the latest, then it is canceled and the GPUs stay as they are",
		meta.FindStatusCondition(n.Status.Conditions, names.ConditionSwitching).Message)
}
