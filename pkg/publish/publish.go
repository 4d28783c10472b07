package publish

import (
	"fmt"
	"slices"

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
	// WholeOnly publishes the whole card, no partitions and no shares, and no counters:
	// the API server would drop these, and nothing would keep the others apart.
	WholeOnly bool
	// Taints go on every device of the card.
	Taints []resourceapi.DeviceTaint
	// DeviceTaints go on single devices, by name, beside those.
	DeviceTaints map[string][]resourceapi.DeviceTaint
	// NoShares keeps share devices out: the API server would drop what lets several
	// claims hold them.
	NoShares bool
	// LegacyResource is the extended resource that devices of the card stand for,
	// beside their classes: "nvidia.com/gpu". Empty: none.
	LegacyResource string
	// Legacy tells which devices these are; nil: the whole card.
	Legacy func(gpu.Placement) bool
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
		sets, devices := contents(&card)
		if err := check(sets, devices); err != nil {
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

// contents is what the two slices of a card hold.
func contents(card *Card) ([]resourceapi.CounterSet, []resourceapi.Device) {
	if card.WholeOnly {
		devices := slices.DeleteFunc(devicesOf(card), func(d resourceapi.Device) bool { return d.Name != card.Name() })
		for i := range devices {
			devices[i].ConsumesCounters = nil
		}
		return nil, devices
	}
	return []resourceapi.CounterSet{counterSet(card)}, devicesOf(card)
}

func devicesOf(card *Card) []resourceapi.Device {
	if card.Withheld {
		return nil
	}
	devices := make([]resourceapi.Device, 0, len(card.Placements))
	for _, p := range card.Placements {
		if p.Share != nil && card.NoShares {
			continue
		}
		devices = append(devices, resourceapi.Device{
			Name:                     p.Name(),
			Attributes:               deviceAttributes(card, p),
			Capacity:                 capacity(p),
			AllowMultipleAllocations: allowMultiple(p),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
				CounterSet: counterSetName,
				Counters:   counters(p.Consumes),
			}},
			Taints: append(slices.Clone(card.Taints), card.DeviceTaints[p.Name()]...),
		})
	}
	return devices
}

func deviceAttributes(card *Card, p gpu.Placement) attributeMap {
	m := attributeMap(Attributes(&card.GPU, p))
	legacy := p.Type == gpu.TypeGPU
	if card.Legacy != nil {
		legacy = card.Legacy(p)
	}
	if legacy {
		m.setString(AttributeLegacyResource, card.LegacyResource)
	}
	return m
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
