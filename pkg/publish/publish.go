package publish

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// counterSetName is the same in every pool, because names of counter sets count
// within a pool only, and short, because every device repeats it.
const counterSetName = "card"

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
// A card that would break a rule of the API is published without devices, with
// an error that names it: one invalid pool would otherwise keep all others from
// being published.
func Resources(node string, cards []Card) (resourceslice.DriverResources, []error) {
	var errs []error
	pools := make(map[string]resourceslice.Pool, len(cards))
	for _, card := range cards {
		sets := []resourceapi.CounterSet{counterSet(&card)}
		devices := devicesOf(&card)
		if err := check(sets[0], devices); err != nil {
			errs = append(errs, fmt.Errorf("card %s: %w: none of its devices are published", card.Name(), err))
			// The counters go too: it may be them that the API would refuse.
			sets, devices = nil, nil
		}
		// Two slices, empty or not: when their number changes, the whole pool is
		// written anew and is incomplete meanwhile.
		pools[gpu.PoolName(node, card.Name())] = resourceslice.Pool{Slices: []resourceslice.Slice{
			{SharedCounters: sets},
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
				CounterSet: counterSetName,
				Counters:   counters(p.Consumes),
			}},
			Taints: card.Taints,
		})
	}
	return devices
}

func counterSet(card *Card) resourceapi.CounterSet {
	return resourceapi.CounterSet{Name: counterSetName, Counters: counters(card.Counters)}
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
