package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Rules select GPUs by PCI address and by index. GPUs that no other rule selects stay as
// they are, with their pods, also when the next profile selects others.
func TestRulesByPCIAddressAndIndex(t *testing.T) {
	s := start(t)
	gpus := s.machine(nodeA).GPUs
	s.gpuPodOn("skipped", classWhole, gpus[2].PCI)
	skipped := s.waitRunning("skipped")
	instances := func() (counts []int) {
		for _, g := range s.machine(nodeA).GPUs {
			counts = append(counts, len(g.Instances))
		}
		return counts
	}
	s.setProfileSpec("by-address", fmt.Sprintf(`{rules: [
		{gpus: {pciAddresses: [%q]}, mig: {mode: Static, partitions: [{profile: 1g, count: 2}, {profile: 3g, count: 1}]}},
		{gpus: {indexes: [1]}, mig: {mode: Enabled}}, {unchanged: true}]}`, gpus[0].PCI))
	s.setProfileSpec("another", fmt.Sprintf(`{rules: [
		{gpus: {pciAddresses: [%q]}, mig: {mode: Static, partitions: [{profile: 7g}]}}, {unchanged: true}]}`, gpus[3].PCI))
	n := s.follow(nodeA, "by-address")
	assert.Zero(t, n.Status.History[0].Evicted, gpuNodeText(n))
	assert.Equal(t, []int{3, 0, 0, 0, 0, 0, 0, 0}, instances())
	assert.Len(t, s.devicesOn(nodeA, gpu.NameOf(gpus[0].PCI)), 3)
	assert.Empty(t, s.devicesOn(nodeA, gpu.NameOf(gpus[1].PCI)))
	assert.True(t, s.machine(nodeA).GPUs[1].MIGMode)
	s.requireSame(skipped)

	s.gpuPodOn("half", class3g40gb, gpus[0].PCI)
	half := s.waitRunning("half")
	s.setProfileLabel(nodeA, "another")
	n = s.waitFollows(nodeA, "another")
	assert.Zero(t, n.Status.History[0].Evicted, gpuNodeText(n))
	require.Equal(t, []int{3, 0, 0, 1, 0, 0, 0, 0}, instances())
	assert.Len(t, s.devicesOn(nodeA, gpu.NameOf(gpus[0].PCI)), 3)
	assert.Empty(t, s.devicesOn(nodeA, gpu.NameOf(gpus[1].PCI)))
	s.requireSame(half)
	s.requireSame(skipped)
}

// The same for AMD GPUs.
func TestRulesByPCIAddressAndIndexOnAMD(t *testing.T) {
	s := start(t)
	gpus := s.amdGPUs()
	s.gpuPodAt(nodeC, "skipped", classDPX, gpus[2])
	skipped := s.waitRunning("skipped")
	s.setProfileSpec("by-address", fmt.Sprintf(`{rules: [
		{gpus: {pciAddresses: [%q]}, amd: {computePartition: CPX}}, {gpus: {vendor: amd, indexes: [1]}, amd: {computePartition: QPX}}, {unchanged: true}]}`, gpus[0]))
	s.setProfileSpec("another", fmt.Sprintf(`{rules: [{gpus: {pciAddresses: [%q]}, amd: {computePartition: CPX}}, {unchanged: true}]}`, gpus[3]))
	n := s.follow(nodeC, "by-address")
	assert.Zero(t, n.Status.History[0].Evicted, gpuNodeText(n))
	modes := s.modes()
	for i, want := range []string{"CPX", "QPX", "DPX"} {
		assert.Equal(t, want, modes[gpu.NameOf(gpus[i])])
	}
	s.requireSame(skipped)
	s.setProfileLabel(nodeC, "another")
	s.waitFollows(nodeC, "another")
	modes = s.modes()
	for i, want := range []string{"CPX", "QPX", "DPX", "CPX"} {
		assert.Equal(t, want, modes[gpu.NameOf(gpus[i])])
	}
	s.requireSame(skipped)
}
