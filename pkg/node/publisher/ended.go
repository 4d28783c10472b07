package publisher

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// reportEnded reports what taints of an earlier run show and is over: no check sees what ends while no
// plugin runs. Other systems count as reported, so the first publication reports that they have left. The
// caller holds the lock.
func (p *Publisher) reportEnded(ctx context.Context, known []inventory.GPU, published []resourceapi.ResourceSlice) {
	p.reportedOwners = map[gpu.Vendor]string{}
	usable := map[gpu.Vendor]bool{}
	pool := publish.Newest(published)[publish.PoolID{Driver: names.DriverName, Name: names.PoolName(p.Node)}]
	for i := range known {
		g := &known[i]
		shown, whole := shownOn(g, pool)
		if shown[names.TaintOtherSystem] {
			p.reportedOwners[g.Vendor] = "an earlier run"
		}
		if g.Unhealthy() || p.Drivers.IsUpgrading(g.Vendor) {
			continue // what else the GPU has is not known
		}
		now := map[string]bool{}
		for _, o := range slices.Concat(p.obstacles[g.PCIAddress], p.failures[g.PCIAddress]) {
			key, _ := taintOf(o)
			now[key] = true
		}
		if shown[names.TaintDriverUpgrade] && !usable[g.Vendor] {
			usable[g.Vendor] = true
			p.Events.DriverFound(ctx, g.Vendor)
		}
		if shown[names.TaintBusy] && !now[names.TaintBusy] {
			p.Events.Note(ctx, names.EventGPUNoLongerBusy, fmt.Sprintf("GPU %s: since the plugin's start, no process prevents a change of its mode", g.Name()))
		}
		switch {
		case !shown[names.TaintUnhealthy] || now[names.TaintUnhealthy]:
		case whole:
			p.Events.GPUHealthy(ctx, g.Name())
		default:
			p.Events.Note(ctx, names.EventDevicesWork, fmt.Sprintf("GPU %s: since the plugin's start, devices can be allocated that could not be prepared before", g.Name()))
		}
	}
}

// shownOn returns the keys of the taints of a GPU's devices, and whether all of these are unhealthy.
func shownOn(g *inventory.GPU, pool []*resourceapi.ResourceSlice) (shown map[string]bool, unhealthy bool) {
	shown, unhealthy = map[string]bool{}, true
	for _, slice := range pool {
		for _, d := range slice.Spec.Devices {
			if gpu.OfDevice(d.Name) != g.Name() || gpu.IsMonitor(d.Name) {
				continue
			}
			keys := map[string]bool{}
			for _, t := range d.Taints {
				keys[t.Key], shown[t.Key] = true, true
			}
			unhealthy = unhealthy && keys[names.TaintUnhealthy]
		}
	}
	return shown, unhealthy
}
