package cluster

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// Pool is the newest generation of a resource pool. The pool that Tranche publishes for a node is
// divided into one Pool for each GPU.
type Pool struct {
	Driver, Name string
	// GPU is the name of the GPU, empty for other drivers.
	GPU string
	// Node is the node of the pool, empty if it belongs to several.
	Node  string
	Parts []*resourceapi.ResourceSlice
	// Total has the counters, Taken what the held devices consume of them.
	Total, Taken gpu.Counters
	Devices      []*Device

	positions int
	gone      []*held // held, and not published
}

// Incomplete reports whether slices are missing. The scheduler does not use such a pool.
func (p *Pool) Incomplete() bool { return p.missing() > 0 }

func (p *Pool) missing() int64 {
	return max(0, p.Parts[0].Spec.Pool.ResourceSliceCount-int64(len(p.Parts)))
}

func (p *Pool) onNode() bool {
	return slices.ContainsFunc(p.Parts, func(s *resourceapi.ResourceSlice) bool { return s.Spec.NodeName != nil })
}

// GPUOf returns the name of the GPU that a device belongs to, by the device's name. Other names are
// returned unchanged.
func GPUOf(device string) string { return cmp.Or(gpu.OfDevice(device), device) }

func newPools(id publish.PoolID, parts []*resourceapi.ResourceSlice) []*Pool {
	ours, node := id.Driver == names.DriverName, ""
	if ours {
		node = id.Name
	}
	for _, s := range parts {
		if s.Spec.NodeName != nil {
			node = *s.Spec.NodeName
		}
	}
	pools := map[string]*Pool{}
	of := func(name string) *Pool {
		if !ours {
			name = ""
		}
		if pools[name] == nil {
			pools[name] = &Pool{Driver: id.Driver, Name: id.Name, GPU: name, Node: node, Parts: parts, Total: gpu.Counters{}, Taken: gpu.Counters{}}
		}
		return pools[name]
	}
	for _, s := range parts {
		for _, set := range s.Spec.SharedCounters {
			for name, c := range set.Counters {
				p := of(set.Name)
				p.Total[p.counter(set.Name, name)] += c.Value.Value()
			}
		}
		for i := range s.Spec.Devices {
			p := of(GPUOf(s.Spec.Devices[i].Name))
			p.Devices = append(p.Devices, newDevice(p, s, &s.Spec.Devices[i]))
		}
	}
	for _, p := range pools {
		p.positions = place(p.Total, p.Devices)
	}
	return slices.Collect(maps.Values(pools))
}

// counter names a counter of a set. A GPU has one set, other pools have several.
func (p *Pool) counter(set, name string) string {
	if p.GPU == "" {
		return set + "/" + name
	}
	return name
}

// Short names the counters of which a device needs more than taken leaves.
func (p *Pool) Short(d *Device, taken gpu.Counters) []string {
	return slices.DeleteFunc(d.Consumes.Names(), func(name string) bool {
		return d.Consumes[name] <= 0 || taken[name]+d.Consumes[name] <= p.Total[name]
	})
}

// Fits reports whether the scheduler could allocate a device now, regardless of taints. Further
// shares of a held device consume no counters.
func (p *Pool) Fits(d *Device) bool {
	if d.Held() {
		return d.Shared()
	}
	return len(p.Short(d, p.Taken)) == 0
}

// InTheWay lists the holders that keep a device from being allocated.
func (p *Pool) InTheWay(d *Device) []Holder {
	all := d.holding()
	lacking := p.Short(d, p.Taken)
	for _, other := range p.Devices {
		if other != d && slices.ContainsFunc(lacking, func(name string) bool { return other.Consumes[name] > 0 }) {
			all = append(all, other.holding()...)
		}
	}
	return all
}
