package publish

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// The checks find what the API server would refuse in a slice (pkg/apis/resource/validation in
// Kubernetes), and what would make the whole pool invalid for the allocator (GatherPools in
// k8s.io/dynamic-resource-allocation). Neither would say which GPU is the cause.

func checkCounters(set resourceapi.CounterSet) error {
	if len(validation.IsDNS1123Label(set.Name)) > 0 {
		return fmt.Errorf("%q is not a valid name of a counter set: the API requires a DNS label", set.Name)
	}
	if n, limit := len(set.Counters), resourceapi.ResourceSliceMaxCountersPerCounterSet; n > limit {
		return fmt.Errorf("%d counters, the API allows %d", n, limit)
	}
	if len(set.Counters) == 0 {
		return errors.New("it has no counters, so its devices could be allocated side by side")
	}
	for name := range set.Counters {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%q is not a valid name of a counter: the API requires a DNS label", name)
		}
	}
	return nil
}

// checkDevice checks one device against the counter sets of its GPU.
func checkDevice(sets []resourceapi.CounterSet, d *resourceapi.Device) error {
	if len(validation.IsDNS1123Label(d.Name)) > 0 {
		return errors.New("its name is not a DNS label")
	}
	if n, limit := len(d.Attributes)+len(d.Capacity), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > limit {
		return fmt.Errorf("%d attributes and capacities, the API allows %d", n, limit)
	}
	if err := errors.Join(checkNames(d), checkTaints(d.Taints), checkConsumption(sets, d)); err != nil {
		return err
	}
	return checkAmounts(d)
}

// checkNames checks the names of attributes and capacities. From Kubernetes 1.38 on, the helper that publishes
// refuses slices where the driver's domain is part of one, and the API server refuses a second slash.
func checkNames(d *resourceapi.Device) error {
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		if strings.HasPrefix(string(name), names.DriverName+"/") || strings.Count(string(name), "/") > 1 {
			return fmt.Errorf("the name of its attribute %s has the driver's domain, or two slashes", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		if strings.Contains(string(name), "/") {
			return fmt.Errorf("the name of its capacity %s has a slash", name)
		}
	}
	return nil
}

func checkTaints(taints []resourceapi.DeviceTaint) error {
	if n, limit := len(taints), resourceapi.DeviceTaintsMaxLength; n > limit {
		return fmt.Errorf("%d taints, the API allows %d", n, limit)
	}
	for _, t := range taints {
		if len(validation.IsQualifiedName(t.Key)) > 0 || len(validation.IsValidLabelValue(t.Value)) > 0 {
			return fmt.Errorf("taint %s=%s is not valid in the API", t.Key, t.Value)
		}
	}
	return nil
}

// checkConsumption checks that a device consumes counters, and that they exist. A device without
// counters could be allocated beside all others.
func checkConsumption(sets []resourceapi.CounterSet, d *resourceapi.Device) error {
	if n, limit := len(d.ConsumesCounters), resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice; n > limit {
		return fmt.Errorf("it consumes from %d counter sets, the API allows %d", n, limit)
	}
	for _, consumes := range d.ConsumesCounters {
		i := slices.IndexFunc(sets, func(s resourceapi.CounterSet) bool { return s.Name == consumes.CounterSet })
		if i < 0 {
			return fmt.Errorf("it consumes from counter set %s, which does not exist", consumes.CounterSet)
		}
		if len(consumes.Counters) == 0 {
			return errors.New("it consumes no counters of the GPU, so it could be allocated beside all other devices")
		}
		for name := range consumes.Counters {
			if _, ok := sets[i].Counters[name]; !ok {
				return fmt.Errorf("it consumes %s, which the GPU does not have", name)
			}
		}
	}
	return nil
}

// checkAmounts checks the capacities of a share device: the API refuses invalid ones, and
// without a default amount it could be allocated without limit.
func checkAmounts(d *resourceapi.Device) error {
	if !ptr.Deref(d.AllowMultipleAllocations, false) {
		return nil
	}
	counted := false
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		c := d.Capacity[name]
		if c.RequestPolicy == nil || c.RequestPolicy.Default == nil {
			return fmt.Errorf("its capacity %s has no default amount", name)
		}
		byDefault, least := c.RequestPolicy.Default, resource.Quantity{}
		if valid := c.RequestPolicy.ValidRange; valid != nil {
			least = valid.Min.DeepCopy()
			if valid.Step != nil {
				least.Add(*valid.Step)
			}
		}
		if c.Value.Cmp(*byDefault) < 0 || c.Value.Cmp(least) < 0 {
			return fmt.Errorf("its capacity %s of %s is less than the default %[3]s or the minimum %[4]s that the API requires",
				name, c.Value.String(), byDefault.String(), least.String())
		}
		counted = counted || (name == names.CapacityMemory || name == names.CapacityFraction) && byDefault.Sign() > 0
	}
	if !counted {
		return errors.New("its shares have neither memory nor a fraction by default, so the scheduler would not count them")
	}
	return nil
}
