package publish

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// GPU is a GPU as it should appear in the API.
type GPU struct {
	gpu.GPU
	// Withheld keeps the GPU's devices out of the pool. Its slice and its counters stay,
	// so that nothing else changes. Only a GPU of which nothing is allocated may be
	// withheld: the scheduler forgets what an allocated device consumes as soon as it
	// is no longer published. Taint it instead.
	Withheld bool
	// WholeOnly publishes the whole GPU, no partitions and no shares, and no counters:
	// the API server would drop these, and nothing would keep the others apart.
	WholeOnly bool
	// Taints go on every device of the GPU.
	Taints []resourceapi.DeviceTaint
	// DeviceTaints go on single devices, by name, beside those.
	DeviceTaints map[string][]resourceapi.DeviceTaint
	// NoShares keeps share devices out: the API server would drop what lets several
	// claims hold them.
	NoShares bool
	// LegacyResource is the extended resource that devices of the GPU stand for,
	// beside their classes: "nvidia.com/gpu". Empty: none.
	LegacyResource string
	// Legacy tells which devices these are; nil: the whole GPU.
	Legacy func(gpu.Placement) bool
}

// Resources returns the node's pool, which has the devices of all its GPUs, and what
// was left out of it, as errors that name the GPU and the device. A node without GPUs
// has no pool.
//
// The slices are: one with the counter sets of the first eight GPUs, one with the
// devices of each of them, one with the counter sets of the next eight, and so on. So
// the slices of a GPU keep their place while the order of the GPUs stays and others are
// added at the end. The order of devices is that in which the scheduler tries them.
//
// One slice that the API server refuses, or one device that the scheduler's allocator
// finds invalid, would make the whole pool unusable. So what breaks a rule is left out:
// a device, or all devices of a GPU.
func Resources(node string, gpus []GPU) (resourceslice.DriverResources, []error) {
	if len(gpus) == 0 {
		return resourceslice.DriverResources{}, nil
	}
	const group = resourceapi.ResourceSliceMaxCounterSets
	var errs []error
	var all []resourceslice.Slice
	seen := map[string]bool{}
	for i := range gpus {
		if i%group == 0 {
			all = append(all, resourceslice.Slice{})
		}
		sets, devices, problems := contents(&gpus[i])
		if seen[gpus[i].Name()] {
			sets, devices, problems = nil, nil, []error{errors.New("another GPU has this name: none of its devices are published")}
		}
		seen[gpus[i].Name()] = true
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("GPU %s: %w", gpus[i].Name(), problem))
		}
		counters := &all[i/group*(group+1)]
		counters.SharedCounters = append(counters.SharedCounters, sets...)
		// The slice is there, empty or not: when the number of slices changes, all of
		// them are written again, and the pool is incomplete meanwhile.
		all = append(all, resourceslice.Slice{Devices: devices})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{gpu.PoolName(node): {Slices: all}}}, errs
}

// contents is what a GPU adds to the pool, as far as the API and the allocator accept
// it, and what they would not accept.
func contents(g *GPU) ([]resourceapi.CounterSet, []resourceapi.Device, []error) {
	devices := devicesOf(g)
	sets := []resourceapi.CounterSet{counterSet(g)}
	if g.WholeOnly {
		sets = nil
		devices = slices.DeleteFunc(devices, func(d resourceapi.Device) bool { return d.Name != g.Name() })
		for i := range devices {
			devices[i].ConsumesCounters = nil
		}
	} else if err := checkCounters(sets[0]); err != nil {
		return nil, nil, []error{fmt.Errorf("%w: none of its devices are published", err)}
	}
	var errs []error
	seen := map[string]bool{}
	devices = slices.DeleteFunc(devices, func(d resourceapi.Device) bool {
		err := checkDevice(sets, &d)
		if seen[d.Name] {
			err = errors.New("another device has this name")
		}
		seen[d.Name] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("device %s is not published: %w", d.Name, err))
		}
		return err != nil
	})
	if n, limit := len(devices), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures; n > limit {
		errs = append(errs, fmt.Errorf("%d devices, the API allows %d in a slice with counters: none of them are published", n, limit))
		devices = nil
	}
	return sets, devices, errs
}

func devicesOf(g *GPU) []resourceapi.Device {
	if g.Withheld {
		return nil
	}
	devices := make([]resourceapi.Device, 0, len(g.Placements))
	for _, p := range inOrder(g.Placements) {
		if p.Share != nil && g.NoShares {
			continue
		}
		devices = append(devices, resourceapi.Device{
			Name:                     p.Name(),
			Attributes:               deviceAttributes(g, p),
			Capacity:                 capacity(p),
			AllowMultipleAllocations: allowMultiple(p),
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
				CounterSet: g.Name(),
				Counters:   counters(p.Consumes),
			}},
			Taints: append(slices.Clone(g.Taints), g.DeviceTaints[p.Name()]...),
		})
	}
	return devices
}

// inOrder puts the whole GPU behind the first partition. The scheduler evaluates a
// request's selectors on one device after the other. At the end, a claim for a whole GPU
// would pay for all partitions before it; at the start, every claim for the smallest
// partition would pay for the whole GPU, on each node. Partitions keep their order, small
// before large.
func inOrder(placements []gpu.Placement) []gpu.Placement {
	all := slices.Clone(placements)
	whole := slices.IndexFunc(all, func(p gpu.Placement) bool { return p.Type == gpu.TypeGPU })
	if whole > 1 {
		p := all[whole]
		all = slices.Insert(slices.Delete(all, whole, whole+1), 1, p)
	}
	return all
}

func deviceAttributes(g *GPU, p gpu.Placement) attributeMap {
	m := attributeMap(Attributes(&g.GPU, p))
	legacy := p.Type == gpu.TypeGPU
	if g.Legacy != nil {
		legacy = g.Legacy(p)
	}
	if legacy {
		m.setString(AttributeLegacyResource, g.LegacyResource)
	}
	return m
}

func counterSet(g *GPU) resourceapi.CounterSet {
	return resourceapi.CounterSet{Name: g.Name(), Counters: counters(g.Counters)}
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
