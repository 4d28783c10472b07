package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Amounts that no GPU can serve are refused when the claim, or the template for
// it, is created, and said by name.
func TestShareAmountsThatNoGPUCanServe(t *testing.T) {
	s := start(t)
	const anyMemory, anyFraction = "gpu-memory-share.tranche.dev", "gpu-fraction-share.tranche.dev"
	for name, test := range map[string]struct {
		class string
		asked amounts
		says  string
	}{
		"no fraction":           {classFractionShare, amounts{"fraction": "0"}, "fraction"},
		"a negative fraction":   {anyFraction, amounts{"fraction": "-0.5"}, "fraction"},
		"more than one GPU":     {classFractionShare, amounts{"fraction": "1.5"}, "fraction is 1500m"},
		"half a GPU as percent": {anyFraction, amounts{"fraction": "50"}, "fraction"},
		"no memory":             {classMemoryShare, amounts{"memory": "0"}, "memory"},
		"negative memory":       {anyMemory, amounts{"memory": "-1Gi"}, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := devices(shareRequest(test.class, "", test.asked))
			_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, &resourceapi.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: resourceapi.ResourceClaimSpec{Devices: spec},
			}, dryCreate)
			require.ErrorContains(t, err, test.says)
			t.Log(err)
			_, err = s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Create(s.ctx, &resourceapi.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: "bad"},
				Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: spec}},
			}, dryCreate)
			require.ErrorContains(t, err, test.says)
		})
	}
	for name, asked := range map[string]amounts{
		"a thousandth": {"fraction": "0.001"}, "a whole GPU": {"fraction": "1"}, "a replica": nil,
	} {
		_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "good"},
			Spec:       resourceapi.ResourceClaimSpec{Devices: devices(shareRequest(classFractionShare, "", asked))},
		}, dryCreate)
		assert.NoError(t, err, name)
	}
}

// More memory than any GPU has is said by why, with what the largest has.
func TestShareOfMoreMemoryThanTheGPUHas(t *testing.T) {
	s := start(t)
	s.sharePod("greedy", classMemoryShare, amounts{"memory": "100Gi"})
	s.waitUnschedulable("greedy")
	why := s.why("greedy")
	assert.Contains(t, why, "100Gi", why)
	t.Log(why)
	s.sharePod("modest", classMemoryShare, amounts{"memory": "1Gi"})
	s.waitRunning("modest")
}

// A share by memory of a GPU that is shared by fraction waits for another GPU,
// and why names who holds it.
func TestShareOnAFullGPUSaysWhoHoldsIt(t *testing.T) {
	s := start(t)
	pci := s.machine(nodeA).GPUs[0].PCI
	s.sharePodAt(nodeA, "holder", pci, classFractionShare, amounts{"fraction": "0.7"})
	s.waitRunning("holder")
	s.sharePodAt(nodeA, "waits", pci, classFractionShare, amounts{"fraction": "0.4"})
	s.waitUnschedulable("waits")
	assert.Contains(t, s.why("waits"), "held by "+s.namespace+": holder")
	s.delete("holder")
	s.waitRunning("waits")
}

// A node whose settings offer no shares gives none, and why says so.
func TestShareOnANodeThatOffersNone(t *testing.T) {
	s := start(t)
	s.followProfile(nodeB, "unshared", `{gpus: {vendor: nvidia}, sharing: {enabled: false}}`)
	s.eventually("node-b offers no shares", func() (bool, string) {
		offered := s.shareDevices(nodeB)
		return len(offered) == 0, strings.Join(offered, " ")
	})
	s.sharePodAt(nodeB, "nowhere", "", classMemoryShare, amounts{"memory": "1Gi"})
	s.waitUnschedulable("nowhere")
	assert.Contains(t, s.why("nowhere"), nodeB)
	s.gpuPodAt(nodeB, "whole", classWhole, "")
	s.waitRunning("whole")
}

// One client more than the GPU has goes to another GPU.
func TestShareWithOneClientMoreThanMaxClients(t *testing.T) {
	s := start(t)
	gpus := s.machine(nodeA).GPUs
	s.sharePodAt(nodeA, "many", gpus[0].PCI, classFractionShare, amounts{"fraction": "0.1", "clients": "47"})
	s.sharePodAt(nodeA, "last", gpus[0].PCI, classFractionShare, amounts{"fraction": "0.1"})
	s.waitRunning("many", "last")
	s.sharePodAt(nodeA, "one-more", gpus[0].PCI, classFractionShare, amounts{"fraction": "0.1"})
	s.waitUnschedulable("one-more")
	assert.Contains(t, s.why("one-more"), "clients")
	s.sharePod("elsewhere", classFractionShare, amounts{"fraction": "0.1"})
	assert.NotEqual(t, gpu.OfDevice(s.allocated(s.pod("last"), "").Device), gpu.OfDevice(s.allocated(s.waitRunning("elsewhere"), "").Device))
	s.delete("last")
	s.waitRunning("one-more")
}

// Where the settings allow one client, a claim for more gets none, and processes that bypass the MPS
// daemon are kept off while the GPU is shared.
func TestShareForOneClientInExclusiveProcessMode(t *testing.T) {
	s := startOnCluster(t)
	s.followProfile(nodeB, "one-client", `{gpus: {vendor: nvidia}, sharing: {strategy: MPS, exclusiveProcess: true, oneClient: true, replicas: 4}}`)
	s.waitFollows(nodeB, "one-client")
	pci := s.machine(nodeB).GPUs[0].PCI
	s.sharePodAt(nodeB, "one", pci, classFractionShare, nil)
	s.waitRunning("one")
	const exclusive = 3 // NVML_COMPUTEMODE_EXCLUSIVE_PROCESS of nvml.h
	for _, g := range s.machine(nodeB).GPUs {
		assert.Equal(t, g.PCI == pci, g.ComputeMode == exclusive, g.PCI)
	}

	s.sharePodAt(nodeB, "clients", "", classFractionShare, amounts{"clients": "2"})
	s.waitUnschedulable("clients")
	two := shareRequest(classFractionShare, "", nil)
	two.Exactly.AllocationMode, two.Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 2
	s.podWithRequests(nodeB, "two", two)
	s.waitPodEvent("two", prepareFailed, "asks for 2 shares", "oneClient")

	s.delete("two", "clients", "one")
	for _, g := range s.machine(nodeB).GPUs {
		assert.Zero(t, g.ComputeMode, g.PCI)
	}
}

// why is what kubectl tranche says of a pod that does not run, in one line.
func (s *suite) why(pod string) string {
	s.t.Helper()
	return strings.Join(strings.Fields(s.kubectl("tranche", "why", "-n", s.namespace, pod)), " ")
}

// shareDevices lists the shares that a node publishes.
func (s *suite) shareDevices(node string) (names []string) {
	s.t.Helper()
	for _, slice := range s.slices(node) {
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; *d.Attributes["type"].StringValue == "share" {
				names = append(names, d.Name)
			}
		}
	}
	return names
}
