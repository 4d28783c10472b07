package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	classCPX       = "gpu-xcp-cpx.tranche.dev"
	classDPX       = "gpu-xcp-dpx.tranche.dev"
	classSPX       = "gpu-xcp-spx.tranche.dev"
	classPartition = "gpu-partition.tranche.dev"
)

// A node of eight MI300X takes 64 pods with a CPX partition and never one more,
// and each container sees its own render node and no other.
func TestFillTheAMDNode(t *testing.T) {
	s := start(t)
	const count = 64
	for n := range count {
		s.gpuPodAt(nodeC, fmt.Sprintf("small-%d", n), classCPX, "")
	}
	s.waitAllRunning(count)
	s.requireNothingTwice()
	for _, mode := range s.modes() {
		assert.Equal(t, "CPX", mode)
	}
	seen := map[string]bool{}
	for n := range count {
		pod := s.pod(fmt.Sprintf("small-%d", n))
		s.requireSeesAMD(pod, "main", s.allocated(pod, ""), "cpx")
		node := s.seenAMD(pod, "main")[1]
		assert.False(t, seen[node], "%s is in two containers", node)
		seen[node] = true
	}
	s.gpuPodAt(nodeC, "one-more", classCPX, "")
	s.waitUnschedulable("one-more")
	s.delete("small-17")
	s.waitRunning("one-more")
	s.requireNothingTwice()
}

// A GPU is in one mode at a time: beside a CPX partition, DPX pods have the
// other seven GPUs, and the next one waits until the CPX pod is gone. Nobody
// has to tell the GPU, and no slice is written for it.
func TestAGPUIsSwitchedWhenItsLastPartitionIsGone(t *testing.T) {
	s := start(t)
	published := s.watchSlices(nodeC)
	s.gpuPodAt(nodeC, "first", classCPX, "")
	held := gpu.OfDevice(s.allocated(s.waitRunning("first"), "").Device)
	for n := range 14 {
		s.gpuPodAt(nodeC, fmt.Sprintf("half-%d", n), classDPX, "")
	}
	s.waitAllRunning(15)
	s.requireNothingTwice()
	for n := range 14 {
		pod := s.pod(fmt.Sprintf("half-%d", n))
		device := s.allocated(pod, "")
		assert.NotEqual(t, held, gpu.OfDevice(device.Device))
		s.requireSeesAMD(pod, "main", device, "dpx")
	}

	s.gpuPodAt(nodeC, "one-more", classDPX, "")
	s.waitUnschedulable("one-more")
	s.eventually("kubectl tranche why says why", func() (bool, string) {
		out, _ := s.try("kubectl", "tranche", "why", "-n", s.namespace, "one-more")
		return strings.Contains(out, "CPX") || strings.Contains(out, "cpx"), out
	})
	s.delete("first")
	pod := s.waitRunning("one-more")
	assert.Equal(t, held, gpu.OfDevice(s.allocated(pod, "").Device))
	s.requireSeesAMD(pod, "main", s.allocated(pod, ""), "dpx")
	for pool, mode := range s.modes() {
		assert.Equal(t, "DPX", mode, pool)
	}
	assert.True(t, published.lastChange().IsZero(), "a switch wrote slices")
}

// A whole GPU takes a GPU that was cut before.
func TestAWholeAMDGPU(t *testing.T) {
	s := start(t)
	for n := range 8 {
		s.gpuPodAt(nodeC, fmt.Sprintf("cut-%d", n), classDPX, "")
	}
	s.waitAllRunning(8)
	s.deletePods()
	for n := range 8 {
		s.gpuPodAt(nodeC, fmt.Sprintf("whole-%d", n), classSPX, "")
	}
	s.waitAllRunning(8)
	s.requireNothingTwice()
	pod := s.pod("whole-3")
	s.requireSeesAMD(pod, "main", s.allocated(pod, ""), "spx")
	s.gpuPodAt(nodeC, "one-more", classCPX, "")
	s.waitUnschedulable("one-more")
}

// Who asks for any partition gets one on a node of either vendor, and no whole
// GPU.
func TestAnyPartitionOfEitherVendor(t *testing.T) {
	s := start(t)
	s.template("any", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(classPartition, "")}})
	const count = 16
	for n := range count {
		s.create(newPod(fmt.Sprintf("any-%d", n), fromTemplate("any")))
	}
	s.waitAllRunning(count)
	s.requireNothingTwice()
	nodes := map[string]int{}
	for n := range count {
		pod := s.pod(fmt.Sprintf("any-%d", n))
		nodes[pod.Spec.NodeName]++
		device := s.allocated(pod, "")
		gpuID := gpu.OfDevice(device.Device)
		assert.NotEqual(t, gpuID, device.Device, "a whole GPU")
	}
	assert.Positive(t, nodes[nodeA], "%v", nodes)
	assert.Positive(t, nodes[nodeC], "%v", nodes)
}

