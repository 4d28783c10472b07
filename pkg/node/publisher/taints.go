package publisher

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// gpuTaints returns the taints of all devices of a GPU. The caller holds the lock.
func (p *Publisher) gpuTaints(g *inventory.GPU, others inventory.Owners) []resourceapi.DeviceTaint {
	taints := taintsOf(g, others, p.Drivers.IsUpgrading(g.Vendor))
	if p.switchTaints.all(g.Name()) {
		taints = append(taints, p.switchTaints.taint())
	}
	return taints
}

// taintsOf returns the taints of a GPU that do not depend on a switch.
func taintsOf(g *inventory.GPU, others inventory.Owners, isUpgrading bool) []resourceapi.DeviceTaint {
	var taints []resourceapi.DeviceTaint
	if len(others) > 0 {
		taints = append(taints, noSchedule(names.TaintOtherSystem, others.Names()))
	}
	switch {
	case isUpgrading:
		taints = append(taints, noSchedule(names.TaintDriverUpgrade, ""))
	case g.Unhealthy():
		taints = append(taints, noSchedule(names.TaintUnhealthy, string(g.Cause())))
	}
	return taints
}

// deviceTaints returns the taints of single devices: ownTaints, and those of devices that cannot
// be allocated now. The caller holds the lock.
func (p *Publisher) deviceTaints(g *inventory.GPU) map[string][]resourceapi.DeviceTaint {
	taints := p.ownTaints(g)
	for _, o := range slices.Concat(p.obstacles[g.PCIAddress], p.failures[g.PCIAddress]) {
		key, value := taintOf(o)
		if key == names.TaintUnhealthy && g.Unhealthy() {
			continue // the whole GPU has this taint
		}
		devices := []string{o.Placement}
		if !o.Alone {
			devices = withShares(g, o.Placement)
		}
		for _, device := range devices {
			if !slices.ContainsFunc(taints[device], func(t resourceapi.DeviceTaint) bool { return t.Key == key }) {
				taints[device] = append(taints[device], noSchedule(key, value))
			}
		}
	}
	return taints
}

// taintOf returns key and value of the taint that shows an obstacle.
func taintOf(o gpu.Obstacle) (key, value string) {
	switch o.Kind {
	case gpu.ObstacleBusy:
		return names.TaintBusy, ""
	case gpu.ObstacleMissing:
		return names.TaintUnhealthy, string(gpu.CauseMissing)
	}
	return names.TaintUnhealthy, string(gpu.CauseNotPrepared)
}

func noSchedule(key, value string) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}

// ownTaints returns the taints of single devices that do not depend on the hardware: of those
// that overlap foreign partitions, that the profile does not offer, and that a switch changes or
// a defragmentation reserves. The caller holds the lock.
func (p *Publisher) ownTaints(g *inventory.GPU) map[string][]resourceapi.DeviceTaint {
	taints := map[string][]resourceapi.DeviceTaint{}
	taint := func(device, key, value string) { taints[device] = append(taints[device], noSchedule(key, value)) }
	for _, placement := range g.Placements {
		for _, f := range p.foreign[g.PCIAddress] {
			if f.Overlaps(placement) {
				taint(placement.Name(), names.TaintForeignPartition, f.Label())
				break
			}
		}
	}
	layout := p.Applied.Layout(g.PCIAddress)
	for _, placement := range g.Placements {
		if !layout.Offers(placement) {
			taint(placement.Name(), names.TaintNotOffered, "")
		}
		if p.switchTaints.single(g.Name(), placement) {
			taints[placement.Name()] = append(taints[placement.Name()], p.switchTaints.taint())
		}
		if slices.Contains(p.reservation.Devices, placement.Name()) {
			taint(placement.Name(), names.TaintReserved, p.reservation.ID)
		}
	}
	return taints
}

// withShares lists a device and its shares, which have the same obstacles.
func withShares(g *inventory.GPU, device string) []string {
	all := []string{device}
	for _, p := range g.Placements {
		if p.Share != nil && p.Base().Name() == device {
			all = append(all, p.Name())
		}
	}
	return all
}

// withholdFree leaves out the devices that no claim holds. The scheduler then ignores what a
// device consumes that is allocated and not prepared yet. That does no harm, because all
// devices of the GPU are tainted. The caller holds the lock.
func (p *Publisher) withholdFree(g *publish.GPU) {
	held := p.heldOn(g.PCIAddress)
	g.Placements = slices.DeleteFunc(g.Placements, func(q gpu.Placement) bool { return !slices.Contains(held, q.Name()) })
}

// withholdTainted leaves out the devices that would be tainted, except those that claims
// hold: the scheduler ignores what an allocated device consumes once it is not published any
// more. The caller holds the lock.
func (p *Publisher) withholdTainted(g *publish.GPU) {
	held := p.heldOn(g.PCIAddress)
	g.Placements = slices.DeleteFunc(g.Placements, func(q gpu.Placement) bool {
		return len(g.Taints)+len(g.DeviceTaints[q.Name()]) > 0 && !slices.Contains(held, q.Name())
	})
	g.Taints, g.DeviceTaints = nil, nil
}

// PublishedFor returns which switch requests taints now, and whether the last publication has them.
func (p *Publisher) PublishedFor() (by v1beta1.PublishedTaints, sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by = p.switchTaints.By
	sent = p.sent != nil && *p.sent == by
	by.Withheld = p.noTaints && by.SwitchID != ""
	return by, sent
}
