package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownerTaint is on the devices of cards that another system serves.
const ownerTaint = "gpu.tranche.dev/other-owner"

// While another system serves the cards of a node, Tranche gives out nothing
// new of them, and says on the node who it is and what to do.
func TestAnotherOwnerOfTheCards(t *testing.T) {
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
			s := start(t)
			s.gpuPod("before", class1g10gb)
			s.waitRunning("before")
			disappear := test.appear(s)
			t.Cleanup(disappear)
			s.eventually("all devices of the node are tainted", func() (bool, string) {
				return s.tainted(nodeA, "", ownerTaint), "they are not"
			})
			s.waitNodeEvent(nodeA, "OtherOwner", append(test.event, "ignoreOtherOwners=true")...)
			s.gpuPod("during", class1g10gb)
			s.waitUnschedulable("during")
			require.Equal(t, corev1.PodRunning, s.pod("before").Status.Phase)

			disappear()
			s.waitRunning("during")
			require.False(t, s.tainted(nodeA, "", ownerTaint))
			s.waitNodeEvent(nodeA, "OtherOwnerGone", "Tranche publishes them")
			s.requireInstances(2)
		})
	}
}

// deviceplugin makes the node look as if a device plugin served its cards.
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

func migManager(s *suite) func() {
	pod := newPod("mig-manager")
	pod.Labels = map[string]string{"app": "nvidia-mig-manager"}
	pod.Spec.NodeName = nodeA
	s.create(pod)
	return func() { _ = s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, pod.Name, now()) }
}
