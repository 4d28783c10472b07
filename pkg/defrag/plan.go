package defrag

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Plan is how a waiting pod gets devices of a node.
type Plan struct {
	Pod     types.NamespacedName
	Node    string
	Devices []Device
	// Moves are the pods to evict, the largest first. The scheduler may place a replacement elsewhere
	// than planned, so Check must prove the remaining moves again before each eviction.
	Moves []Move
}

// Move is a pod to evict. Node and To are where its replacement fits; the scheduler may choose
// another place.
type Move struct {
	Pod  types.NamespacedName
	UID  types.UID
	From []Device
	Node string
	To   []Device
}

// Device is a device of Tranche.
type Device struct {
	Pool, Device string
}

// Names returns the names of devices, which are unique on a node.
func Names(devices []Device) []string {
	return lists.Map(devices, func(d Device) string { return d.Device })
}

// devicesOf returns the devices of Tranche in the results of claims.
func devicesOf(all results) (out []Device) {
	for _, r := range all {
		if r.Driver == names.DriverName {
			out = append(out, Device{r.Pool, r.Device})
		}
	}
	return out
}

// Overlapping lists the devices that share a counter with the devices of a plan, without these. They
// must be tainted so that no other pod takes the devices of the plan.
func (p *Planner) Overlapping(plan *Plan) []Device {
	n := p.nodes[plan.Node]
	if n == nil {
		return nil
	}
	return n.overlapping(plan.Devices)
}

func (n *nodeInfo) overlapping(planned []Device) (out []Device) {
	for _, pool := range n.pools {
		isPlanned := func(d *cluster.Device) bool { return slices.Contains(planned, Device{pool.Name, d.Name}) }
		used := gpu.Counters{}
		for _, d := range pool.Devices {
			if isPlanned(d) {
				used.Add(d.Consumes)
			}
		}
		for _, d := range pool.Devices {
			shares := slices.ContainsFunc(d.Consumes.Names(), func(name string) bool { return d.Consumes[name] > 0 && used[name] > 0 })
			if shares && !isPlanned(d) {
				out = append(out, Device{pool.Name, d.Name})
			}
		}
	}
	return out
}
