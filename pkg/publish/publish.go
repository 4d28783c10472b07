package publish

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// GPU is a GPU and how to publish it.
type GPU struct {
	gpu.GPU
	// Withheld: the GPU's devices are not published. Its slice and counters stay, so that
	// nothing else changes. Only a GPU without allocated devices may be withheld: the
	// scheduler ignores what an allocated device consumes once it is not published. Taint
	// the devices of other GPUs instead.
	Withheld bool
	// WholeOnly: only the whole GPU is published, without partitions, shares and counters,
	// because the API server would drop the counters.
	WholeOnly bool
	// Taints are the taints of all devices of the GPU.
	Taints []resourceapi.DeviceTaint
	// DeviceTaints are additional taints of single devices, by name.
	DeviceTaints map[string][]resourceapi.DeviceTaint
	// NoShares: shares are not published, because the API server would drop the fields that
	// let several claims hold one.
	NoShares bool
	// NoMonitor: the device for monitors is not published.
	NoMonitor bool
	// ExtendedResource is the extended resource that devices of the GPU stand for, beside
	// their device classes: "nvidia.com/gpu". Empty: none.
	ExtendedResource string
	// Means returns whether a device stands for it; nil: the whole GPU does.
	Means func(gpu.Placement) bool
	// MIGResource returns the extended resource that another device stands for
	// ("nvidia.com/mig-1g.10gb"), empty if none; nil: none.
	MIGResource func(gpu.Placement) string
}

// Slice is what one ResourceSlice of a node's pool has.
type Slice struct {
	Devices        []resourceapi.Device
	SharedCounters []resourceapi.CounterSet
}

// Slices returns the slices of a node's pool, with the devices of all its GPUs. The errors name the
// GPUs and devices that were left out. A node without GPUs has no slices.
//
// The slices are: one with the counter sets of the first eight GPUs, one with the devices of each
// of them, one with the counter sets of the next eight, and so on. So the slices of a GPU keep
// their place if GPUs are added at the end. The scheduler tries devices in their order. The devices for
// monitors are those of the first GPU's slice, behind its own.
//
// One slice that the API server refuses, or one device that is invalid for the scheduler's
// allocator, would make the whole pool unusable. So an invalid device is left out, or all devices
// of the GPU.
func Slices(gpus []GPU) (all []Slice, errs []error) {
	const group = resourceapi.ResourceSliceMaxCounterSets
	seen := map[string]bool{}
	for i := range gpus {
		if i%group == 0 {
			all = append(all, Slice{})
		}
		sets, devices, problems := contents(&gpus[i])
		if seen[gpus[i].Name()] {
			sets, devices, problems = nil, nil, []error{errors.New("another GPU has the same name: none of its devices are published")}
		}
		seen[gpus[i].Name()] = true
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("GPU %s: %w", gpus[i].Name(), problem))
		}
		counters := &all[i/group*(group+1)]
		counters.SharedCounters = append(counters.SharedCounters, sets...)
		// A GPU without devices has an empty slice. If the number of slices changed, all
		// slices would be written again, and the pool would be incomplete meanwhile.
		all = append(all, Slice{Devices: devices})
	}
	if len(all) > 0 {
		first := &all[1].Devices
		*first = append(*first, monitors(gpus)...)
		if n, limit := len(*first), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures; n > limit {
			*first = slices.DeleteFunc(*first, func(d resourceapi.Device) bool { return gpu.IsMonitor(d.Name) })
			errs = append(errs, fmt.Errorf("%d devices with those for monitors, the API allows %d in a slice with counters: no devices for monitors are published", n, limit))
		}
	}
	return all, errs
}

// contents returns the counter sets and devices of a GPU that the API and the allocator accept,
// and errors for the others.
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
			err = errors.New("another device has the same name")
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
			Capacity:                 Capacity(p),
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

// monitors are the devices for monitors, of all GPUs of a node. They are in one slice, because slices are
// written one by one: otherwise a claim for all of them could get those that are there already.
func monitors(gpus []GPU) (all []resourceapi.Device) {
	for i := range gpus {
		if !gpus[i].NoMonitor && !gpus[i].Withheld {
			all = append(all, monitor(&gpus[i].GPU))
		}
	}
	return lists.UnionFunc(nil, func(a, b resourceapi.Device) bool { return a.Name == b.Name }, all...)
}

// monitor is the device for monitors of a GPU. The scheduler counts counters for admin access, too, so it
// consumes none. It has what all devices have, because selectors that miss something fail. Only its own
// taint is published: monitors also look at GPUs that are out of service.
func monitor(g *gpu.GPU) resourceapi.Device {
	p := gpu.Monitor(g.PCIAddress)
	p.Isolation = gpu.IsolationNone
	for _, q := range g.Placements {
		p.Memory = max(p.Memory, q.Memory)
	}
	return resourceapi.Device{
		Name:       p.Name(),
		Attributes: Attributes(g, p),
		Capacity:   Capacity(p),
		Taints:     []resourceapi.DeviceTaint{{Key: names.TaintMonitor, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}
}

// inOrder moves the whole GPU behind the first partition. The scheduler evaluates the selectors
// of a request for one device after the other. If the whole GPU were last, they would be
// evaluated for all partitions for a claim for a whole GPU. If it were first, they would be
// evaluated for one more device on each node for a claim for the smallest partition.
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
	means := p.Type == gpu.TypeGPU
	if g.Means != nil {
		means = g.Means(p)
	}
	switch {
	case means && g.ExtendedResource != "":
		m.setString(names.AttributeExtendedResourceName, g.ExtendedResource)
	case g.MIGResource != nil:
		m.setString(names.AttributeExtendedResourceName, g.MIGResource(p))
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
		if name == names.CounterMemory {
			format = resource.BinarySI
		}
		out[name] = resourceapi.Counter{Value: *resource.NewQuantity(n, format)}
	}
	return out
}
