package e2e

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

const ciCreation = "CreateComputeInstance"

// The kubelet tries again by itself, which takes it more than a minute.
func TestCICreationFailsOnceAfterTheGIExists(t *testing.T) {
	s := start(t)
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: ciCreation, GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN), Times: 1},
	}})
	s.gpuPod("unlucky", class1g10gb)
	s.waitPodEvent("unlucky", prepareFailed, "create gpu-0000-", "-mig-1g-10gb-", ciCreation)
	s.eventually("the pod runs by itself", func() (bool, string) {
		return s.pod("unlucky").Status.Phase == corev1.PodRunning, s.eventsText("unlucky")
	})
	s.requireInstances(1)
}

func TestCICreationFailsManyTimesAfterTheGIExists(t *testing.T) {
	s := start(t)
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: ciCreation, GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)},
	}})
	s.gpuPod("unlucky", class1g10gb)
	for range 3 {
		s.waitPodEvent("unlucky", prepareFailed, ciCreation, "GPU 0000:")
		s.nudge(s.pod("unlucky"))
	}
	s.eventually("nothing is left of a failed try", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() == 0 && len(s.records(nodeA)) == 0, m.String()
	})
	assert.Equal(t, corev1.PodPending, s.pod("unlucky").Status.Phase)
	s.clearFaults(nodeA)
	s.waitRunning("unlucky")
	s.requireInstances(1)
}

func TestInUseAtDestroy(t *testing.T) {
	s := start(t)
	s.gpuPod("used", class1g10gb)
	s.waitRunning("used")
	pci, instance := s.only(s.machine(nodeA))
	s.setFaults(nvdriver.Faults{Processes: []nvdriver.Process{
		{GPU: pci, GPUInstance: &instance.ID, PID: 4242, Name: "trainer"},
	}})
	s.beginDelete("used")
	// The kubelet makes no event of it, so the plugin does.
	s.waitPodEvent("used", "ReleaseFailed", "process 4242")
	assert.NotNil(t, s.pod("used").DeletionTimestamp, "the pod waits")
	s.requireInstances(1)

	// Nobody gets what is not free yet.
	s.gpuPod("another", class1g10gb)
	another := s.waitRunning("another")
	assert.NotEqual(t, s.allocated(s.pod("used"), "").Device, s.allocated(another, "").Device)
	s.requireInstances(2)

	s.clearFaults(nodeA)
	s.waitGone("used")
	s.requireInstances(1)
}

func TestMIGModeThatCannotBeSwitched(t *testing.T) {
	for name, test := range map[string]struct {
		faults  func(pci string) nvdriver.Faults
		message string
	}{
		"the GPU must be reset": {func(pci string) nvdriver.Faults {
			return nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "SetMigMode", GPU: pci, Error: nvdriver.Return(nvml.ERROR_RESET_REQUIRED)}}}
		}, "the GPU must be reset: nvidia-smi --gpu-reset, or reboot the node"},
		"a process uses the GPU": {func(pci string) nvdriver.Faults {
			return nvdriver.Faults{Processes: []nvdriver.Process{{GPU: pci, PID: 4711}}}
		}, "in use by process 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			pci := s.machine(nodeA).GPUs[3].PCI
			s.gpuPodOn("whole", classWhole, pci)
			s.waitRunning("whole")
			s.delete("whole")
			require.False(t, s.machine(nodeA).GPUs[3].MIGMode)

			s.setFaults(test.faults(pci))
			s.gpuPodOn("cut", class1g10gb, pci)
			s.waitPodEvent("cut", prepareFailed, "GPU "+pci, test.message)
			m := s.machine(nodeA)
			assert.False(t, m.GPUs[3].MIGMode)
			assert.Zero(t, m.instances())

			s.clearFaults(nodeA)
			s.waitRunning("cut")
			s.requireInstances(1)
			assert.True(t, s.machine(nodeA).GPUs[3].MIGMode)
		})
	}
}

// A GPU that falls off the bus is tainted, the others go on.
func TestALostGPU(t *testing.T) {
	s := start(t)
	pci := s.machine(nodeA).GPUs[5].PCI
	s.gpuPodOn("on-it", class1g10gb, pci)
	s.waitRunning("on-it")
	s.setFaults(nvdriver.Faults{Lost: []string{pci}})
	s.eventually("the GPU is tainted", func() (bool, string) {
		return s.tainted(nodeA, gpu.NameOf(pci), names.TaintUnhealthy), "it is not"
	})
	s.gpuPod("elsewhere", class1g10gb)
	pod := s.waitRunning("elsewhere")
	assert.NotEqual(t, gpu.NameOf(pci), gpu.OfDevice(s.allocated(pod, "").Device))

	s.clearFaults(nodeA)
	s.eventually("the taint is gone", func() (bool, string) {
		return !s.tainted(nodeA, gpu.NameOf(pci), names.TaintUnhealthy), "it is still there"
	})
}

// tainted tells whether all devices of a GPU have a taint, of all GPUs of
// the node if the GPU's name is empty.
func (s *suite) tainted(node, gpuID, key string) bool {
	s.t.Helper()
	devices := 0
	for _, slice := range s.slices(node) {
		for i := range slice.Spec.Devices {
			if gpuID != "" && gpu.OfDevice(slice.Spec.Devices[i].Name) != gpuID {
				continue
			}
			has := false
			for _, taint := range slice.Spec.Devices[i].Taints {
				has = has || taint.Key == key
			}
			if !has {
				return false
			}
			devices++
		}
	}
	return devices > 0
}
