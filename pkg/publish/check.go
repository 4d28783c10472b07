package publish

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// check finds what would keep a card's pool, or with it all pools, from being
// published: what the API server refuses and what the resourceslice controller
// refuses before that. Neither would name the card.
func check(sets []resourceapi.CounterSet, devices []resourceapi.Device) error {
	counters := resourceapi.CounterSet{}
	if len(sets) > 0 {
		counters = sets[0]
		if err := checkCounters(counters); err != nil {
			return err
		}
	}
	return checkDevices(counters, devices)
}

func checkCounters(counters resourceapi.CounterSet) error {
	if n, limit := len(counters.Counters), resourceapi.ResourceSliceMaxCountersPerCounterSet; n > limit {
		return fmt.Errorf("%d counters, the API allows %d", n, limit)
	}
	if len(counters.Counters) == 0 {
		return errors.New("it has no counters, so that nothing would keep its devices apart")
	}
	for name := range counters.Counters {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%q is no name for a counter, the API wants a DNS label", name)
		}
	}
	return nil
}

func checkDevices(counters resourceapi.CounterSet, devices []resourceapi.Device) error {
	if n, limit := len(devices), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures; n > limit {
		return fmt.Errorf("%d devices, the API allows %d in a slice with counters", n, limit)
	}
	names := make(map[string]bool, len(devices))
	for i := range devices {
		if names[devices[i].Name] {
			return fmt.Errorf("two devices are named %s", devices[i].Name)
		}
		names[devices[i].Name] = true
		if err := checkDevice(counters, &devices[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkDevice(counters resourceapi.CounterSet, d *resourceapi.Device) error {
	if len(validation.IsDNS1123Label(d.Name)) > 0 {
		return fmt.Errorf("%q is no name for a device, the API wants a DNS label", d.Name)
	}
	if n, limit := len(d.Attributes)+len(d.Capacity), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > limit {
		return fmt.Errorf("device %s has %d attributes and capacities, the API allows %d", d.Name, n, limit)
	}
	if n, limit := len(d.Taints), resourceapi.DeviceTaintsMaxLength; n > limit {
		return fmt.Errorf("device %s has %d taints, the API allows %d", d.Name, n, limit)
	}
	for _, consumes := range d.ConsumesCounters {
		if len(consumes.Counters) == 0 {
			return fmt.Errorf("device %s takes nothing of the card, so that nothing would keep others from it", d.Name)
		}
		for name := range consumes.Counters {
			if _, ok := counters.Counters[name]; !ok {
				return fmt.Errorf("device %s consumes %s, which the card does not have", d.Name, name)
			}
		}
	}
	return checkAmounts(d)
}

// checkAmounts finds what the API refuses of a device that is given out in parts,
// and what would let it be given out without end.
func checkAmounts(d *resourceapi.Device) error {
	if !ptr.Deref(d.AllowMultipleAllocations, false) {
		return nil
	}
	counted := false
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		if c.RequestPolicy == nil || c.RequestPolicy.Default == nil {
			return fmt.Errorf("device %s does not say how much %s a share has by default", d.Name, name)
		}
		byDefault, least := c.RequestPolicy.Default, resource.Quantity{}
		if valid := c.RequestPolicy.ValidRange; valid != nil {
			least = valid.Min.DeepCopy()
			if valid.Step != nil {
				least.Add(*valid.Step)
			}
		}
		if c.Value.Cmp(*byDefault) < 0 || c.Value.Cmp(least) < 0 {
			return fmt.Errorf("device %s has %s %s, too little for a share of %s and for one of %s, which the API wants",
				d.Name, c.Value.String(), name, byDefault.String(), least.String())
		}
		counted = counted || (name == CapacityMemory || name == gpu.CapacityFraction) && byDefault.Sign() > 0
	}
	if !counted {
		return fmt.Errorf("device %s gives shares of no size, so that nothing would count them", d.Name)
	}
	return nil
}
