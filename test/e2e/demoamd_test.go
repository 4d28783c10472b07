package e2e

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// requireSeesWhole checks that a container sees a whole GPU of the node that
// its pod is on, whoever made it.
func (s *suite) requireSeesWhole(pod *corev1.Pod, device resourceapi.DeviceRequestAllocationResult) {
	s.t.Helper()
	gpuID := gpu.OfDevice(device.Device)
	require.Equal(s.t, gpuID, device.Device, "a partition")
	if pod.Spec.NodeName == nodeC {
		s.requireSeesAMD(pod, "main", device, "spx")
		return
	}
	s.requireSees(pod, "main", device, "gpu")
}

// One CPX partition, for which its GPU was switched.
func checkAMDPartition(s *suite, pods map[string]*corev1.Pod) {
	device := s.allocated(pods["partition"], "")
	s.requireSeesAMD(pods["partition"], "main", device, "cpx")
	assert.Equal(s.t, "CPX", s.modes()[gpu.OfDevice(device.Device)])
	assert.Len(s.t, s.records(nodeC), 1)
}

// Eight containers have the eight partitions of one GPU, and each its own.
func checkAMDOneGPU(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["eight"]
	gpus, devices := map[string]bool{}, map[string]bool{}
	for n := range 8 {
		device := s.allocated(pod, fmt.Sprintf("part-%d", n))
		assert.True(s.t, strings.HasSuffix(device.Device, fmt.Sprintf("-cpx-%d", n)), device.Device)
		s.requireSeesAMD(pod, fmt.Sprintf("rank-%d", n), device, "cpx")
		gpus[gpu.OfDevice(device.Device)], devices[device.Device] = true, true
	}
	assert.Len(s.t, gpus, 1)
	assert.Len(s.t, devices, 8)
}

// Two DPX pods wait while each GPU holds a CPX partition. When these are gone,
// one GPU is switched for both, and the others stay as they are.
func checkAMDSwitch(s *suite, _ map[string]*corev1.Pod) {
	const namespace = "demo-amd-switch"
	var eighths map[string]*corev1.Pod
	s.eventually("eight pods run", func() (bool, string) {
		eighths = s.demoPods(namespace)
		return len(eighths) == 8, fmt.Sprintf("there are %d", len(eighths))
	})
	gpus := map[string]bool{}
	for _, pod := range eighths {
		device := s.allocated(pod, "")
		s.requireSeesAMD(pod, "main", device, "cpx")
		gpus[gpu.OfDevice(device.Device)] = true
	}
	assert.Len(s.t, gpus, 8, "one on each GPU")

	s.kubectl("apply", "-f", repository+"/demo/amd-switch/halves/halves.yaml")
	var halves []corev1.Pod
	s.eventually("two pods wait", func() (bool, string) {
		list, err := s.client.CoreV1().Pods(namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "app=halves"})
		require.NoError(s.t, err)
		halves = list.Items
		for i := range halves {
			said, _ := s.try("kubectl", "-n", namespace, "describe", "pod", halves[i].Name)
			if !strings.Contains(said, "FailedScheduling") {
				return false, said
			}
		}
		return len(halves) == 2, fmt.Sprintf("there are %d", len(halves))
	})
	s.eventually("kubectl tranche why says why", func() (bool, string) {
		why, _ := s.try("kubectl", "tranche", "why", "-n", namespace, halves[0].Name)
		return strings.Contains(strings.Join(strings.Fields(why), " "), "8 in mode CPX"), why
	})

	s.kubectl("-n", namespace, "scale", "deployment", "eighths", "--replicas=0")
	s.eventually("the two pods run", func() (bool, string) {
		running := s.demoPods(namespace)
		return len(running) == 2, fmt.Sprintf("there are %d", len(running))
	})
	switched := map[string]bool{}
	for _, pod := range s.demoPods(namespace) {
		device := s.allocated(pod, "")
		s.requireSeesAMD(pod, "main", device, "dpx")
		switched[gpu.OfDevice(device.Device)] = true
	}
	// One GPU mostly: two if the second pod is tried when a GPU before the first one's
	// is free by then.
	assert.NotEmpty(s.t, switched)
	for pool, mode := range s.modes() {
		want := "CPX"
		if switched[pool] {
			want = "DPX"
		}
		assert.Equal(s.t, want, mode, pool)
	}
}

// Two pods of one Deployment, one on each vendor's node.
func checkEitherVendor(s *suite, pods map[string]*corev1.Pod) {
	s.eventually("two pods run", func() (bool, string) {
		pods = s.demoPods("demo-either-vendor")
		return len(pods) == 2, fmt.Sprintf("there are %d", len(pods))
	})
	nodes := map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
		if pod.Spec.NodeName == nodeC {
			s.requireSeesAMD(pod, "main", s.allocated(pod, ""), "cpx")
		} else {
			s.requireSees(pod, "main", s.allocated(pod, ""), "1g.20gb")
		}
	}
	assert.Equal(s.t, map[string]bool{nodeA: true, nodeC: true}, nodes)
}

// requireWatchesAMD checks that a monitor sees each GPU of the AMD node.
func (s *suite) requireWatchesAMD(pod *corev1.Pod) {
	s.t.Helper()
	seen := s.seenAMD(pod, "main")
	assert.Contains(s.t, seen, "/dev/kfd")
	for _, pci := range s.amdGPUs() {
		assert.Contains(s.t, seen, fmt.Sprintf("/dev/dri/renderD%d", s.firstMinor(gpu.NameOf(pci))))
	}
}
