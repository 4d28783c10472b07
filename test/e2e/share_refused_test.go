package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Where the settings allow one client, a claim for more gets none, and processes that bypass the MPS
// daemon are kept off while the GPU is shared.
func TestShareForOneClientInExclusiveProcessMode(t *testing.T) {
	s := startOnCluster(t)
	s.followProfile(nodeB, "one-client", `{gpus: {vendor: nvidia}, sharing: {strategy: MPS, exclusiveProcess: true, failRequestsGreaterThanOne: true, replicas: 4}}`)
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
	s.waitPodEvent("two", prepareFailed, "asks for 2 shares", "failRequestsGreaterThanOne")

	s.delete("two", "clients", "one")
	for _, g := range s.machine(nodeB).GPUs {
		assert.Zero(t, g.ComputeMode, g.PCI)
	}
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
