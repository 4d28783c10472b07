package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// A container that gets two MIG partitions can use one of them, and its pod says so. Two containers
// with a partition each are fine.
func TestTwoMIGPartitionsInOneContainer(t *testing.T) {
	s := start(t)
	first, second := request(class1g10gb, ""), request(class1g10gb, "")
	first.Name, second.Name = "first", "second"
	s.template("apart", devices(first, second))
	apart := newPod("apart", fromTemplate("apart"))
	other := *apart.Spec.Containers[0].DeepCopy()
	other.Name = "other"
	apart.Spec.Containers = append(apart.Spec.Containers, other)
	for i, name := range []string{"first", "second"} {
		apart.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu", Request: name}}
	}
	apart.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	s.create(apart)
	s.waitRunning("apart")

	twice := newPod("twice")
	twice.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	twice.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("2")}
	s.create(twice)
	s.waitRunning("twice")
	s.waitPodEvent("twice", names.EventSeveralMIGPartitions, "has 2 MIG partitions", "one larger partition")
	assert.NotContains(t, s.eventsText("apart"), names.EventSeveralMIGPartitions)

	sizes := newPod("two-sizes")
	sizes.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	sizes.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1"), "nvidia.com/mig-2g.20gb": resource.MustParse("1")}
	s.create(sizes)
	var got []string
	for _, r := range s.claims(s.waitRunning("two-sizes"))[0].Status.Allocation.Devices.Results {
		_, profile, _ := strings.Cut(r.Device, "-mig-")
		got = append(got, profile[:len("1g-10gb")])
	}
	assert.ElementsMatch(t, []string{"1g-10gb", "2g-20gb"}, got)
}

// The container finds a file in the format of Kubernetes that describes its device.
func TestDeviceMetadataInTheContainer(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPod("told", class1g10gb)
	pod := s.waitRunning("told")
	device := s.allocated(pod, "")
	const folder = "/var/run/kubernetes.io/dra-device-attributes"
	files := strings.Fields(s.exec(s.namespace, "told", "main", "find", folder, "-name", names.DriverName+"-metadata.json"))
	require.Equal(t, []string{folder + "/resourceclaimtemplates/gpu/gpu/" + names.DriverName + "-metadata.json"}, files)
	var told metadatav1beta1.DeviceMetadata
	require.NoError(t, json.Unmarshal([]byte(s.exec(s.namespace, "told", "main", "cat", files[0])), &told))
	assert.Equal(t, metadatav1beta1.SchemeGroupVersion.String(), told.APIVersion)
	assert.Equal(t, s.claims(pod)[0].UID, told.UID)
	require.Len(t, told.Requests, 1)
	require.Len(t, told.Requests[0].Devices, 1)
	d := told.Requests[0].Devices[0]
	assert.Equal(t, []string{names.DriverName, device.Pool, device.Device}, []string{d.Driver, d.Pool, d.Name})
	assert.Equal(t, "1g.10gb", *d.Attributes["profile"].StringValue)
	assert.Positive(t, *d.Attributes["memory"].IntValue)
	assert.True(t, strings.HasSuffix(s.env(pod, "main")["TRANCHE_DEVICE_"+strings.ToUpper(strings.ReplaceAll(device.Device, "-", "_"))], *d.Attributes["uuid"].StringValue))
}

// Two GPUs of one NUMA node, although the next two that are free are of two.
func TestMatchAttributeOfNUMANodes(t *testing.T) {
	s := start(t)
	gpus := s.machine(nodeA).GPUs
	for n, name := range []string{"a", "b", "c"} {
		s.gpuPodOn(name, classWhole, gpus[n].PCI)
	}
	s.waitAllRunning(3)
	pair := request(classWhole, "")
	pair.Exactly.AllocationMode, pair.Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 2
	numa := resourceapi.FullyQualifiedName("resource.kubernetes.io/numaNode")
	claim := devices(pair)
	claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &numa}}
	s.template("pair", claim)
	pod := newPod("pair", fromTemplate("pair"))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	s.create(pod)
	var got []string
	for _, result := range s.claims(s.waitRunning("pair"))[0].Status.Allocation.Devices.Results {
		got = append(got, result.Device)
	}
	slices.Sort(got)
	assert.Equal(t, []string{gpu.NameOf(gpus[4].PCI), gpu.NameOf(gpus[5].PCI)}, got)
}

