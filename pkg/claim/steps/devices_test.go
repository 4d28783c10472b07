package steps

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

var foreignResult = resourceapi.DeviceRequestAllocationResult{Request: "nic", Driver: "nic.example.com", Pool: "p", Device: "eth1"}

func opaque(driver, parameters string, source resourceapi.AllocationConfigSource) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: source,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	}
}

func TestAllocatedTakesOnlyOurResults(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	c := claims.Of("a", foreignResult, claims.ResultOf("small", one), claims.Monitors("", 1).Status.Allocation.Devices.Results[0], claims.ResultOf("big", claims.Whole(1)))
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
		opaque("nic.example.com", `{"kind":"Nic"}`, resourceapi.AllocationConfigSourceClaim), {},
	}
	got, err := Allocated(c, claims.Node, claims.GPUs(2))
	require.NoError(t, err)
	assert.Equal(t, []ledger.Device{
		{Request: "small", Pool: "node-a", Name: one.Name(), Placement: one, Made: true},
		{Request: "look", Pool: "node-a", Name: "gpu-0000-02-00-0-monitor", Placement: gpu.Monitor(claims.Address(1)), Admin: true},
		{Request: "big", Pool: "node-a", Name: "gpu-0000-02-00-0", Placement: claims.Whole(1)},
	}, got)
}

func TestAllocatedRefuses(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	change := func(f func(*resourceapi.DeviceRequestAllocationResult)) *resourceapi.ResourceClaim {
		r := claims.ResultOf("r", one)
		f(&r)
		return claims.Of("a", r)
	}
	configured := func(config resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
		c := claims.For("a", one)
		c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{config}
		return c
	}
	notAllocated := claims.For("a", one)
	notAllocated.Status.Allocation = nil
	for name, tt := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		message string
	}{
		"not allocated":   {notAllocated, "claim team/claim-a is not allocated"},
		"nothing of ours": {claims.Of("a", foreignResult), "no device of driver gpu.tranche.dev is allocated to the claim"},
		"a device that is gone": {change(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "gpu-0000-01-00-0-mig-9g-90gb-0" }),
			"device gpu-0000-01-00-0-mig-9g-90gb-0 does not exist on GPU gpu-0000-01-00-0: the GPU's mode or driver has changed since the device was allocated; delete the pod"},
		"a GPU that is gone": {change(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "gpu-0000-ff-00-0" }),
			"node node-a does not have the GPU of this device, or its driver is not loaded; this is retried, or delete the pod"},
		"admin access to what pods use": {change(func(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = new(true) }),
			"device gpu-0000-01-00-0-mig-1g-10gb-5 was allocated with adminAccess, which is for DeviceClass gpu-monitor.tranche.dev only"},
		"a monitor without admin access": {claims.For("a", gpu.Monitor(claims.Address(0))),
			"device gpu-0000-01-00-0-monitor is for monitors: set adminAccess: true in the claim, in a namespace with the label resource.kubernetes.io/admin-access=true"},
		"another node's pool": {change(func(r *resourceapi.DeviceRequestAllocationResult) { r.Pool = "node-b" }),
			"pool node-b: node node-a does not have the GPU of this device"},
		"configuration in the claim": {configured(opaque(names.DriverName, `{"apiVersion":"gpu.nvidia.com/v1beta1","kind":"MigDeviceConfig"}`, resourceapi.AllocationConfigSourceClaim)),
			`driver gpu.tranche.dev takes no opaque configuration, but the claim has one of kind "gpu.nvidia.com/v1beta1/MigDeviceConfig": remove spec.devices.config from it`},
		"configuration in the class": {configured(opaque(names.DriverName, `{"kind":"Sharing"}`, resourceapi.AllocationConfigSourceClass)),
			`the device class has one of kind "Sharing"`},
		"configuration without a kind": {configured(opaque(names.DriverName, `{"replicas":4}`, resourceapi.AllocationConfigSourceClaim)), `kind "without a kind"`},
		"configuration that is broken": {configured(opaque(names.DriverName, `{`, resourceapi.AllocationConfigSourceClaim)), `kind "without a kind"`},
		"configuration of a long kind": {configured(opaque(names.DriverName, `{"kind":"`+strings.Repeat("ü", 5000)+`"}`, resourceapi.AllocationConfigSourceClaim)),
			`kind "` + strings.Repeat("ü", 50) + `...": remove`},
		"empty configuration": {configured(opaque(names.DriverName, ``, resourceapi.AllocationConfigSourceClaim)), `kind "without a kind"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Allocated(tt.claim, claims.Node, claims.GPUs(1))
			require.ErrorContains(t, err, tt.message)
			assert.Empty(t, got)
		})
	}
}
