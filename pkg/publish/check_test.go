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

// Kubernetes 1.38 publishes no slice of the driver if one of its names is wrong.
func TestNamesOfAttributesAndCapacities(t *testing.T) {
	for name, want := range map[resourceapi.QualifiedName]string{
		"type": "", "resource.kubernetes.io/pciBusID": "",
		names.DriverName + "/type": "the name of its attribute gpu.tranche.dev/type has the driver's domain, or two slashes",
		"a.example/b/c":            "the name of its attribute a.example/b/c has the driver's domain, or two slashes",
	} {
		err := checkDevice(nil, &resourceapi.Device{Name: "gpu", Attributes: attributeMap{name: {}}})
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
	device := &resourceapi.Device{Name: "gpu", Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{names.DriverName + "/memory": {}}}
	require.EqualError(t, checkDevice(nil, device), "the name of its capacity gpu.tranche.dev/memory has a slash")
}