// A container that does not run as root is in the group of its device nodes.
func TestAnAMDPartitionWithoutRoot(t *testing.T) {
	s := startOnCluster(t)
	s.template("cpx", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(classCPX, "")}})
	pod := newPod("modest", fromTemplate("cpx"))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeC}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](1000)}
	s.create(pod)
	s.waitRunning("modest")
	groups := strings.Fields(s.exec(s.namespace, "modest", "main", "id", "-G"))
	for _, node := range s.seenAMD(s.pod("modest"), "main") {
		owner := strings.TrimSpace(s.exec(s.namespace, "modest", "main", "stat", "-c", "%g", node))
		assert.Contains(t, groups, owner, node)
		s.exec(s.namespace, "modest", "main", "test", "-r", node, "-a", "-w", node)
	}
}

// modes tells the compute mode that each GPU of the AMD node is in, by its name.
func (s *suite) modes() map[string]string {
	s.t.Helper()
	modes := map[string]string{}
	for _, pci := range s.amdGPUs() {
		modes[gpu.NameOf(pci)] = s.amdFile(pciDevices + pci + "/current_compute_partition")
	}
	return modes
}

// amdGPUs lists the addresses of the AMD node's GPUs.
func (s *suite) amdGPUs() (addresses []string) {
	s.t.Helper()
	for _, slice := range s.slices(nodeC) {
		for i := range slice.Spec.Devices {
			if a := slice.Spec.Devices[i].Attributes["resource.kubernetes.io/pciBusID"]; a.StringValue != nil {
				addresses = append(addresses, *a.StringValue)
			}
		}
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	require.Len(s.t, addresses, 8)
	return addresses
}

// pciDevices is where the kernel shows the GPUs.
const pciDevices = "/sys/bus/pci/devices/"

// amdFile reads a file of the AMD node's simulated kernel.
func (s *suite) amdFile(name string) string {
	s.t.Helper()
	return strings.TrimSpace(s.byHandOn(nodeC, action{Read: name}))
}

// firstMinor is the number of the render node of a GPU's first partition.
func (s *suite) firstMinor(gpuID string) int {
	s.t.Helper()
	if s.firstMinors == nil {
		s.firstMinors = map[string]int{}
		for _, pci := range s.amdGPUs() {
			var primary, render int
			nodes := s.byHandOn(nodeC, action{List: pciDevices + pci + "/drm"})
			_, err := fmt.Sscanf(nodes, "card%d renderD%d", &primary, &render)
			require.NoError(s.t, err, nodes)
			s.firstMinors[gpu.NameOf(pci)] = render
		}
	}
	require.Contains(s.t, s.firstMinors, gpuID)
	return s.firstMinors[gpuID]
}

// seenAMD lists the device nodes of AMD GPUs that a container sees.
func (s *suite) seenAMD(pod *corev1.Pod, container string) []string {
	s.t.Helper()
	var paths []string
	if s.lab != nil {
		paths = s.lab.seen(s.t, pod, container, "/dev/kfd", "/dev/dri/render")
	} else {
		paths = s.seenWith(pod, container, "renderD", "GPU", "kfd")
	}
	slices.Reverse(paths)
	return paths
}

// requireSeesAMD checks that a container sees the render node of its partition
// (of its GPU, if it is whole) and no other, and that its environment names it.
func (s *suite) requireSeesAMD(pod *corev1.Pod, container string, device resourceapi.DeviceRequestAllocationResult, what string) {
	s.t.Helper()
	gpuID := gpu.OfDevice(device.Device)
	index := 0
	if device.Device != gpuID {
		_, err := fmt.Sscanf(device.Device, gpuID+"-"+what+"-%d", &index)
		require.NoError(s.t, err, device.Device)
	}
	// The kernel numbers the render nodes of a GPU's partitions in order.
	own := fmt.Sprintf("/dev/dri/renderD%d", s.firstMinor(gpuID)+index)
	require.Equal(s.t, []string{"/dev/kfd", own}, s.seenAMD(pod, container), device.Device)
	assert.Regexp(s.t, `^`+what+`( |$)`, requireOneDevice(s.t, s.env(pod, container), device))
}
