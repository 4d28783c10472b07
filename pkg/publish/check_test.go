package publish

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// TestTooManyAttributes: no GPU of today comes near this limit, so the device is made up.
func TestTooManyAttributes(t *testing.T) {
	device := resourceapi.Device{Name: "gpu-0000-c1-00-0", Attributes: attributeMap{}}
	for i := range 32 {
		device.Attributes[resourceapi.QualifiedName(fmt.Sprint("attribute", i))] = resourceapi.DeviceAttribute{}
	}
	require.NoError(t, checkDevice(nil, &device))
	device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{names.CapacityMemory: {}}
	require.EqualError(t, checkDevice(nil, &device), "33 attributes and capacities, the API allows 32")
}
