package clusterautoscaler

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Utilization is how much of a node is used, from 0 to 1: that of its fullest pool. A pool
// with counters is used as much as its counter sets are on average, and a counter set as much
// as its fullest counter. Claims are the results of the claims on the node.
func Utilization(slices []resourceapi.ResourceSlice, claims []resourceapi.AllocationResult) float64 {
	held := map[device]bool{}
	for _, claim := range claims {
		for _, result := range claim.Devices.Results {
			held[device{result.Driver, result.Pool, result.Device}] = true
		}
	}
	pools := map[device][]resourceapi.ResourceSlice{}
	for _, slice := range slices {
		pool := device{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name}
		pools[pool] = append(pools[pool], slice)
	}
	fullest := 0.0
	for pool, slices := range pools {
		fullest = max(fullest, ofPool(pool, slices, held))
	}
	return fullest
}

// device is the name of a device, or of a pool.
type device struct{ driver, pool, name string }

func ofPool(pool device, slices []resourceapi.ResourceSlice, held map[device]bool) float64 {
	consumed := map[string]map[string]*resource.Quantity{}
	var sets []resourceapi.CounterSet
	for _, slice := range slices {
		sets = append(sets, slice.Spec.SharedCounters...)
		for _, d := range slice.Spec.Devices {
			if held[device{pool.driver, pool.pool, d.Name}] {
				add(consumed, d.ConsumesCounters)
			}
		}
	}
	if len(sets) == 0 {
		return 0
	}
	sum := 0.0
	for _, set := range sets {
		fullest := 0.0
		for name, counter := range set.Counters {
			if used := consumed[set.Name][name]; used != nil && !counter.Value.IsZero() {
				fullest = max(fullest, used.AsApproximateFloat64()/counter.Value.AsApproximateFloat64())
			}
		}
		sum += fullest
	}
	return sum / float64(len(sets))
}

// add adds what a device consumes.
func add(consumed map[string]map[string]*resource.Quantity, by []resourceapi.DeviceCounterConsumption) {
	for _, c := range by {
		if consumed[c.CounterSet] == nil {
			consumed[c.CounterSet] = map[string]*resource.Quantity{}
		}
		for name, counter := range c.Counters {
			if consumed[c.CounterSet][name] == nil {
				consumed[c.CounterSet][name] = &resource.Quantity{}
			}
			consumed[c.CounterSet][name].Add(counter.Value)
		}
	}
}
