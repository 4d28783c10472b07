package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/claimconfig"
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

// The API server refuses configuration that the plugin would refuse, in claims, templates and classes.
func TestShareConfigIsChecked(t *testing.T) {
	s := start(t)
	config := func(raw string) []resourceapi.DeviceClaimConfiguration {
		c := claimconfig.New(8192)
		if raw != "" {
			c.Opaque.Parameters.Raw = []byte(raw)
		}
		return []resourceapi.DeviceClaimConfiguration{c}
	}
	for raw, want := range map[string]string{
		"": "",
		`{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memorylimit":"8Gi"}`:          "the configuration for gpu.tranche.dev: memorylimit: unknown key; memoryLimit is missing",
		`{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig"}`:                        "apiVersion must be tranche.dev/v1beta1; kind must be ShareConfig",
		`{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memoryLimit":"1e1000000000"}`: "memoryLimit must be an amount of at least 1Mi, as in 8Gi",
	} {
		spec := shareClaim(config(raw))
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}, Spec: spec}
		_, ofClaim := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, claim, dryCreate)
		template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}
		_, ofTemplate := s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Create(s.ctx, template, dryCreate)
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
		class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: config(raw)[0].DeviceConfiguration}}
		_, ofClass := s.client.ResourceV1().DeviceClasses().Create(s.ctx, class, dryCreate)
		for _, err := range []error{ofClaim, ofTemplate, ofClass} {
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}

// shareClaim is a claim for a share with configuration.
func shareClaim(config []resourceapi.DeviceClaimConfiguration) resourceapi.ResourceClaimSpec {
	claim := devices(shareRequest(classMemoryShare, "", amounts{"memory": "2000Mi"}))
	claim.Config = config
	return resourceapi.ResourceClaimSpec{Devices: claim}
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
