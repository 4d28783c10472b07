package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Machines that no other test has: node-a has A100s and H100s, node-b MI300As with
// six compute dies each, which can be divided in three, node-c MI355Xs, whose memory can be
// divided in two, and node-d GPUs of both vendors.
func TestOtherGPUs(t *testing.T) {
	onlyAtNight(t)
	s := startWith(t, map[string]string{nodeA: "two-models.yaml", nodeB: inventory("mi300a4"), nodeC: inventory("mi355x8"), "node-d": inventory("h100x2-mi300x2")})
	t.Run("two models", func(t *testing.T) { s.on(t).twoModels() })
	t.Run("TPX", func(t *testing.T) { s.on(t).thirds() })
	t.Run("NPS2", func(t *testing.T) { s.on(t).halvedMemory() })
	t.Run("two vendors", func(t *testing.T) { s.on(t).twoVendors("node-d") })
}

// Partitions of both models on demand, and by a profile whose rules select by product.
func (s *suite) twoModels() {
	const class1g5gb, class1g20gb = "gpu-mig-1g-5gb.tranche.dev", "gpu-mig-1g-20gb.tranche.dev"
	product := func(name, class, profile, want string) {
		s.t.Helper()
		s.gpuPodAt(nodeA, name, class, "")
		pod := s.waitRunning(name)
		assert.Contains(s.t, s.attribute(pod, "productName"), want)
		s.requireSees(pod, "main", s.allocated(pod, ""), profile)
	}
	product("small", class1g5gb, "1g.5gb", "A100")
	product("large", class1g20gb, "1g.20gb", "H100")
	s.delete("small", "large")
	require.Zero(s.t, s.machine(nodeA).instances())

	s.setProfileSpec("by-product", `{rules: [
		{gpus: {productNames: ["NVIDIA A100*"]}, mig: {mode: Static, partitions: [{profile: 1g.5gb, count: 3}, {profile: 3g.20gb, count: 1}]}},
		{gpus: {productNames: ["NVIDIA H100*"]}, mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}]}`)
	s.follow(nodeA, "by-product")
	var instances []int
	for _, g := range s.machine(nodeA).GPUs {
		instances = append(instances, len(g.Instances))
	}
	assert.Equal(s.t, []int{4, 4, 4, 4, 2, 2, 2, 2}, instances)
	product("small", class1g5gb, "1g.5gb", "A100")
	product("half", class3g40gb, "3g.40gb", "H100")
	s.gpuPodAt(nodeA, "whole", classWhole, "")
	s.waitUnschedulable("whole")

	s.delete("small", "half")
	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	s.waitRunning("whole")
	s.delete("whole")
}

// Partitions and whole GPUs of both vendors on one machine, which neither has for the other's classes.
func (s *suite) twoVendors(node string) {
	for name, class := range map[string]string{"mig": class3g40gb, "nvidia": classWhole, "xcp": classDPX, "amd": classSPX} {
		s.gpuPodAt(node, name, class, "")
	}
	for name, profile := range map[string]string{"mig": "3g.40gb", "nvidia": "gpu"} {
		pod := s.waitRunning(name)
		s.requireSees(pod, "main", s.allocated(pod, ""), profile)
		assert.Empty(s.t, s.seenAMD(pod, "main"))
	}
	s.requireOnePartition(s.waitRunning("xcp"), "dpx")
	assert.Empty(s.t, s.seen(s.waitRunning("amd"), "main"))
	s.gpuPodAt(node, "more", classWhole, "")
	s.waitUnschedulable("more")
	s.delete("nvidia")
	s.waitRunning("more")
	s.delete("more", "mig", "xcp", "amd")
}

// requireModes checks the mode of all GPUs.
func (s *suite) requireModes(node, want string) {
	s.t.Helper()
	n := s.gpuNode(node)
	require.NotEmpty(s.t, n.Status.Node.GPUs)
	for _, g := range n.Status.Node.GPUs {
		assert.Equal(s.t, want, cluster.ModeText(g.GPUModes), g.Name)
	}
}

// requireOnePartition checks that a pod has a partition of an AMD GPU, and sees only that.
func (s *suite) requireOnePartition(pod *corev1.Pod, profile string) {
	s.t.Helper()
	assert.Equal(s.t, profile, s.attribute(pod, "profile"))
	seen := s.seenAMD(pod, "main")
	require.Len(s.t, seen, 2)
	assert.Equal(s.t, "/dev/kfd", seen[0])
	assert.Regexp(s.t, `^/dev/dri/renderD\d+$`, seen[1])
}

// A third of a GPU on demand, by a profile of the chart, and back.
func (s *suite) thirds() {
	const classTPX = "gpu-xcp-tpx.tranche.dev"
	third := func(name string) {
		s.t.Helper()
		s.gpuPodAt(nodeB, name, classTPX, "")
		pod := s.waitRunning(name)
		s.requireOnePartition(pod, "tpx")
		s.delete(name)
	}
	third("on-demand")
	s.follow(nodeB, "tpx")
	s.requireModes(nodeB, "TPX NPS1")
	assert.Equal(s.t, 4*3, len(s.published(nodeB)), s.published(nodeB))
	third("by-profile")
	s.setProfileLabel(nodeB, "spx")
	s.waitFollows(nodeB, "spx")
	s.requireModes(nodeB, "SPX NPS1")
	s.setProfileLabel(nodeB, "")
	s.waitFollows(nodeB, "")
}

// The memory of all GPUs in two halves, with a partition in each, and back.
func (s *suite) halvedMemory() {
	s.unlabelAtEnd(nodeC)
	s.t.Cleanup(func() { s.memoryModeBack(nodeC) })
	s.requireModes(nodeC, "SPX NPS1")
	s.setProfileLabel(nodeC, "dpx-nps2")
	s.waitFollows(nodeC, "dpx-nps2")
	s.requireModes(nodeC, "DPX NPS2")
	s.gpuPodAt(nodeC, "half", classDPX, "")
	pod := s.waitRunning("half")
	assert.Equal(s.t, "NPS2", s.attribute(pod, "memoryPartition"))
	s.requireOnePartition(pod, "dpx")
	s.delete("half")
	s.memoryModeBack(nodeC)
	s.requireModes(nodeC, "SPX NPS1")
}
