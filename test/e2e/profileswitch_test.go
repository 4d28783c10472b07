package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
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
		n := s.waitGPUNode(node, "reports that nobody holds its GPUs", func(n *v1alpha1.GPUNode) bool { return n.Status.Node.Held == 0 })
		require.Equal(t, want.count, n.Status.Node.Count, node)
		for _, g := range n.Status.Node.GPUs {
			assert.Equal(t, want.vendor, g.Vendor)
			assert.Contains(t, g.Product, want.product)
			assert.NotEmpty(t, g.Slice, g.Name)
			assert.Empty(t, g.Held, g.Name)
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
	assert.EqualValues(t, 1, n.Status.History[0].Evicted, gpuNodeText(n))
	assert.Equal(t, v1alpha1.ResultSucceeded, n.Status.History[0].Result)
	assert.Equal(t, v1alpha1.FromLabel, n.Status.Applied.Source)
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

// A switch that changes nothing of the hardware disturbs nobody, and taints nothing.
func TestAProfileThatDisturbsNobody(t *testing.T) {
	s := start(t)
	s.gpuPod("holder", class1g10gb)
	holder := s.waitRunning("holder")
	s.setProfile("four", `{sharing: {replicas: 4}}`)
	n := s.follow(nodeA, "four")
	assert.Zero(t, n.Status.History[0].Evicted)
	s.requireSame(holder)
	s.requireInstances(1)
}

// Label and spec disagree: the label holds, and the GPUNode says so until they agree.
func TestLabelAndSpecDisagree(t *testing.T) {
	s := start(t)
	s.setProfile("by-label", `{sharing: {replicas: 3}}`)
	s.setProfile("by-spec", `{sharing: {replicas: 5}}`)
	s.unlabelAtEnd(nodeB)
	spec := func(profile string) {
		t.Helper()
		_, err := s.tranche.GPUNodes().Patch(s.ctx, nodeB, types.MergePatchType, []byte(`{"spec":{"profile":`+profile+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	t.Cleanup(func() { spec("null") })
	spec(`"by-spec"`)
	n := s.waitFollows(nodeB, "by-spec")
	s.requireCondition(n, names.ConditionOverruled, metav1.ConditionFalse, names.ReasonNone)

	s.setProfileLabel(nodeB, "by-label")
	n = s.waitFollows(nodeB, "by-label")
	said := s.requireCondition(n, names.ConditionOverruled, metav1.ConditionTrue, names.ReasonLabelHolds)
	assert.Contains(t, said, "tranche.dev/profile=by-label has precedence")
	assert.Contains(t, said, "by-spec")

	s.setProfileLabel(nodeB, "")
	n = s.waitFollows(nodeB, "by-spec")
	s.requireCondition(n, names.ConditionOverruled, metav1.ConditionFalse, names.ReasonNone)
	spec("null")
	s.waitFollows(nodeB, "")
}

// A node of the control plane follows a profile that its GPUNode names, and no label.
func TestANodeOfTheControlPlane(t *testing.T) {
	s := start(t)
	s.setProfile("labelled", `{sharing: {replicas: 3}}`)
	s.unlabelAtEnd(nodeB)
	before := s.published(nodeB)
	spec := func(profile string) {
		t.Helper()
		_, err := s.tranche.GPUNodes().Patch(s.ctx, nodeB, types.MergePatchType, []byte(`{"spec":{"profile":`+profile+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	t.Cleanup(func() { spec("null"); s.labelNode(nodeB, state.ControlPlaneLabel, "") })
	s.labelNode(nodeB, state.ControlPlaneLabel, "true")
	s.setProfileLabel(nodeB, "labelled")
	s.waitGPUNode(nodeB, "says that the label does not count", func(n *v1alpha1.GPUNode) bool {
		c := meta.FindStatusCondition(n.Status.Conditions, names.ConditionOverruled)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == names.ReasonSpecHolds && n.Status.State == v1alpha1.Idle
	})
	assert.Equal(t, before, s.published(nodeB))
	spec(`"labelled"`)
	s.waitFollows(nodeB, "labelled")
	assert.NotEqual(t, before, s.published(nodeB))
}

// A label that names no profile changes nothing; the condition lists those that there
// are, and when the profile is made, the node follows it.
func TestAProfileThatDoesNotExist(t *testing.T) {
	s := start(t)
	before := s.published(nodeB)
	s.setProfile("there-is-this", `{sharing: {replicas: 3}}`)
	s.labelProfile(nodeB, "there-is-not")
	notFound := func(n *v1alpha1.GPUNode) bool {
		for _, c := range n.Status.Conditions {
			if c.Type == names.ConditionReady && c.Reason == names.ReasonProfileNotFound {
				return true
			}
		}
		return false
	}
	n := s.waitGPUNode(nodeB, "says that there is no such profile", notFound)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonProfileNotFound)
	assert.Contains(t, said, "names PartitionProfile there-is-not, which does not exist; existing profiles: ")
	assert.Contains(t, said, "there-is-this")
	assert.Equal(t, v1alpha1.Idle, n.Status.State)
	assert.Equal(t, before, s.published(nodeB))

	s.setProfile("there-is-not", `{sharing: {replicas: 7}}`)
	s.waitFollows(nodeB, "there-is-not")
}

// A profile that does not fit the GPUs changes nothing, and the condition says which
// GPU it does not fit and why.
func TestAProfileThatDoesNotFit(t *testing.T) {
	for name, test := range map[string]struct{ node, rule, says string }{
		"too many partitions":      {nodeA, `{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 8}]}}`, "1g.10gb"},
		"GPUs without MIG":         {nodeB, cutInThree, "MIG"},
		"a mode that there is not": {nodeC, `{amd: {computePartition: TPX}}`, "TPX"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			before := s.published(test.node)
			s.setProfile("too-much", test.rule)
			s.labelProfile(test.node, "too-much")
			n := s.waitFailed(test.node, names.ReasonProfileDoesNotFit)
			said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonProfileDoesNotFit)
			assert.Contains(t, said, "profile too-much could not be applied")
			assert.Contains(t, said, test.says)
			assert.NotContains(t, said, "starts at", "it would fail again")
			assert.Equal(t, before, s.published(test.node))
			assert.Zero(t, s.machine(test.node).instances())

			// A profile that fits is followed at once.
			s.setProfileSpec("too-much", "{rules: [{sharing: {replicas: 6}}]}")
			s.waitFollows(test.node, "too-much")
		})
	}
}

// Of two nodes that are labelled at once, one waits for the other.
func TestOneNodeAtATime(t *testing.T) {
	s := start(t)
	s.setProfileSpec("changes-all", `{rules: [{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g.10gb}]}}, {gpus: {vendor: amd}, amd: {computePartition: DPX}}]}`)
	s.slowPod(nodeA, "slow", classWhole, 8)
	s.slowPod(nodeC, "slow-amd", classCPX, 8)
	s.unlabelAtEnd(nodeA)
	s.unlabelAtEnd(nodeC)
	s.setProfileLabel(nodeA, "changes-all")
	s.waitGPUNode(nodeA, "drains", inState(v1alpha1.Draining))
	s.setProfileLabel(nodeC, "changes-all")
	n := s.waitGPUNode(nodeC, "waits for another node", func(g *v1alpha1.GPUNode) bool {
		return meta.IsStatusConditionTrue(g.Status.Conditions, names.ConditionRolloutPending)
	})
	said := s.requireCondition(n, names.ConditionRolloutPending, metav1.ConditionTrue, names.ReasonWaitsForNodes)
	assert.Contains(t, said, "profile changes-all waits for other nodes: 1 may be switched at once")
	assert.Empty(t, s.switchTaints(nodeC))
	assert.Equal(t, corev1.PodRunning, s.pod("slow-amd").Status.Phase)
	s.waitFollows(nodeA, "changes-all")
	s.waitFollows(nodeC, "changes-all")
	for pool, mode := range s.modes() {
		assert.Equal(t, "DPX", mode, pool)
	}
}
