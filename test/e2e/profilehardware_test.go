package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A program that Kubernetes knows nothing of uses a GPU that has to change: the others
// are put back, the condition names GPU and process, and when the process has ended,
// the node gets there.
func TestAGPUBusyWithAProcessOutsideKubernetes(t *testing.T) {
	const dpx, nps4 = `{gpus: {vendor: amd}, amd: {computePartition: DPX}}`, `{gpus: {vendor: amd}, amd: {computePartition: CPX, memoryPartition: NPS4}}`
	for name, test := range map[string]struct {
		node, rule string
		// says is beside the process.
		says []string
	}{
		"MIG mode":           {nodeA, cutInThree, []string{"switch MIG mode on"}},
		"AMD's compute mode": {nodeC, dpx, nil},
		"AMD's memory mode":  {nodeC, nps4, []string{"NPS4", "amdgpu cannot be reloaded"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			var faults nvdriver.Faults
			var gpuID string
			if test.node == nodeA {
				pci := s.machine(nodeA).GPUs[3].PCI
				s.gpuPodOn("whole", classWhole, pci) // it leaves the GPU with MIG off
				s.waitRunning("whole")
				s.delete("whole")
				gpuID = gpu.NameOf(pci)
				faults.Processes = []nvdriver.Process{{GPU: pci, PID: 4711, Name: "trainer"}}
			} else {
				pci := s.amdGPUs()[3]
				gpuID = gpu.NameOf(pci)
				faults.AMD = &amdgpu.Faults{Processes: []amdgpu.Process{{PID: 4711, Name: "trainer", GPUs: []string{pci}}}}
			}
			s.unlabelAtEnd(test.node)
			if strings.Contains(test.rule, "NPS4") {
				t.Cleanup(func() { s.clearFaults(nodeC); s.memoryModeBack(nodeC) })
				gpuID = "AMD"
			}
			const policy = ", switch: {drainDeadline: "
			s.setProfileSpec("changes-all", "{rules: ["+test.rule+"]"+policy+"1m}}")
			from := "no profile"
			if test.node == nodeC {
				// Without a profile, the compute mode is whatever claims left.
				from = "profile quarters"
				s.setProfile("quarters", `{gpus: {vendor: amd}, amd: {computePartition: QPX}}`)
				s.setProfileLabel(nodeC, "quarters")
				s.waitFollows(nodeC, "quarters")
			}
			before := s.hardwareOf(test.node)
			s.setFaultsOn(test.node, faults)
			s.setProfileLabel(test.node, "changes-all")
			n := s.waitFailed(test.node, names.ReasonInUse)
			said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonInUse)
			for _, part := range append(test.says, "profile changes-all could not be applied", gpuID, "process 4711", "The node is unchanged, with "+from, "Attempt 2 starts at") {
				assert.Contains(t, said, part)
			}
			assert.Equal(t, v1alpha1.ResultRolledBack, n.Status.History[0].Result)
			assert.Equal(t, before, s.hardwareOf(test.node))

			s.clearFaults(test.node)
			s.setProfileSpec("changes-all", "{rules: ["+test.rule+"]"+policy+"2m}}") // a new policy, so it is tried at once
			s.waitFollows(test.node, "changes-all")
			s.firstMinors = nil
			assert.NotEqual(t, before, s.hardwareOf(test.node))
		})
	}
}

