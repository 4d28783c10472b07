package steps

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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
			`the claim's configuration for gpu.tranche.dev: apiVersion: is "gpu.nvidia.com/v1beta1", it must be tranche.dev/v1beta1`},
		"configuration in the class": {configured(opaque(names.DriverName, `{"kind":"Sharing"}`, resourceapi.AllocationConfigSourceClass)),
			`the device class's configuration for gpu.tranche.dev: `},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Allocated(tt.claim, claims.Node, claims.GPUs(1))
			require.ErrorContains(t, err, tt.message)
			assert.Empty(t, got)
		})
	}
}

// A share has the limit that its claim asks for, as far as the profile and the GPU allow.
func TestMemoryLimitOfShares(t *testing.T) {
	const config = `{"apiVersion":"tranche.dev/v1beta1","kind":"ShareConfig","memoryLimit":"%s"}`
	for name, tt := range map[string]struct {
		percent   int
		isolation gpu.Isolation
		asked     string
		limit     int64
		says      string
	}{
		"allowed":           {300, gpu.IsolationKernel, "2000Mi", 2000, ""},
		"none":              {300, gpu.IsolationKernel, "", 0, ""},
		"the request":       {300, gpu.IsolationKernel, "1000Mi", 0, ""},
		"less":              {300, gpu.IsolationKernel, "500Mi", 0, "The memory limit of request r of claim team/claim-a is 1000 MiB, not the 500 MiB of its configuration: a limit is at least the request: raise it, or request less"},
		"above the profile": {150, gpu.IsolationKernel, "2000Mi", 1500, "is 1500 MiB, not the 2000 MiB of its configuration: the profile of the node allows 150 % of the request (sharing.maxMemoryLimitPercent"},
		"no profile":        {0, gpu.IsolationCooperative, "2000Mi", 0, "is 1000 MiB, not the 2000 MiB of its configuration: the profile of the node allows 100 %"},
		"above the GPU":     {10000, gpu.IsolationKernel, "1Ti", 81559, "that is all of the GPU"},
		"nothing limits it": {0, gpu.IsolationNone, "2000Mi", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := claims.GPUs(1)[0]
			whole, _ := g.Placement(g.Name())
			whole.Memory = 81559 * gpu.MiB
			share := gpu.ShareOf(whole, gpu.ByMemory, gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 10, MaxClients: 48, MaxMemoryLimitPercent: tt.percent})
			share.Isolation = tt.isolation
			g.Placements = append(g.Placements, share)
			r := claims.ResultOf("r", share)
			r.ShareID, r.ConsumedCapacity = ptr.To[types.UID]("s"), map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1000Mi")}
			c := claims.Of("a", r)
			if tt.asked != "" {
				c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
					opaque(names.DriverName, fmt.Sprintf(config, tt.asked), resourceapi.AllocationConfigSourceClaim),
				}
			}
			got, err := Allocated(c, claims.Node, []gpu.GPU{g})
			require.NoError(t, err)
			assert.Equal(t, tt.limit*gpu.MiB, got[0].MemoryLimit)
			assert.EqualValues(t, max(1000, tt.limit)*gpu.MiB, got[0].MemoryMost())
			says := ReducedLimits(c, ledger.Record{Claim: ledger.ClaimRef{Namespace: c.Namespace, Name: c.Name}, Devices: got})
			if tt.says == "" {
				assert.Empty(t, says)
				return
			}
			require.Len(t, says, 1)
			assert.Contains(t, says[0], tt.says)
		})
	}
}

// The GPUs of a claim are told by the names of its devices, before they are known to exist.
func TestGPUsOfAClaim(t *testing.T) {
	c := claims.For("a", claims.MIG(0, "1g.10gb", 5, 1), claims.Whole(1), claims.Whole(2), claims.Whole(3))
	c.Status.Allocation.Devices.Results[1].Driver = "nic.example.com"
	c.Status.Allocation.Devices.Results[2].Pool = "node-b"
	assert.Equal(t, []string{claims.Address(0), claims.Address(3)}, GPUs(c, claims.Node))
	c.Status.Allocation = nil
	assert.Empty(t, GPUs(c, claims.Node))
	assert.Empty(t, ReducedLimits(c, ledger.Record{}))
}
