package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// scatter allows the pods of the namespace to be moved, and fills the node so that a 7g.80gb fits only if
// the small pods of a Deployment move to another GPU.
func (s *suite) scatter(deployment string, replicas int32) {
	s.t.Helper()
	s.kubectl("label", "namespace", s.namespace, names.LabelDefragmentation+"="+names.DefragmentationAllowed)
	gpus := s.machine(nodeA).GPUs
	last := len(gpus) - 1
	for n, g := range gpus[:last-1] {
		s.gpuPodOn(fmt.Sprintf("whole-%d", n), classWhole, g.PCI)
	}
	s.gpuPodOn("left", class4g40gb, gpus[last-1].PCI)
	s.gpuPodOn("right", class3g40gb, gpus[last-1].PCI)
	s.waitAllRunning(last + 1)

	s.template(deployment, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(class1g10gb, "")}})
	s.deploy(deployment, nodeA, replicas, fromTemplate(deployment))
	s.waitAllRunning(last + 1 + int(replicas))
	s.delete("right")
}

// podsOf are the pods of a Deployment, by name.
func (s *suite) podsOf(deployment string) map[string]*corev1.Pod {
	s.t.Helper()
	pods, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "deployment=" + deployment})
	require.NoError(s.t, err)
	out := map[string]*corev1.Pod{}
	for i := range pods.Items {
		out[pods.Items[i].Name] = &pods.Items[i]
	}
	return out
}

// The dry run names the pods that would have to move, and changes nothing. They are more than the
// controller moves (controller.defragmentation.maxPods).
func TestDefragDryRun(t *testing.T) {
	s := start(t)
	const small = 3
	s.scatter("small", small)
	before := s.podsOf("small")
	s.gpuPod("big", "gpu-mig-7g-80gb.tranche.dev")
	s.waitUnschedulable("big")

	advise := func(args ...string) (a defrag.Advice) {
		t.Helper()
		out := s.kubectl(append([]string{"tranche", "defrag", "--dry-run", "--max-pods", "3", "-n", s.namespace, "-o", "json"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &a), out)
		require.Len(t, a.Pods, 1, out)
		require.Equal(t, "big", a.Pods[0].Pod)
		return a
	}
	var a defrag.Advice
	// The claim of a deleted pod is released a moment after it.
	s.eventually("there is a plan", func() (bool, string) {
		a = advise()
		return a.Pods[0].Refusal == nil, fmt.Sprint(a.Pods[0].Refusal)
	})
	assert.Equal(t, nodeA, a.Pods[0].Node)
	require.Len(t, a.Pods[0].Moves, small)
	for _, m := range a.Pods[0].Moves {
		require.Contains(t, before, m.Pod)
		require.Len(t, m.From, 1)
		assert.Equal(t, s.allocated(before[m.Pod], "").Device, m.From[0].Device)
	}
	assert.Equal(t, defrag.TooMany, advise("--max-pods", "1", "big").Pods[0].Refusal.Reason)
	out := s.kubectl("tranche", "defrag", "--dry-run", "--max-pods", "3", "-A")
	assert.Contains(t, out, s.namespace+"/big would get "+a.Pods[0].Devices[0].Device+" on node "+nodeA+" if 3 pods moved:")

	for name, pod := range s.podsOf("small") {
		require.Contains(t, before, name)
		assert.Equal(t, before[name].UID, pod.UID)
		assert.Nil(t, pod.DeletionTimestamp)
	}
	assert.Empty(t, s.pod("big").Spec.NodeName)
	assert.Zero(t, s.reservedDevices())
}

// The controller moves the small pods one after another, and the waiting pod gets the devices.
func TestDefragmentation(t *testing.T) {
	s := start(t)
	const small = 2
	s.scatter("small", small)
	before := s.podsOf("small")
	s.gpuPod("big", "gpu-mig-7g-80gb.tranche.dev")
	s.waitRunning("big")
	// The waiting pod gets the devices when the evicted pods have finished, a moment before they are deleted.
	s.eventually("the small pods run elsewhere", func() (bool, string) {
		replacements := 0
		for name, pod := range s.podsOf("small") {
			if before[name] != nil {
				return false, name + " is still there"
			}
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				replacements++
			}
		}
		return replacements == small, fmt.Sprintf("%d replacements run", replacements)
	})
	s.eventually("the GPUNode has the attempt", func() (bool, string) {
		d := s.gpuNode(nodeA).Status.Defragmentation
		return d != nil && d.State == v1alpha1.DefragmentationSucceeded && d.Pod.Name == "big" && len(d.Evictions) == small, fmt.Sprintf("%+v", d)
	})
	s.eventually("the taints are gone", func() (bool, string) {
		return s.reservedDevices() == 0, fmt.Sprint(s.reservedDevices())
	})
}

// Without the label, or against a PodDisruptionBudget, no pod is moved.
func TestDefragmentationIsRefused(t *testing.T) {
	s := start(t)
	s.scatter("small", 1)
	_, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Create(s.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"deployment": "small"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	before := s.podsOf("small")
	s.gpuPod("big", "gpu-mig-7g-80gb.tranche.dev")
	s.waitUnschedulable("big")
	advise := func() defrag.Advice {
		var a defrag.Advice
		out := s.kubectl("tranche", "defrag", "--dry-run", "-n", s.namespace, "-o", "json", "big")
		require.NoError(t, json.Unmarshal([]byte(out), &a), out)
		return a
	}
	s.eventually("the PodDisruptionBudget forbids it", func() (bool, string) {
		r := advise().Pods[0].Refusal
		return r != nil && r.Reason == defrag.Disruptions, fmt.Sprint(r)
	})
	s.kubectl("label", "namespace", s.namespace, names.LabelDefragmentation+"-")
	s.eventually("the namespace forbids it", func() (bool, string) {
		r := advise().Pods[0].Refusal
		return r != nil && r.Reason == defrag.NotMovable, fmt.Sprint(r)
	})
	for name, pod := range s.podsOf("small") {
		require.Contains(t, before, name)
		assert.Equal(t, before[name].UID, pod.UID)
	}
	if d := s.gpuNode(nodeA).Status.Defragmentation; d != nil {
		assert.NotEqual(t, s.namespace, d.Pod.Namespace, "the last attempt is that of an earlier test")
	}
	assert.Zero(t, s.reservedDevices())
}

// reservedDevices is the number of devices with the taint of a reservation.
func (s *suite) reservedDevices() (n int) {
	s.t.Helper()
	slices, err := s.client.ResourceV1().ResourceSlices().List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range slices.Items {
		for _, d := range slices.Items[i].Spec.Devices {
			for _, taint := range d.Taints {
				if taint.Key == names.TaintReserved {
					n++
				}
			}
		}
	}
	return n
}
