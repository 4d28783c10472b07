package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// scatter allows the pods of the namespace to be moved, and fills the node so that a 7g.80gb fits only if
// the small pods of a Deployment move to another GPU.
func (s *suite) scatter(deployment string, replicas int32) {
	s.t.Helper()
	s.kubectl("label", "namespace", s.namespace, names.LabelDefragmentation+"="+names.ValueTrue)
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
		return d != nil && d.State == v1beta1.DefragmentationSucceeded && d.Pod.Name == "big" && len(d.EvictionTimes) == small, fmt.Sprintf("%+v", d)
	})
	s.eventually("the taints are gone", func() (bool, string) {
		return s.reservedDevices() == 0, fmt.Sprint(s.reservedDevices())
	})
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
