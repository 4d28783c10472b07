package defrag

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

type (
	allocatedState = structured.AllocatedState
	results        = []resourceapi.DeviceRequestAllocationResult
)

// allocateTimeout limits one call of the allocator, which tries every combination of many devices.
const allocateTimeout = 500 * time.Millisecond

// allocate asks the scheduler's allocator what claims get on a node. It returns nil if they do not
// fit.
func (p *Planner) allocate(ctx context.Context, n *nodeInfo, allocated allocatedState, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) (results, error) {
	return p.allocateFrom(ctx, n, allocated, p.relevantSlices(ctx, allocated, published, claims), claims)
}

// relevantSlices are slices without the devices that the claims cannot get, each of which costs the
// allocator time. It needs the allocated ones, because they use counters.
func (p *Planner) relevantSlices(ctx context.Context, allocated allocatedState, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) []*resourceapi.ResourceSlice {
	known, all := p.matchesOf(claims), choices(claims)
	return mapDevices(published, func(id Device, device resourceapi.Device) (resourceapi.Device, bool) {
		d := p.devices[id]
		if d == nil || d.Shared() || allocated.AllocatedDevices.Has(structured.MakeDeviceID(names.DriverName, id.Pool, id.Device)) {
			return device, true
		}
		return device, p.matches(ctx, d, all, known)
	})
}

// matchesOf returns the cached answers of matches for the choices of claims.
func (p *Planner) matchesOf(claims []*resourceapi.ResourceClaim) map[*cluster.Device]bool {
	var key strings.Builder
	for _, c := range choices(claims) {
		fmt.Fprintf(&key, "%s\n", c.Class)
		for _, s := range c.Selectors {
			fmt.Fprintf(&key, "%s\n", s.String())
		}
	}
	if p.matching[key.String()] == nil {
		p.matching[key.String()] = map[*cluster.Device]bool{}
	}
	return p.matching[key.String()]
}

// matches reports whether a device satisfies one of the choices. It may, if a selector fails or ctx has
// ended: the allocator then returns an error of its own. known caches the answers.
func (p *Planner) matches(ctx context.Context, d *cluster.Device, choices []demand.Choice, known map[*cluster.Device]bool) bool {
	if ok, found := known[d]; found {
		return ok
	}
	for _, c := range choices {
		class := p.cluster.DeviceClasses[c.Class]
		if class == nil {
			return true
		}
		ok, err := allocation.Matches(ctx, p.cluster.Selectors, d.CEL(), slices.Concat(class.Spec.Selectors, c.Selectors)...)
		if err != nil {
			return true
		}
		if ok {
			known[d] = true
			return true
		}
	}
	known[d] = false
	return false
}

// allocateFrom is allocate with exactly these slices.
func (p *Planner) allocateFrom(ctx context.Context, n *nodeInfo, allocated allocatedState, published []*resourceapi.ResourceSlice,
	claims []*resourceapi.ResourceClaim) (results, error) {
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, allocation.Features, allocated, p.cluster.DeviceClasses, published, p.cluster.Selectors)
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator: %w", err)
	}
	found, err := allocator.Allocate(ctx, n.node, claims)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the scheduler's allocator: %w", err)
	}
	var all results
	for _, r := range found {
		all = append(all, r.Devices.Results...)
	}
	return all, nil
}

// reservedSlices returns the slices of the node with the taint of a reservation on some devices.
func (n *nodeInfo) reservedSlices(devices []Device) []*resourceapi.ResourceSlice {
	taint := resourceapi.DeviceTaint{Key: names.TaintReserved, Effect: resourceapi.DeviceTaintEffectNoSchedule}
	return mapDevices(n.slices, func(d Device, device resourceapi.Device) (resourceapi.Device, bool) {
		if slices.Contains(devices, d) {
			device.Taints = append(slices.Clone(device.Taints), taint)
		}
		return device, true
	})
}

// mapDevices copies slices, with devices of Tranche as f returns them and without those for which f
// returns false.
func mapDevices(of []*resourceapi.ResourceSlice, f func(Device, resourceapi.Device) (resourceapi.Device, bool)) []*resourceapi.ResourceSlice {
	var out []*resourceapi.ResourceSlice
	for _, slice := range of {
		if slice.Spec.Driver == names.DriverName {
			copied := *slice
			copied.Spec.Devices = nil
			for _, device := range slice.Spec.Devices {
				if device, keep := f(Device{slice.Spec.Pool.Name, device.Name}, device); keep {
					copied.Spec.Devices = append(copied.Spec.Devices, device)
				}
			}
			slice = &copied
		}
		out = append(out, slice)
	}
	return out
}
