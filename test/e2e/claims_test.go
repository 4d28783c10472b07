package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
)

const prepareFailed = "FailedPrepareDynamicResources"

func TestAClaimForAProfileThatNoNodeHas(t *testing.T) {
	s := start(t)
	s.gpuPod("h200", "gpu-mig-1g-18gb.tranche.dev")
	s.waitUnschedulable("h200")
	s.requireNextPodRuns()
	assert.Empty(t, s.pod("h200").Spec.NodeName)
}

func TestAClaimAllocatedToADeviceThatNoLongerExists(t *testing.T) {
	s := start(t)
	pool := names.PoolName(nodeA)
	for name, test := range map[string]struct{ pool, device, message string }{
		"vanished-device": {pool, "gpu-0000-52-00-0-mig-1g-12gb-0", "device gpu-0000-52-00-0-mig-1g-12gb-0 does not exist on GPU gpu-0000-52-00-0"},
		"vanished-gpu":    {pool, "gpu-0000-fe-00-0", "node node-a does not have the GPU of this device"},
	} {
		s.podWithAllocation(name, resourceapi.DeviceRequestAllocationResult{
			Request: "gpu", Driver: names.DriverName, Pool: test.pool, Device: test.device,
		})
		s.waitPodEvent(name, prepareFailed, test.message, "delete the pod")
		assert.Zero(t, s.machine(nodeA).instances())
		s.delete(name)
	}
	s.requireNextPodRuns()
}

// vanished is an allocation of a GPU that node-a does not have.
func vanished() resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: names.DriverName, Pool: names.PoolName(nodeA), Device: "gpu-0000-fe-00-0",
	}
}

// podWithAllocation puts a pod on node-a with a claim that has an allocation, as
// a scheduler would that knows devices which are not published any more.
func (s *suite) podWithAllocation(name string, result resourceapi.DeviceRequestAllocationResult) {
	s.t.Helper()
	claims := s.client.ResourceV1().ResourceClaims(s.namespace)
	claim, err := claims.Create(s.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request(class1g10gb, "")},
		}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	pod := newPod(name, fromClaim(name))
	pod.Spec.NodeName = nodeA
	s.create(pod)
	claim.Status.Allocation = &resourceapi.AllocationResult{
		NodeSelector: onlyOn(nodeA),
		Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: s.pod(name).UID}}
	_, err = claims.UpdateStatus(s.ctx, claim, metav1.UpdateOptions{})
	require.NoError(s.t, err)
}

func TestOpaqueConfigForOurDriver(t *testing.T) {
	s := start(t)
	s.template("configured", resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{request(class1g10gb, "")},
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     names.DriverName,
				Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"gpu.tranche.dev/v1alpha1","kind":"SharingConfig"}`)},
			},
		}}},
	})
	s.create(newPod("configured", fromTemplate("configured")))
	s.waitPodEvent("configured", prepareFailed, "takes no opaque configuration", "the claim has one of kind", "gpu.tranche.dev/v1alpha1/SharingConfig", "remove spec.devices.config")
	assert.Zero(t, s.machine(nodeA).instances())
	s.delete("configured")
	s.requireNextPodRuns()
}

// Configuration for another driver is none of our business.
func TestOpaqueConfigForAnotherDriver(t *testing.T) {
	s := start(t)
	s.template("configured", resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{request(class1g10gb, "")},
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     "other.example.com",
				Parameters: runtime.RawExtension{Raw: []byte(`{"kind":"Other"}`)},
			},
		}}},
	})
	s.create(newPod("configured", fromTemplate("configured")))
	s.waitRunning("configured")
	s.requireInstances(1)
}

func onlyOn(node string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}}}
}

// requireNextPodRuns checks that what went wrong has no consequences: the next
// pod runs, with exactly what it asked for.
func (s *suite) requireNextPodRuns() {
	s.t.Helper()
	s.gpuPod("next", class1g10gb)
	pod := s.waitRunning("next")
	s.requireInstances(1)
	require.Equal(s.t, s.nodesOf(nodeA, s.allocated(pod, "")), s.seen(pod, "main"))
	s.delete("next")
}
