package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// cutInThree is a rule for GPUs of NVIDIA's: three partitions on each.
const cutInThree = `{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 2}, {profile: 3g.40gb, count: 1}]}}`

// Each node has a GPUNode that tells its GPUs, and a person sees it at a glance.
func TestEveryNodeReportsItsGPUs(t *testing.T) {
	s := start(t)
	for node, want := range map[string]struct {
		count           int32
		vendor, product string
	}{nodeA: {8, "nvidia", "H100"}, nodeB: {4, "nvidia", "L4"}, nodeC: {8, "amd", "MI300X"}} {
		s.waitFollows(node, "")
		n := s.waitGPUNode(node, "reports that nobody holds its GPUs", func(n *v1beta1.GPUNode) bool { return n.Status.Node.ClaimCount == 0 })
		require.Equal(t, want.count, n.Status.Node.GPUCount, node)
		for _, g := range n.Status.Node.GPUs {
			assert.Equal(t, want.vendor, g.Vendor)
			assert.Contains(t, g.ProductName, want.product)
			assert.NotEmpty(t, g.SliceHash, g.Name)
			assert.Empty(t, g.HeldDevices, g.Name)
		}
		owner, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
		require.NoError(t, err)
		require.Len(t, n.OwnerReferences, 1)
		assert.Equal(t, owner.UID, n.OwnerReferences[0].UID)
	}
	assert.Regexp(t, `(?m)^node-a +Idle +\S+ +8 +8 +0 +no profile is set`, s.kubectl("get", "gpunodes"))
}

// A label cuts all GPUs of a node: who holds a GPU that changes is asked to leave,
// who holds what is there afterwards stays. Without the label everything is as before.
func TestAStaticProfileByLabelAndBack(t *testing.T) {
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	gpus := s.machine(nodeA).GPUs
	s.gpuPodOn("stays", class1g10gb, gpus[0].PCI)
	s.gpuPodOn("leaves", classWhole, gpus[1].PCI)
	idle := newPod("without-gpu")
	idle.Spec.NodeName = nodeA
	s.create(idle)
	stays, leaves, without := s.waitRunning("stays"), s.waitRunning("leaves"), s.waitRunning("without-gpu")

	n := s.follow(nodeA, "cut-in-three")
	assert.EqualValues(t, 1, n.Status.History[0].EvictedPodCount, gpuNodeText(n))
	assert.Equal(t, v1beta1.ResultSucceeded, n.Status.History[0].Result)
	assert.Equal(t, v1beta1.FromLabel, n.Status.Applied.Source)
	assert.Regexp(t, `(?m) cut-in-three +Succeeded +1`, s.kubectl("tranche", "switches", nodeA))
	s.requireSame(stays)
	s.requireSame(without)
	s.waitGone("leaves")
	assert.Contains(t, s.eventsText(leaves.Name), "Asked to leave, because the GPUs that it uses are switched to profile cut-in-three")
	require.Equal(t, 8*3, s.machine(nodeA).instances())
	for _, g := range gpus {
		assert.Len(t, s.devicesOn(nodeA, gpu.NameOf(g.PCI)), 3)
	}
	s.gpuPodOn("half", class3g40gb, gpus[1].PCI)
	half := s.waitRunning("half")
	s.requireSees(half, "main", s.allocated(half, ""), "3g.40gb")
	s.gpuPod("whole", classWhole)
	s.waitUnschedulable("whole")
	s.delete("whole", "half")
	require.Equal(t, 8*3, s.machine(nodeA).instances(), "what claims have held stays")

	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	s.requireInstances(1)
	s.requireSame(stays)
	s.gpuPodOn("whole", classWhole, gpus[1].PCI)
	s.waitRunning("whole")
}
