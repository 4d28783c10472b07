package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

const (
	upgradeTaint = names.TaintDriverUpgrade
	upgradeLabel = names.LabelDriverUpgrade
)

// waitTainted waits until a number of node-a's devices have a taint.
func (s *suite) waitTainted(key string, want int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d devices have the taint %s", want, key), func() (bool, string) {
		got := len(s.taintedDevices(nodeA, key))
		return got == want, fmt.Sprintf("%d have", got)
	})
}

// deviceCount counts the devices that node-a publishes.
func (s *suite) deviceCount() (n int) {
	s.t.Helper()
	for _, slice := range s.slices(nodeA) {
		n += len(slice.Spec.Devices)
	}
	return n
}

// labelNode sets a label of a node, or removes it if the value is empty.
func (s *suite) labelNode(node, key, value string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	_, err := s.client.CoreV1().Nodes().Patch(s.ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// A plugin that starts where the driver's library is missing lets pods leave the node,
// whatever they hold, and is not ready. When the library is there, it works again.
func TestDriverLibraryMissingAtStart(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[0].PCI
	s.gpuPodOn("partition", class1g10gb, pci)
	s.gpuPodAt(nodeA, "whole", classWhole, s.machine(nodeA).GPUs[1].PCI)
	s.waitAllRunning(2)
	all := s.deviceCount()
	plugin := s.plugin(nodeA)

	s.setFaults(nvdriver.Faults{LibraryMissing: true})
	s.killPlugin(plugin)
	s.waitNodeEvent(nodeA, "HardwareUnusable", "its kernel module is loaded, but there is no library")
	s.waitTainted(unhealthyTaint, all)
	assert.Equal(t, all, s.deviceCount(), "nothing is withdrawn")
	s.eventually("the plugin is not ready", func() (bool, string) {
		pod, err := s.client.CoreV1().Pods(pluginNamespace).Get(s.ctx, plugin.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return !isReady(pod), "it is"
	})
	assert.Equal(t, corev1.PodRunning, s.pod("partition").Status.Phase, "pods that run go on")
	s.delete("partition", "whole")
	assert.Equal(t, 1, s.machine(nodeA).instances(), "the partition waits for the driver")

	s.clearFaults(nodeA)
	s.plugin(nodeA)
	s.requireNothingLeft()
	s.waitTainted(unhealthyTaint, 0)
	s.requireNextPodRuns()
}

// The driver of a node is replaced while pods hold GPUs and others do not. The plugin
// releases it, pods leave, and the new driver is used without a restart.
func TestDriverUpgrade(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[0].PCI
	s.gpuPodOn("stays", class1g10gb, pci)
	s.gpuPodOn("leaves", class1g10gb, pci)
	s.gpuPodAt(nodeA, "whole", classWhole, s.machine(nodeA).GPUs[1].PCI)
	s.waitAllRunning(3)
	all := s.deviceCount()
	plugin := s.plugin(nodeA)
	restarts := plugin.Status.ContainerStatuses[0].RestartCount
	_, err := s.tryByHandOn(nodeA, action{Unload: true})
	require.ErrorIs(t, err, nvdriver.ErrModuleInUse, "the plugin uses the driver")

	s.labelNode(nodeA, upgradeLabel, "nvidia")
	t.Cleanup(func() { s.labelNode(nodeA, upgradeLabel, "") })
	s.waitNodeEvent(nodeA, "DriverReleased", "the node's label "+upgradeLabel+"=nvidia")
	s.waitTainted(upgradeTaint, all)
	assert.Equal(t, all, s.deviceCount(), "nothing is withdrawn")
	s.gpuPodAt(nodeA, "waits", classWhole, s.machine(nodeA).GPUs[2].PCI)
	s.waitUnschedulable("waits")
	s.delete("leaves", "whole")
	s.byHand(action{Unload: true})
	s.byHand(action{Load: true})

	s.labelNode(nodeA, upgradeLabel, "")
	s.waitNodeEvent(nodeA, "DriverFound", "NVIDIA")
	s.waitTainted(upgradeTaint, 0)
	s.waitTainted(unhealthyTaint, 0)
	s.waitRunning("waits")
	assert.Equal(t, corev1.PodRunning, s.pod("stays").Status.Phase)
	now := s.plugin(nodeA)
	assert.Equal(t, plugin.UID, now.UID)
	assert.Equal(t, restarts, now.Status.ContainerStatuses[0].RestartCount, "the plugin has not restarted")
	s.delete("stays", "waits")
	s.requireNothingLeft()
	s.requireNextPodRuns()
}

// A node that is deleted and registered again has another UID. What the plugin writes
// belongs to the new one, and stays.
func TestNodeIsRegisteredAgain(t *testing.T) {
	s := startOnCluster(t)
	before, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeB, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, s.client.CoreV1().Nodes().Delete(s.ctx, nodeB, metav1.DeleteOptions{}))
	s.onHost("cluster", "restart-kubelet", "--dir", s.cluster, "--node", nodeB)
	var after *corev1.Node
	s.eventually("the node is registered again", func() (bool, string) {
		after, err = s.client.CoreV1().Nodes().Get(s.ctx, nodeB, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return after.UID != before.UID && slices.ContainsFunc(after.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), string(after.UID)
	})
	belongs := func(owners []metav1.OwnerReference) bool {
		return len(owners) == 1 && owners[0].UID == after.UID
	}
	s.eventually("slices and GPUNode belong to the new node", func() (bool, string) {
		published := s.slices(nodeB)
		for _, slice := range published {
			if !belongs(slice.OwnerReferences) {
				return false, fmt.Sprintf("%s: %v", slice.Name, slice.OwnerReferences)
			}
		}
		gpuNode, err := s.tranche.GPUNodes().Get(s.ctx, nodeB, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return len(published) > 0 && belongs(gpuNode.OwnerReferences), fmt.Sprintf("%d slices; %v", len(published), gpuNode.OwnerReferences)
	})
	s.plugin(nodeB)
	s.gpuPodAt(nodeB, "again", classWhole, "")
	s.waitRunning("again")
}
