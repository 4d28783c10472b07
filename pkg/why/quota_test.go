package why

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
)

// What claims take of quotas.
func TestQuotasOfClaims(t *testing.T) {
	spec := &resourceapi.ResourceClaimSpec{}
	spec.Devices.Requests = []resourceapi.DeviceRequest{
		{Name: "a", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "small", Count: 2}},
		{Name: "b", FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "small"}, {DeviceClassName: "large"}}},
		{Name: "c", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "large", AllocationMode: resourceapi.DeviceAllocationModeAll}},
	}
	got := map[string]string{}
	for name, n := range quotaOfClaim(spec, map[string]string{"small": "example.com/small"}) {
		got[string(name)] = n.String()
	}
	assert.Equal(t, map[string]string{
		"count/resourceclaims.resource.k8s.io": "1", "small.deviceclass.resource.k8s.io/devices": "3",
		"requests.example.com/small": "3", "large.deviceclass.resource.k8s.io/devices": "33",
	}, got)
}
