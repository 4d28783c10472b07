package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// scatter makes the namespace one whose pods may be moved, and the node one on which a 7g.80gb would
// fit if the small pods of a Deployment moved to another GPU.
func (s *suite) scatter(deployment string, replicas int32) {
	s.t.Helper()
	s.kubectl("label", "namespace", s.namespace, v1alpha1.LabelDefragmentation+"="+v1alpha1.DefragmentationAllowed)
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

// The dry run names the pods that would have to move, and changes nothing.
func TestDefragDryRun(t *testing.T) {
	s := start(t)
	const small = 2
	s.scatter("small", small)
	before := s.podsOf("small")
	s.gpuPod("big", "gpu-mig-7g-80gb.tranche.dev")
	s.waitUnschedulable("big")

	advise := func(args ...string) (a defrag.Advice) {
		t.Helper()
		out := s.kubectl(append([]string{"tranche", "defrag", "--dry-run", "-n", s.namespace, "-o", "json"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &a), out)
		require.Len(t, a.Pods, 1, out)
		require.Equal(t, "big", a.Pods[0].Pod)
		return a
	}
	a := advise()
	require.NotNil(t, a.Pods[0].Refusal, "pods of the same priority stay")
	assert.Equal(t, defrag.NotMovable, a.Pods[0].Refusal.Reason, a.Pods[0].Refusal)

	// The claim of a deleted pod is released a moment after it.
	s.eventually("there is a plan", func() (bool, string) {
		a = advise("--same-priority")
		return a.Pods[0].Refusal == nil, fmt.Sprint(a.Pods[0].Refusal)
	})
	assert.Equal(t, nodeA, a.Pods[0].Node)
	require.Len(t, a.Pods[0].Moves, small)
	for _, m := range a.Pods[0].Moves {
		require.Contains(t, before, m.Pod)
		require.Len(t, m.From, 1)
		assert.Equal(t, s.allocated(before[m.Pod], "").Device, m.From[0].Device)
	}
	assert.Equal(t, defrag.TooMany, advise("--same-priority", "--max-pods", "1", "big").Pods[0].Refusal.Reason)
	out := s.kubectl("tranche", "defrag", "--dry-run", "-A", "--same-priority")
	assert.Contains(t, out, s.namespace+"/big would get "+a.Pods[0].Devices[0].Device+" on "+nodeA+" if 2 pods moved:")

	for name, pod := range s.podsOf("small") {
		require.Contains(t, before, name)
		assert.Equal(t, before[name].UID, pod.UID)
		assert.Nil(t, pod.DeletionTimestamp)
	}
	assert.Empty(t, s.pod("big").Spec.NodeName)
	slices, err := s.client.ResourceV1().ResourceSlices().List(s.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for i := range slices.Items {
		for _, d := range slices.Items[i].Spec.Devices {
			for _, taint := range d.Taints {
				assert.NotEqual(t, v1alpha1.TaintReserved, taint.Key, d.Name)
			}
		}
	}
}
