package defrag

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Plan is how a waiting pod gets devices of a node.
type Plan struct {
	Pod     types.NamespacedName
	Node    string
	Devices []Device
	// Moves are the pods to evict, the largest first. One after another, each is certain to have a
	// place: what the scheduler decided for the ones before can be considered in a new plan.
	Moves []Move
}

// Move is a pod to evict. To is where it fits; the scheduler may choose another place.
type Move struct {
	Pod  types.NamespacedName
	UID  types.UID
	From []Device
	Node string
	To   []Device
}

// Device is a device of Tranche.
type Device struct {
	Pool   string `json:"pool"`
	Device string `json:"device"`
}

// Names are the names of devices, which are unique on a node.
func Names(devices []Device) []string {
	names := make([]string, 0, len(devices))
	for _, d := range devices {
		names = append(names, d.Device)
	}
	return names
}

// devicesOf are the devices of Tranche in the results of claims.
func devicesOf(results []resourceapi.DeviceRequestAllocationResult) (out []Device) {
	for _, r := range results {
		if r.Driver == gpu.DriverName {
			out = append(out, Device{r.Pool, r.Device})
		}
	}
	return out
}

// Overlapping lists the devices that share a counter with those of a plan, without these. They
// must be tainted so that no other pod takes the room.
func (p *Planner) Overlapping(plan *Plan) []Device {
	s := p.sites[plan.Node]
	if s == nil {
		return nil
	}
	return s.overlapping(plan.Devices)
}

func (s *site) overlapping(wanted []Device) (out []Device) {
	for _, pool := range s.pools {
		is := func(d *cluster.Device) bool { return slices.Contains(wanted, Device{pool.Name, d.Name}) }
		used := gpu.Counters{}
		for _, d := range pool.Devices {
			if is(d) {
				used.Add(d.Consumes)
			}
		}
		for _, d := range pool.Devices {
			shares := slices.ContainsFunc(d.Consumes.Names(), func(name string) bool { return d.Consumes[name] > 0 && used[name] > 0 })
			if shares && !is(d) {
				out = append(out, Device{pool.Name, d.Name})
			}
		}
	}
	return out
}
