package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// ownerTaint is on the devices of GPUs that another system serves.
const ownerTaint = names.TaintOtherSystem

// While another system serves the GPUs of a node, Tranche allocates nothing
// new of them, and says on the node who it is and what to do.
func TestAnotherOwnerOfTheGPUs(t *testing.T) {
	for name, test := range map[string]struct {
		appear func(*suite) (disappear func())
		event  []string
	}{
		"device plugin": {deviceplugin, []string{
			"because a device plugin serves nvidia.com/gpu: 1 here",
			"keep the NVIDIA device plugin off this node", "nvidia.com/gpu.deploy.device-plugin=false",
		}},
		"NVIDIA's DRA driver": {nvidiaDriver, []string{
			"because DRA driver gpu.nvidia.com publishes devices of this node",
			"keep NVIDIA's DRA driver off this node", "resources.gpus.enabled=false",
		}},
		"mig-manager": {migManager, []string{
			"of mig-manager runs here",
			"keep mig-manager off this node", "nvidia.com/gpu.deploy.mig-manager=false",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOnCluster(t)
			s.gpuPod("before", class1g10gb)
			s.waitRunning("before")
			disappear := test.appear(s)
			t.Cleanup(disappear)
			s.eventually("all devices of the node are tainted", func() (bool, string) {
				return s.tainted(nodeA, ownerTaint), "they are not"
			})
			s.waitNodeEvent(nodeA, "OtherSystem", append(test.event, "ignoreOtherSystems=true")...)
			s.gpuPod("during", class1g10gb)
			s.waitUnschedulable("during")
			require.Equal(t, corev1.PodRunning, s.pod("before").Status.Phase)

			disappear()
			s.waitRunning("during")
			require.False(t, s.tainted(nodeA, ownerTaint))
			s.waitNodeEvent(nodeA, "OtherSystemGone", "Tranche publishes them")
			s.requireInstances(2)
		})
	}
}

// deviceplugin makes the node look as if a device plugin served its GPUs.
func deviceplugin(s *suite) func() {
	patch := func(patch string) {
		_, err := s.client.CoreV1().Nodes().Patch(s.ctx, nodeA, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		require.NoError(s.t, err)
	}
	patch(`{"status":{"capacity":{"nvidia.com/gpu":"1"},"allocatable":{"nvidia.com/gpu":"1"}}}`)
	return func() { patch(`{"status":{"capacity":{"nvidia.com/gpu":null},"allocatable":{"nvidia.com/gpu":null}}}`) }
}

func nvidiaDriver(s *suite) func() {
	slices := s.client.ResourceV1().ResourceSlices()
	slice, err := slices.Create(s.ctx, newSlice(nodeA, "gpu.nvidia.com"), metav1.CreateOptions{})
	require.NoError(s.t, err)
	return func() { _ = slices.Delete(s.ctx, slice.Name, metav1.DeleteOptions{}) }
}

// migManager runs a program with the name and the privileges of mig-manager.
func migManager(s *suite) func() {
	pod := calledMIGManager("mig-manager")
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	s.create(pod)
	return func() { _ = s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, pod.Name, now()) }
}

// calledMIGManager is what any tenant may create: a pod on node A with mig-manager's label,
// whose process has its name.
func calledMIGManager(name string) *corev1.Pod {
	pod := newPod(name)
	pod.Labels = map[string]string{"app": "nvidia-mig-manager"}
	pod.Spec.NodeName = nodeA
	pod.Spec.Containers[0].Command = []string{"sh", "-c",
		`printf '#!/bin/sh\nwhile sleep 1; do :; done\n' >/nvidia-mig-manager && chmod +x /nvidia-mig-manager && exec /nvidia-mig-manager`}
	return pod
}

// configManager runs a program at the path and with the privileges of AMD's device config
// manager on node C.
func configManager(s *suite) func() {
	pod := newPod("config-manager")
	pod.Spec.NodeName = nodeC
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "mkdir -p /home/amd/bin && cp /bin/busybox /home/amd/bin/server && exec -a sleep /home/amd/bin/server 1000000"}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	s.create(pod)
	return func() { _ = s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, pod.Name, now()) }
}

// A pod that calls itself mig-manager decides nothing: not what the node offers, nor what its
// switches do.
func TestAPodsLabelDecidesNothing(t *testing.T) {
	s := startOnCluster(t)
	s.create(calledMIGManager("busybox"))
	s.waitRunning("busybox")
	require.Equal(t, "nvidia-mig-mana\n", s.exec(s.namespace, "busybox", "main", "cat", "/proc/1/comm"))
	// Longer than two looks of the plugin at the processes.
	require.Never(t, func() bool {
		return s.tainted(nodeA, ownerTaint) || len(s.gpuNode(nodeA).Status.Node.OtherSystems) > 0
	}, 35*time.Second, time.Second, "the GPUs of %s are withheld", nodeA)
	s.gpuPod("tenant", class1g10gb)
	s.waitRunning("tenant")
}

// While AMD's device config manager runs, Tranche allocates nothing of the GPUs, and says so;
// its label alone means nothing.
func TestAnotherOwnerOfTheAMDGPUs(t *testing.T) {
	s := startOnCluster(t)
	label := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"dcm.amd.com/gpu-config-profile":%s}}}`, value)
		_, err := s.client.CoreV1().Nodes().Patch(s.ctx, nodeC, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	label(`"cpx-nps1"`)
	t.Cleanup(func() { label("null") })
	s.gpuPodAt(nodeC, "before", classCPX, "")
	s.waitRunning("before")
	disappear := configManager(s)
	t.Cleanup(disappear)
	s.eventually("all devices of the node are tainted", func() (bool, string) { return s.tainted(nodeC, ownerTaint), "they are not" })
	s.waitNodeEvent(nodeC, "OtherSystem", "AMD GPUs", "AMD's device config manager runs here", "ignoreOtherSystems=true")
	s.gpuPodAt(nodeC, "during", classCPX, "")
	s.waitUnschedulable("during")
	require.Equal(t, corev1.PodRunning, s.pod("before").Status.Phase)
	disappear()
	s.waitRunning("during")
	require.False(t, s.tainted(nodeC, ownerTaint))
}
