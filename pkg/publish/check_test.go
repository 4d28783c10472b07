package publish

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

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

// refused compares an error with a part of its text; without one, there must be no error.
func refused(t *testing.T, want string, err error, name string) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err, name)
	} else {
		assert.ErrorContains(t, err, want, name)
	}
}

func TestCounterSets(t *testing.T) {
	counters := func(n int) map[string]resourceapi.Counter {
		all := map[string]resourceapi.Counter{}
		for i := range n {
			all[fmt.Sprint("c", i)] = resourceapi.Counter{}
		}
		return all
	}
	most := resourceapi.ResourceSliceMaxCountersPerCounterSet
	for name, test := range map[string]struct {
		set  resourceapi.CounterSet
		want string
	}{
		"all it can have": {resourceapi.CounterSet{Name: "gpu", Counters: counters(most)}, ""},
		"one more":        {resourceapi.CounterSet{Name: "gpu", Counters: counters(most + 1)}, fmt.Sprintf("%d counters, the API allows %d", most+1, most)},
		"none":            {resourceapi.CounterSet{Name: "gpu"}, "it has no counters"},
		"its name":        {resourceapi.CounterSet{Name: "GPU", Counters: counters(1)}, `"GPU" is not a valid name of a counter set`},
		"name of counter": {resourceapi.CounterSet{Name: "gpu", Counters: map[string]resourceapi.Counter{"memory_slice": {}}}, `"memory_slice" is not a valid name of a counter`},
	} {
		refused(t, test.want, checkCounters(test.set), name)
	}
}

func TestDevicesThatTheAPIRefuses(t *testing.T) {
	sets := []resourceapi.CounterSet{{Name: "a", Counters: map[string]resourceapi.Counter{"memory": {}}}, {Name: "b", Counters: map[string]resourceapi.Counter{"slices": {}}}}
	of := func(set, counter string) resourceapi.DeviceCounterConsumption {
		c := resourceapi.DeviceCounterConsumption{CounterSet: set}
		if counter != "" {
			c.Counters = map[string]resourceapi.Counter{counter: {}}
		}
		return c
	}
	consumes := func(all ...resourceapi.DeviceCounterConsumption) resourceapi.Device {
		return resourceapi.Device{Name: "gpu", ConsumesCounters: all}
	}
	tainted := func(n int, key, value string) resourceapi.Device {
		d := resourceapi.Device{Name: "gpu"}
		for range n {
			d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: key, Value: value})
		}
		return d
	}
	mostSets, mostTaints := resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, resourceapi.DeviceTaintsMaxLength
	var tooMany []resourceapi.DeviceCounterConsumption
	for range mostSets + 1 {
		tooMany = append(tooMany, of("a", "memory"))
	}
	for name, test := range map[string]struct {
		device resourceapi.Device
		want   string
	}{
		"its name":          {resourceapi.Device{Name: "gpu_0"}, "its name is not a DNS label"},
		"both sets":         {consumes(of("a", "memory"), of("b", "slices")), ""},
		"a counter of none": {consumes(of("a", "memory"), of("b", "memory")), "it consumes memory, which the GPU does not have"},
		"a set of none":     {consumes(of("c", "memory")), "it consumes from counter set c, which does not exist"},
		"no counter":        {consumes(of("a", "")), "it consumes no counters of the GPU"},
		"as many sets":      {consumes(tooMany[1:]...), ""},
		"too many sets":     {consumes(tooMany...), fmt.Sprintf("it consumes from %d counter sets, the API allows %d", mostSets+1, mostSets)},
		"as many taints":    {tainted(mostTaints, "tranche.dev/x", "y"), ""},
		"too many taints":   {tainted(mostTaints+1, "tranche.dev/x", "y"), fmt.Sprintf("%d taints, the API allows %d", mostTaints+1, mostTaints)},
		"a taint's key":     {tainted(1, "a b", "y"), "taint a b=y is not valid in the API"},
		"a taint's value":   {tainted(1, "tranche.dev/x", strings.Repeat("y", 64)), "is not valid in the API"},
	} {
		refused(t, test.want, checkDevice(sets, &test.device), name)
	}
}

// A share needs default amounts that the API takes, and of which the scheduler counts one.
func TestAmountsOfShares(t *testing.T) {
	capacity := func(value, byDefault, least, step string) resourceapi.DeviceCapacity {
		c := resourceapi.DeviceCapacity{Value: resource.MustParse(value), RequestPolicy: &resourceapi.CapacityRequestPolicy{}}
		if byDefault != "" {
			c.RequestPolicy.Default = ptr.To(resource.MustParse(byDefault))
		}
		if least != "" {
			c.RequestPolicy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse(least))}
		}
		if step != "" {
			c.RequestPolicy.ValidRange.Step = ptr.To(resource.MustParse(step))
		}
		return c
	}
	const uncounted = "its shares have neither memory nor a fraction by default"
	for name, test := range map[string]struct {
		of       resourceapi.QualifiedName
		capacity resourceapi.DeviceCapacity
		want     string
	}{
		"memory":                     {names.CapacityMemory, capacity("8Gi", "1Gi", "1Mi", "1Mi"), ""},
		"a fraction":                 {names.CapacityFraction, capacity("1", "100m", "", ""), ""},
		"all by default":             {names.CapacityMemory, capacity("8Gi", "8Gi", "", ""), ""},
		"the least is all":           {names.CapacityMemory, capacity("8Gi", "1Gi", "7Gi", "1Gi"), ""},
		"more by default than all":   {names.CapacityMemory, capacity("8Gi", "9Gi", "", ""), "is less than the default 9Gi or the minimum 0"},
		"a least that is more":       {names.CapacityMemory, capacity("8Gi", "1Gi", "9Gi", ""), "or the minimum 9Gi that the API requires"},
		"one step more than all":     {names.CapacityMemory, capacity("8Gi", "1Gi", "8Gi", "1Gi"), "or the minimum 9Gi that the API requires"},
		"no default":                 {names.CapacityMemory, capacity("8Gi", "", "1Gi", ""), "its capacity memory has no default amount"},
		"no policy":                  {names.CapacityMemory, resourceapi.DeviceCapacity{Value: resource.MustParse("8Gi")}, "its capacity memory has no default amount"},
		"nothing by default":         {names.CapacityMemory, capacity("8Gi", "0", "", ""), uncounted},
		"something that counts none": {names.CapacityComputeUnits, capacity("8", "1", "", ""), uncounted},
	} {
		device := resourceapi.Device{Name: "gpu", AllowMultipleAllocations: ptr.To(true), Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{test.of: test.capacity}}
		refused(t, test.want, checkDevice(nil, &device), name)
		device.AllowMultipleAllocations = nil
		refused(t, "", checkDevice(nil, &device), name+", of one claim")
	}
}