// A monitor starts beside work, and sees all GPUs. A switch evicts it when the others have left, and no other
// monitor starts before the end. Without admin access, its device is refused.
func TestAMonitorStartsWhereWorkIs(t *testing.T) {
	s := start(t)
	s.gpuPod("holder", class1g10gb)
	held := s.allocated(s.waitRunning("holder"), "").Device
	monitors := request("gpu-monitor.tranche.dev", "")
	monitors.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	monitors.Exactly.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	s.podWithRequests(nodeA, "tenant", monitors)
	s.waitPodEvent("tenant", prepareFailed, "is for monitors: set adminAccess: true")
	s.delete("tenant")

	_, err := s.client.CoreV1().Namespaces().Patch(s.ctx, s.namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+resourceapi.DRAAdminNamespaceLabelKey+`":"true"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	monitors.Exactly.AdminAccess = ptr.To(true)
	for _, node := range s.nodes {
		s.podWithRequests(node, "monitor-"+node, monitors)
		s.requireSeesEveryGPU(s.waitRunning("monitor-"+node), monitorNode)
	}
	metrics := s.metrics(nodeA)
	assert.Regexp(t, `(?m)^tranche_claim_info\{.*device="`+held+`".*pod="holder"`, metrics)
	s.gpuPod("beside", class3g40gb)
	assert.Equal(t, gpu.OfDevice(held), gpu.OfDevice(s.allocated(s.waitRunning("beside"), "").Device))

	s.setProfile("cut-in-three", cutInThree)
	s.slowPod(nodeA, "slow", classWhole, 600)
	s.labelProfile(nodeA, "cut-in-three")
	s.waitPodEvent("slow", names.EventEvictedForSwitch)
	s.podWithRequests(nodeA, "next", monitors)
	s.waitUnschedulable("next")
	s.waitRunning("monitor-" + nodeA)
	s.delete("slow")
	s.waitFollows(nodeA, "cut-in-three")
	s.waitGone("monitor-" + nodeA)
	s.requireSeesEveryGPU(s.waitRunning("next"), monitorNode)
}

// A GPU or a partition, and a network interface of another driver on the same PCIe root. In the lab only:
// no kubelet knows a driver of these interfaces.
func TestAGPUWithANetworkInterface(t *testing.T) {
	s := start(t)
	if s.lab == nil {
		t.Skip("the kubelet has no driver of network interfaces")
	}
	gpus := s.machine(nodeA).GPUs
	roots := []string{models.PCIeRoot(gpus[3].PCI), models.PCIeRoot(gpus[0].PCI), "pci0000:f0"} // no GPU is on the last one
	s.publishInterfaces(nodeA, roots)
	root := resourceapi.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)
	create := func(name, class string) {
		s.t.Helper()
		nic := request(interfaceClass, "")
		nic.Name = "nic"
		claim := devices(nic, request(class, ""))
		claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &root}}
		s.template(name, claim)
		pod := newPod(name, fromTemplate(name))
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
		s.create(pod)
	}
	beside := map[string]string{"nic-0": gpu.NameOf(gpus[3].PCI), "nic-1": gpu.NameOf(gpus[0].PCI)}
	for name, class := range map[string]string{"whole": classWhole, "part": class1g10gb} {
		create(name, class)
		pod := s.waitRunning(name)
		device := s.allocated(pod, "gpu")
		assert.Equal(t, beside[s.allocated(pod, "nic").Device], gpu.OfDevice(device.Device))
		assert.Equal(t, s.nodesOf(nodeA, device), s.seen(pod, "main"))
		requireOneDevice(t, s.env(pod, "main"), device)
		s.eventually("the claim's status has the device of Tranche only", func() (bool, string) {
			told := s.claims(pod)[0].Status.Devices
			return len(told) == 1 && told[0].Driver == names.DriverName && told[0].Device == device.Device, fmt.Sprint(told)
		})
	}
	create("far", classWhole)
	s.waitUnschedulable("far")
	why := s.kubectl("tranche", "why", "far", "-n", s.namespace)
	assert.Contains(t, why, "not all of them with the same "+string(root))
	assert.Contains(t, why, "nic: 1 of 3 devices free: 2 taken.")
	s.delete("whole")
	s.waitRunning("far")
}

// interfaceClass is the class and the driver of the network interfaces.
const interfaceClass = "nic.example.com"

// publishInterfaces publishes network interfaces of a node by their PCIe roots, until the test ends.
func (s *suite) publishInterfaces(node string, roots []string) {
	s.t.Helper()
	slice := newSlice(node, interfaceClass)
	slice.Spec.Devices = nil
	for i := range roots {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("nic-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				deviceattribute.StandardDeviceAttributePCIeRoot: {StringValue: &roots[i]},
			},
		})
	}
	published, err := s.client.ResourceV1().ResourceSlices().Create(s.ctx, slice, metav1.CreateOptions{})
	require.NoError(s.t, err)
	class, err := s.client.ResourceV1().DeviceClasses().Create(s.ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: interfaceClass},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", interfaceClass),
		}}}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, s.client.ResourceV1().DeviceClasses().Delete(s.ctx, class.Name, metav1.DeleteOptions{}))
		assert.NoError(s.t, s.client.ResourceV1().ResourceSlices().Delete(s.ctx, published.Name, metav1.DeleteOptions{}))
	})
}
