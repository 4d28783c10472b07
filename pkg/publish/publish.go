package publish

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Card is a card as it should appear in the API.
type Card struct {
	gpu.GPU
	// Withheld keeps the card's devices out of its pool. The pool itself
	// stays, because autoscalers count pools. Only a card of which nothing is
	// allocated may be withheld: the scheduler forgets what an allocated
	// device consumes as soon as it is no longer published. Taint it instead.
	Withheld bool
	// Taints go on every device of the card.
	Taints []resourceapi.DeviceTaint
}

// Resources returns one pool for each card of the node. Each has one slice with
// the counters of the card and one with its devices, in the order in which the
// scheduler should try them.
//
// A card that would break a limit of the API is published without devices, with
// an error that names it: one invalid pool would otherwise keep all others from
// being published.
func Resources(node string, cards []Card) (resourceslice.DriverResources, []error) {
	var errs []error
	pools := make(map[string]resourceslice.Pool, len(cards))
	for _, card := range cards {
		devices := devicesOf(&card)
		if err := checkLimits(&card, devices); err != nil {
			errs = append(errs, err)
			devices = nil
		}
		pools[gpu.PoolName(node, card.Name())] = resourceslice.Pool{Slices: []resourceslice.Slice{
			{SharedCounters: []resourceapi.CounterSet{counterSet(&card)}},
			{Devices: devices},
		}}
	}
	return resourceslice.DriverResources{Pools: pools}, errs
}

func devicesOf(card *Card) []resourceapi.Device {
	if card.Withheld {
		return nil
	}
	devices := make([]resourceapi.Device, 0, len(card.Placements))
	for _, p := range card.Placements {
		devices = append(devices, resourceapi.Device{
			Name:       p.Name(),
			Attributes: attributes(&card.GPU, p),
			Capacity:   capacity(p),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
				CounterSet: card.Name(),
				Counters:   counters(p.Consumes),
			}},
			Taints: card.Taints,
		})
	}
	return devices
}

func counterSet(card *Card) resourceapi.CounterSet {
	return resourceapi.CounterSet{Name: card.Name(), Counters: counters(card.Counters)}
}

func counters(c gpu.Counters) map[string]resourceapi.Counter {
	out := make(map[string]resourceapi.Counter, len(c))
	for name, n := range c {
		format := resource.DecimalSI
		if name == gpu.CounterMemory {
			format = resource.BinarySI
		}
		out[name] = resourceapi.Counter{Value: *resource.NewQuantity(n, format)}
	}
	return out
}

// checkLimits finds what the API server would refuse, so that the error can
// name the card and not only a slice.
func checkLimits(card *Card, devices []resourceapi.Device) error {
	if n, limit := len(card.Counters), resourceapi.ResourceSliceMaxCountersPerCounterSet; n > limit {
		return fmt.Errorf("card %s needs %d counters, the API allows %d: its devices are not published", card.Name(), n, limit)
	}
	if n, limit := len(devices), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures; n > limit {
		return fmt.Errorf("card %s has %d devices, the API allows %d in a slice with counters: its devices are not published", card.Name(), n, limit)
	}
	for _, d := range devices {
		if n, limit := len(d.Attributes)+len(d.Capacity), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > limit {
			return fmt.Errorf("device %s has %d attributes and capacities, the API allows %d: the devices of its card are not published", d.Name, n, limit)
		}
	}
	return nil
}
