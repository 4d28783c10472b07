package allocation

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// Features are those that stock Kubernetes 1.37 enables (AllocatorFeatures in the
// scheduler's dynamicresources plugin).
var Features = structured.Features{
	AdminAccess:             true,
	PrioritizedList:         true,
	PartitionableDevices:    true,
	DeviceTaints:            true,
	DeviceBindingAndStatus:  true,
	ConsumableCapacity:      true,
	FractionalCapacityRange: true,
}

// Classes are device classes by name. The allocator asks for them.
type Classes map[string]*resourceapi.DeviceClass

// Get returns a class.
func (c Classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("there is no DeviceClass %s", name)
}

// List returns all of them, in the order of their names.
func (c Classes) List() ([]*resourceapi.DeviceClass, error) {
	return lists.Map(slices.Sorted(maps.Keys(c)), func(name string) *resourceapi.DeviceClass { return c[name] }), nil
}

// ExtendedResources returns the extended resources that devices of a class serve.
func ExtendedResources(class *resourceapi.DeviceClass) []string {
	all := []string{resourceapi.ResourceDeviceClassPrefix + class.Name}
	if name := class.Spec.ExtendedResourceName; name != nil {
		all = append(all, *name)
	}
	return all
}

// Nothing is the state in which no claim holds anything.
func Nothing() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

// Hold adds what a claim was given to a state, as the scheduler does
// (foreachAllocatedDevice in its dynamicresources plugin), and returns the devices that
// the claim keeps from others or shares. Access for administrators holds nothing.
func Hold(state structured.AllocatedState, results []resourceapi.DeviceRequestAllocationResult) []structured.DeviceID {
	var all []structured.DeviceID
	for _, r := range results {
		if ptr.Deref(r.AdminAccess, false) {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		all = append(all, id)
		if r.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		if r.ConsumedCapacity != nil {
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	return all
}
