package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// busyTaint is on what a GPU cannot be switched to at the moment.
const busyTaint = names.TaintBusy

// setAMDFaults makes the simulated GPUs of node-c fail from now on.
func (s *suite) setAMDFaults(faults amdgpu.Faults) {
	s.t.Helper()
	require.NoError(s.t, faults.Check())
	s.byHandOn(nodeC, action{Faults: &faults})
}

// A process of somebody else keeps a GPU in its mode. What needs another mode is
// tainted, with the reason for people, pods go elsewhere or wait, and as soon as
// the process is gone everything can be had again.
func TestAProcessKeepsAnAMDGPUInItsMode(t *testing.T) {
	s := start(t)
	pci := s.amdGPUs()[5]
	gpuID := gpu.NameOf(pci)
	s.gpuPodAt(nodeC, "shape", classDPX, pci)
	s.waitRunning("shape")
	s.delete("shape")

	s.setAMDFaults(amdgpu.Faults{Processes: []amdgpu.Process{{PID: 4711, Name: "rocm-bandwidth", GPUs: []string{pci}}}})
	s.eventually("what needs a switch is tainted", func() (bool, string) {
		tainted := s.taintedDevices(nodeC, busyTaint)
		// Eight of CPX, four of QPX, the whole GPU, and its two shares.
		return len(tainted) == 15, strings.Join(tainted, "\n")
	})
	for _, device := range s.taintedDevices(nodeC, busyTaint) {
		assert.True(t, strings.HasPrefix(device, gpuID), device)
		assert.NotContains(t, device, "-dpx-", "what the GPU has already can be had")
	}
	s.waitNodeEvent(nodeC, "GPUBusy", gpuID, "4711", "rocm-bandwidth")
	s.gpuPodAt(nodeC, "waits", classCPX, pci)
	s.waitUnschedulable("waits")
	s.gpuPodAt(nodeC, "half", classDPX, pci)
	s.waitRunning("half")
	s.delete("half")

	s.clearFaults(nodeC)
	s.eventually("the taints are gone", func() (bool, string) {
		tainted := s.taintedDevices(nodeC, busyTaint)
		return len(tainted) == 0, strings.Join(tainted, "\n")
	})
	s.requireSeesAMD(s.waitRunning("waits"), "main", s.allocated(s.pod("waits"), ""), "cpx")
}

// A process that comes between the look and the switch: the pod's event names
// it, nothing is broken, and the next try works.
func TestAProcessTakesTheGPUBeforeTheSwitch(t *testing.T) {
	s := start(t)
	pci := s.amdGPUs()[2]
	s.gpuPodAt(nodeC, "shape", classDPX, pci)
	s.waitRunning("shape")
	s.delete("shape")
	s.setAMDFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{
		GPU: pci, File: "current_compute_partition", Times: 1,
		Process: &amdgpu.Process{PID: 4712, Name: "late-comer", GPUs: []string{pci}},
	}}})
	s.gpuPodAt(nodeC, "patient", classCPX, pci)
	s.waitPodEvent("patient", prepareFailed, gpu.NameOf(pci), "4712", "late-comer")
	assert.Equal(t, "DPX", s.modes()[gpu.NameOf(pci)])
	s.byHandOn(nodeC, action{EndProcess: 4712})
	s.clearFaults(nodeC)
	s.requireSeesAMD(s.waitRunning("patient"), "main", s.allocated(s.pod("patient"), ""), "cpx")
}

// A GPU that is being reset is out of service soon, its holders'
// pods say so, and it comes back.
func TestAnAMDGPUInReset(t *testing.T) {
	s := startOnCluster(t)
	pci := s.amdGPUs()[4]
	gpuID := gpu.NameOf(pci)
	s.gpuPodAt(nodeC, "held", classCPX, pci)
	s.waitRunning("held")
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)
	struck := time.Now()
	s.setAMDFaults(amdgpu.Faults{Resetting: []string{pci}})
	s.eventually("the GPU is tainted", func() (bool, string) { return s.tainted(nodeC, gpuID, unhealthyTaint), "it is not" })
	t.Logf("tainted %s later", time.Since(struck).Round(time.Millisecond))
	assert.Less(t, time.Since(struck), time.Minute)
	assert.Len(t, s.taintedDevices(nodeC, unhealthyTaint), s.devicesOf(nodeC, gpuID), "no other GPU is")
	s.waitHealth("held", corev1.ResourceHealthStatusUnhealthy)
	s.waitNodeEvent(nodeC, "GPUUnhealthy", gpuID, ", pod held")
	s.clearFaults(nodeC)
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)
	s.eventually("the taint is gone", func() (bool, string) { return !s.tainted(nodeC, gpuID, unhealthyTaint), "it is still there" })
}

