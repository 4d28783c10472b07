package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// Somebody removes the CDI folder of a node. It used to be created at the start of the
// plugin only: no claim could be prepared on the node until a person restarted the plugin,
// and containers of claims that were prepared before could not start again.
func TestTheCDIFolderIsRemoved(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPod("before", class1g10gb)
	before := s.waitRunning("before")
	file := cdiDir + "/gpu.tranche.dev-claim_" + string(s.claims(before)[0].UID) + ".json"
	s.onNode(nodeA, "test", "-e", file)

	s.onNode(nodeA, "rm", "-rf", cdiDir)
	s.gpuPod("after", class1g10gb)
	after := s.waitRunning("after")
	s.requireSees(after, "main", s.allocated(after, ""), "1g.10gb")
	s.eventually("the CDI file of the other claim is back", func() (bool, string) {
		out, err := s.tryOnNode(nodeA, "test", "-e", file)
		return err == nil, out
	})
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, s.container("before"))
	s.requireInstances(2)
}

// A claim has two partitions, and somebody removes one. A Prepare that repairs the claim
// and fails used to forget that the other partition was handed out, and the failure after
// that destroyed it under the running container.
func TestARepairThatFailsLeavesThePartitionInUse(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[4].PCI
	first, second := request(class1g10gb, pci), request(class1g10gb, pci)
	first.Name, second.Name = "first", "second"
	_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "two"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{first, second}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	onNodeA := func(name string) *corev1.Pod {
		pod := newPod(name, fromClaim("two"))
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
		return pod
	}
	s.create(onNodeA("uses"))
	s.waitRunning("uses")
	container := s.container("uses")
	claim, err := s.client.ResourceV1().ResourceClaims(s.namespace).Get(s.ctx, "two", metav1.GetOptions{})
	require.NoError(t, err)
	results := claim.Status.Allocation.Devices.Results
	require.Len(t, results, 2)
	file := cdiDir + "/gpu.tranche.dev-claim_" + string(claim.UID) + ".json"

	const unknown = nvdriver.Return(999)
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Error: unknown}}})
	s.byHand(action{Remove: results[1].Device})
	// A kubelet asks for a claim once. After a restart it asks again when the next pod
	// comes.
	s.onHost("cluster", "restart-kubelet", "--dir", s.cluster, "--node", nodeA)
	s.create(onNodeA("joins"))
	failures := func() (n int32) {
		for _, e := range s.podEvents("joins") {
			if e.Reason == prepareFailed && strings.Contains(e.Message, "two") {
				n += max(e.Count, 1)
			}
		}
		return n
	}
	nudge := s.nudging()
	s.eventually("the claim could not be repaired more than once", func() (bool, string) {
		nudge(s.pod("joins"))
		return failures() >= 3, s.eventsText("joins")
	})
	m := s.machine(nodeA)
	require.Equal(t, 1, m.instances(), "the partition that is in use is still there: %s", m)
	s.onNode(nodeA, "test", "-e", file)
	assert.Equal(t, container, s.container("uses"))

	s.clearFaults(nodeA)
	s.waitRunning("joins")
	assert.Equal(t, 2, s.machine(nodeA).instances())
	assert.Equal(t, container, s.container("uses"))
	s.delete("uses", "joins")
}
