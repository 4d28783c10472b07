package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// Xid 79 under a held partition: the pod can be deleted at once. What it had goes when
// the GPU is back, and nobody gets it before.
func TestAPodLeavesALostGPU(t *testing.T) {
	s := start(t)
	pci := s.machine(nodeA).GPUs[2].PCI
	s.gpuPodOn("on-it", class1g10gb, pci)
	s.waitRunning("on-it")
	s.setFaults(nvdriver.Faults{Lost: []string{pci}, XIDs: []nvdriver.XID{{GPU: pci, XID: 79}}})
	s.eventually("the GPU is tainted", func() (bool, string) {
		return s.tainted(nodeA, gpu.NameOf(pci), unhealthyTaint), "it is not"
	})
	s.delete("on-it") // waits until it is gone
	require.Equal(t, 1, s.machine(nodeA).instances(), "nothing on a lost GPU can be destroyed")

	s.clearFaults(nodeA)
	s.eventually("the partition is destroyed", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() == 0 && len(s.records(nodeA)) == 0, m.String()
	})
	s.eventually("the taint is gone", func() (bool, string) {
		return !s.tainted(nodeA, gpu.NameOf(pci), unhealthyTaint), "it is still there"
	})
	s.gpuPodOn("next", class1g10gb, pci)
	s.waitRunning("next")
}

// A CUDA process without a claim on the first GPU keeps it from turning MIG on. MIG
// pods run on the other GPUs.
func TestABusyGPUAttractsNoPods(t *testing.T) {
	const busyTaint = names.TaintBusy
	s := start(t)
	first := s.machine(nodeA).GPUs[0]
	if first.MIGMode { // an earlier test left it on: a whole GPU turns it off
		s.gpuPodOn("whole", classWhole, first.PCI)
		s.waitRunning("whole")
		s.delete("whole")
	}
	s.setFaults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: first.PCI, PID: 4711, Name: "trainer"}}})
	s.waitNodeEvent(nodeA, "GPUBusy", gpu.NameOf(first.PCI), "process 4711")
	s.eventually("its partitions are tainted", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, busyTaint)
		return len(tainted) > 0, fmt.Sprint(tainted)
	})
	for _, device := range s.taintedDevices(nodeA, busyTaint) {
		assert.Contains(t, device, gpu.NameOf(first.PCI)+"-mig-", "only what needs the other mode")
	}

	const pods = 9
	for i := range pods {
		s.gpuPodAt(nodeA, fmt.Sprintf("mig-%d", i), class1g10gb, "")
	}
	s.waitAllRunning(pods)
	for i := range pods {
		device := s.allocated(s.pod(fmt.Sprintf("mig-%d", i)), "").Device
		assert.False(t, strings.HasPrefix(device, gpu.NameOf(first.PCI)+"-"), device)
		assert.NotContains(t, s.eventsText(fmt.Sprintf("mig-%d", i)), "4711", "no pod runs into the process")
	}
	s.clearFaults(nodeA)
	s.eventually("the taints are gone", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, busyTaint)
		return len(tainted) == 0, fmt.Sprint(tainted)
	})
}

// Somebody destroys a partition under a claim.
func TestAPartitionRemovedUnderAClaim(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[3].PCI
	s.gpuPodOn("held", class1g10gb, pci)
	device := s.allocated(s.waitRunning("held"), "").Device
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)

	s.byHand(action{Remove: device})
	s.waitNodeEvent(nodeA, "HeldDeviceGone", device, "somebody other than Tranche has removed the partition", "pod held")
	s.waitHealth("held", corev1.ResourceHealthStatusUnhealthy)
	s.eventually("the device is tainted", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, unhealthyTaint)
		return strings.Contains(strings.Join(tainted, "\n")+"\n", device+"\n"), fmt.Sprint(tainted)
	})

	s.delete("held")
	s.eventually("the taint is gone", func() (bool, string) {
		tainted := s.taintedDevices(nodeA, unhealthyTaint)
		return len(tainted) == 0, fmt.Sprint(tainted)
	})
	s.gpuPodOn("next", class1g10gb, pci)
	s.waitRunning("next")
}