// A GPU that has counted an error that could not be corrected is out of service until the driver
// counts none; errors that were corrected are none of the plugin's business.
func TestRASErrorsOfAMDGPUs(t *testing.T) {
	s := startOnCluster(t)
	gpus := s.amdGPUs()
	pci, corrected := gpus[3], gpus[6]
	gpuID := gpu.NameOf(pci)
	s.gpuPodAt(nodeC, "held", classCPX, pci)
	s.waitRunning("held")
	s.setAMDFaults(amdgpu.Faults{RAS: []amdgpu.RAS{{GPU: corrected, Correctable: 9}, {GPU: pci, Correctable: 1, Uncorrectable: 2}}})
	s.eventually("the GPU is tainted", func() (bool, string) { return s.tainted(nodeC, gpuID, unhealthyTaint), "it is not" })
	assert.Len(t, s.taintedDevices(nodeC, unhealthyTaint), s.devicesOf(nodeC, gpuID), "no other GPU is")
	s.waitNodeEvent(nodeC, "GPUUnhealthy", gpuID, "2 errors that could not be corrected (umc 2)", ", pod held")
	s.waitHealth("held", corev1.ResourceHealthStatusUnhealthy)
	s.clearFaults(nodeC)
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)
	s.eventually("the taint is gone", func() (bool, string) { return !s.tainted(nodeC, gpuID, unhealthyTaint), "it is still there" })
}

// A partition that the driver does not show is fenced; its siblings are given
// out.
func TestAnAMDPartitionIsMissing(t *testing.T) {
	s := start(t)
	pci := s.amdGPUs()[7]
	gpuID := gpu.NameOf(pci)
	s.gpuPodAt(nodeC, "shape", classCPX, pci)
	s.waitRunning("shape")
	s.setAMDFaults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: pci, Partitions: []int{7}, Missing: "kfd"}}})
	s.eventually("one partition is tainted", func() (bool, string) {
		tainted := s.taintedDevices(nodeC, unhealthyTaint)
		return len(tainted) == 1 && tainted[0] == gpuID+"-cpx-7", strings.Join(tainted, "\n")
	})
	for n := range 6 {
		s.gpuPodAt(nodeC, fmt.Sprintf("sibling-%d", n), classCPX, pci)
	}
	s.waitAllRunning(7)
	s.gpuPodAt(nodeC, "one-more", classCPX, pci)
	s.waitUnschedulable("one-more")
	s.clearFaults(nodeC)
	s.waitRunning("one-more")
}

// The plugin is killed when the GPU has been switched and nothing has been read
// back: the next one finishes it.
func TestThePluginKilledDuringASwitch(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			s := startOnCluster(t)
			pci := s.amdGPUs()[1]
			s.gpuPodAt(nodeC, "shape", classDPX, pci)
			s.waitRunning("shape")
			s.delete("shape")
			plugin := s.restartPlugin(nodeC)
			s.setAMDFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: pci, File: "current_compute_partition", Hang: when}}})
			s.gpuPodAt(nodeC, "patient", classCPX, pci)
			nudge := s.nudging()
			s.eventually("the plugin is in the middle of it", func() (bool, string) {
				nudge(s.pod("patient"))
				mode := s.modes()[gpu.NameOf(pci)]
				return len(s.records(nodeC)) == 1 && (mode == "CPX") == (when == "after"), mode + s.eventsText("patient")
			})
			s.killPlugin(plugin)
			s.clearFaults(nodeC)
			pod := s.waitRunning("patient")
			s.requireSeesAMD(pod, "main", s.allocated(pod, ""), "cpx")
			assert.GreaterOrEqual(t, s.plugin(nodeC).Status.ContainerStatuses[0].RestartCount, int32(1))
		})
	}
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
	s.eventually("all devices of the node are tainted", func() (bool, string) { return s.tainted(nodeC, "", ownerTaint), "they are not" })
	s.waitNodeEvent(nodeC, "OtherOwner", "AMD GPUs", "AMD's device config manager runs here", "ignoreOtherOwners=true")
	s.gpuPodAt(nodeC, "during", classCPX, "")
	s.waitUnschedulable("during")
	require.Equal(t, corev1.PodRunning, s.pod("before").Status.Phase)
	disappear()
	s.waitRunning("during")
	require.False(t, s.tainted(nodeC, "", ownerTaint))
}

// What the hardware says of AMD's GPUs now.
func TestHardwareCommandForAMD(t *testing.T) {
	s := startOnCluster(t)
	pci := s.amdGPUs()[0]
	s.gpuPodAt(nodeC, "holder", classCPX, pci)
	pod := s.waitRunning("holder")
	text := s.kubectl("-n", pluginNamespace, "exec", s.plugin(nodeC).Name, "--", "tranche-kubelet-plugin", "hardware")
	assert.Contains(t, text, s.allocated(pod, "").Device)
	assert.Contains(t, text, "claim "+s.namespace+"/"+s.claims(pod)[0].Name+", pod holder")
	assert.NotContains(t, text, "not made by Tranche")
}