// AMD's driver cannot be reloaded for another memory mode. What was is put back as
// soon as it can be, the condition has modprobe's words, and when the cause is mended,
// the node gets there.
func TestADriverReloadThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		fault  amdgpu.DriverFault
		reason string
		says   []string
	}{
		"it is not unloaded": {
			amdgpu.DriverFault{Step: "unload", Error: "in use"}, names.ReasonInUse,
			[]string{"Module amdgpu is in use", "lsof /dev/kfd", "The node is unchanged, with no profile"},
		},
		"it does not come up": {
			amdgpu.DriverFault{Step: "load", Error: "key rejected"}, names.ReasonRollbackFailed,
			[]string{"Key was rejected by service", "dmesg", "and the rollback to no profile failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.unlabelAtEnd(nodeC)
			t.Cleanup(func() { s.clearFaults(nodeC); s.memoryModeBack(nodeC) })
			before := s.hardwareOf(nodeC)
			s.setAMDFaults(amdgpu.Faults{Driver: []amdgpu.DriverFault{test.fault}})
			s.setProfileLabel(nodeC, "cpx-nps4")
			n := s.waitFailed(nodeC, test.reason)
			said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, test.reason)
			for _, part := range append(test.says, "profile cpx-nps4 could not be applied", "memory mode NPS4", "Attempt 2 starts at") {
				assert.Contains(t, said, part)
			}
			if test.reason == names.ReasonRollbackFailed {
				s.waitGPUNode(nodeC, "says that its GPUs are gone", func(n *v1alpha1.GPUNode) bool { return troubled(n) == 8 })
			} else {
				assert.Equal(t, v1alpha1.ResultRolledBack, n.Status.History[0].Result)
				assert.Equal(t, before, s.hardwareOf(nodeC))
			}

			s.clearFaults(nodeC)
			s.waitGPUNode(nodeC, "has its GPUs", func(n *v1alpha1.GPUNode) bool { return troubled(n) == 0 })
			s.setProfileLabel(nodeC, "spx-nps1") // another wish, so it is tried at once
			s.waitFollows(nodeC, "spx-nps1")
			s.firstMinors = nil
			require.Equal(t, 8, strings.Count(s.hardwareOf(nodeC), "SPX NPS1"))
			s.gpuPodAt(nodeC, "after", classSPX, "")
			s.waitRunning("after")
		})
	}
}

// troubled counts the GPUs of a node with which something is wrong.
func troubled(n *v1alpha1.GPUNode) (count int) {
	for i := range n.Status.Node.GPUs {
		if n.Status.Node.GPUs[i].Problem != "" {
			count++
		}
	}
	return count
}

// A load of AMD's driver that fails once is tried again, and the switch ends in the
// profile.
func TestADriverReloadThatFailsOnce(t *testing.T) {
	s := start(t)
	s.unlabelAtEnd(nodeC)
	t.Cleanup(func() { s.clearFaults(nodeC); s.memoryModeBack(nodeC) })
	s.setAMDFaults(amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Error: "no device", Times: 1}}})
	s.setProfileLabel(nodeC, "cpx-nps4")
	s.waitFollows(nodeC, "cpx-nps4")
	s.firstMinors = nil
	require.Equal(t, 8, strings.Count(s.hardwareOf(nodeC), "CPX NPS4"))
}

// Partitions that do not fit together on a GPU are refused before anything is touched,
// and so are counts that are none.
func TestCountsThatDoNotAddUp(t *testing.T) {
	s := start(t)
	s.gpuPod("holder", class3g40gb)
	holder := s.waitRunning("holder")
	before, machine := s.published(nodeA), s.hardwareOf(nodeA)
	s.setProfile("too-many", `{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}, {profile: 1g.10gb, count: 1}]}}`)
	s.labelProfile(nodeA, "too-many")
	n := s.waitFailed(nodeA, names.ReasonProfileDoesNotFit)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonProfileDoesNotFit)
	for _, part := range []string{"spec.rules[0].mig.partitions", "1g.10gb x 1 do not fit beside 3g.40gb x 2", "It is retried when the profile, its policy, the GPUs or the plugin's settings change"} {
		assert.Contains(t, said, part)
	}
	assert.Zero(t, n.Status.History[0].Evicted)
	assert.Equal(t, before, s.published(nodeA))
	assert.Equal(t, machine, s.hardwareOf(nodeA))
	s.requireSame(holder)

	for spec, key := range map[string]string{
		`{rules: [{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 0}]}}]}`:           "spec.rules[0].mig.partitions[0].count",
		`{rules: [{mig: {mode: Static, partitions: [{profile: 1g.10gb}, {profile: 2g.20gb}]}}]}`: "spec.rules[0].mig.partitions",
		`{rules: [{gpus: {count: -1}, mig: {mode: Disabled}}]}`:                                  "spec.rules[0].gpus.count",
	} {
		said, err := s.try("kubectl", "apply", "--validate=strict", "-f", s.profileFile("none", spec))
		require.Error(t, err, spec)
		assert.Contains(t, said, key)
	}
	s.setProfile("too-many", `{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}`)
	s.waitFollows(nodeA, "too-many")
	assert.Equal(t, 8*2, s.machine(nodeA).instances())
	s.requireSame(holder)
}
