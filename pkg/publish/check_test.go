package publish

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// TestTooManyAttributes: no card of today comes near this limit, so the device
// is made up.
func TestTooManyAttributes(t *testing.T) {
	counters := resourceapi.CounterSet{Name: counterSetName, Counters: map[string]resourceapi.Counter{"memory": {}}}
	device := resourceapi.Device{Name: "gpu-0000-c1-00-0", Attributes: attributeMap{}}
	for i := range 32 {
		device.Attributes[resourceapi.QualifiedName(fmt.Sprint("attribute", i))] = resourceapi.DeviceAttribute{}
	}
	require.NoError(t, check([]resourceapi.CounterSet{counters}, []resourceapi.Device{device}))
	device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{CapacityMemory: {}}
	require.EqualError(t, check([]resourceapi.CounterSet{counters}, []resourceapi.Device{device}),
		"device gpu-0000-c1-00-0 has 33 attributes and capacities, the API allows 32")
}
