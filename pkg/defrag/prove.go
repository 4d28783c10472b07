package defrag

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// prove makes a plan of a candidate, nil if it does not hold.
func (s *search) prove(ctx context.Context, c candidate) (*Plan, error) {
	moved, got, err := s.fewest(ctx, c)
	switch {
	case got == nil:
		return nil, err
	case len(moved) > s.o.MaxPods:
		s.tooMany(len(moved))
		return nil, nil
	case slices.ContainsFunc(got, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.ShareID != nil }):
		s.note(NotKept, "%s asks for a share of a GPU, for which no room can be kept.", s.waiting)
		return nil, nil
	}
	if b := exceeded(moved); b != nil {
		s.note(Disruptions, "The PodDisruptionBudget %s does not allow to move pods for %s now.", nameOf(b), s.waiting)
		return nil, nil
	}
	plan := &Plan{Pod: nameOf(s.waiting.pod), Node: c.site.node.Name, Devices: devicesOf(got)}
	overlapping := c.site.overlapping(plan.Devices)
	reserved := c.site.reserved(overlapping)
	if kept, err := s.kept(ctx, c.site, moved, reserved, append(overlapping, plan.Devices...)); !kept {
		return nil, err
	}
	placed, err := s.place(ctx, plan, c.site, reserved, moved)
	if placed == nil {
		return nil, err
	}
	// Nothing that was placed elsewhere may change what the waiting pod gets.
	again, err := s.allocateOf(ctx, c.site, c.site.held(released(moved), placed), reserved, s.waiting.claims)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(devicesOf(again), plan.Devices) {
		s.note(NotKept, "The room on %s could not be kept for %s.", c.site.node.Name, s.waiting)
		return nil, nil
	}
	return plan, nil
}

// fewest leaves out pods that need not move. It returns no results if the waiting pod does not fit.
func (s *search) fewest(ctx context.Context, c candidate) ([]*guest, results, error) {
	got, err := s.without(ctx, c.site, c.pods)
	if got == nil {
		return nil, nil, err
	}
	moved := slices.Clone(c.pods)
	for i := len(moved) - 1; i >= 0 && len(moved) > 1; i-- {
		fewer := slices.Delete(slices.Clone(moved), i, i+1)
		less, err := s.without(ctx, c.site, fewer)
		if err != nil {
			return nil, nil, err
		}
		if less != nil {
			moved, got = fewer, less
		}
	}
	return moved, got, nil
}

// kept tells whether no moved pod can take the room when it is created again, before the waiting pod is
// scheduled: none fits there if only that room is offered.
func (s *search) kept(ctx context.Context, on *site, moved []*guest, reserved []*resourceapi.ResourceSlice, room []Device) (bool, error) {
	stays := map[Device]bool{}
	gone := released(moved)
	for _, c := range on.claims {
		if !gone[c] {
			for _, d := range devicesOf(c.Status.Allocation.Devices.Results) {
				stays[d] = true
			}
		}
	}
	// What others hold must stay in the slices, because it uses counters.
	only := changed(reserved, func(d Device, device resourceapi.Device) (resourceapi.Device, bool) {
		return device, slices.Contains(room, d) || stays[d]
	})
	for _, g := range moved {
		if !on.open(g) {
			continue
		}
		for _, claim := range g.claims {
			took, err := s.allocate(ctx, on, on.held(gone, nil), only, []*resourceapi.ResourceClaim{claim})
			if err != nil {
				return false, err
			}
			if len(devicesOf(took)) > 0 {
				s.note(NotKept, "When it is created again, %s could take the room on %s before %s does.", g, on.node.Name, s.waiting)
				return false, nil
			}
		}
	}
	return true, nil
}

// place finds a place for each moved pod, one after another, while nothing is released yet, and returns
// what their claims get, nil if one fits nowhere.
func (s *search) place(ctx context.Context, plan *Plan, home *site, reserved []*resourceapi.ResourceSlice, moved []*guest) (results, error) {
	// The wanted devices are not held for the waiting pod here: together with what has not been released, they
	// would use more than there is, and then the allocator gives nothing of the node.
	held := devicesHeld(moved)
	beside := changed(reserved, func(id Device, device resourceapi.Device) (resourceapi.Device, bool) {
		return device, slices.Contains(held, id) || !slices.Contains(plan.Devices, id)
	})
	moved = slices.Clone(moved)
	slices.SortStableFunc(moved, func(a, b *guest) int {
		return cmp.Or(cmp.Compare(s.size(b), s.size(a)), cmp.Compare(a.String(), b.String()))
	})
	free := map[*site]corev1.ResourceList{}
	var placed results
	for _, g := range moved {
		to, its, err := s.placeOne(ctx, g, home, beside, free, placed)
		if err != nil {
			return nil, err
		}
		if to == nil {
			s.note(NoPlace, "%s would have to move for %s, and fits nowhere else.", g, s.waiting)
			return nil, nil
		}
		subtract(free[to], g.requests)
		placed = append(placed, its...)
		plan.Moves = append(plan.Moves, Move{
			Pod: nameOf(g.pod), UID: g.pod.UID, From: devicesHeld([]*guest{g}), Node: to.node.Name, To: devicesOf(its),
		})
	}
	return placed, nil
}

// placeOne finds a place for a pod: on the fullest node where it fits, so that others stay empty.
func (s *search) placeOne(ctx context.Context, g *guest, home *site, beside []*resourceapi.ResourceSlice,
	free map[*site]corev1.ResourceList, taken results) (*site, results, error) {
	for _, name := range s.fullest {
		to := s.sites[name]
		if free[to] == nil {
			free[to] = maps.Clone(to.free)
		}
		if !to.open(g) || !enough(free[to], g.requests, g.extended) {
			continue
		}
		published := to.slices
		if to == home {
			published = beside
		}
		its, err := s.allocate(ctx, to, to.held(nil, taken), published, g.claims)
		if err != nil || its != nil {
			return to, its, err
		}
	}
	return nil, nil, nil
}

func devicesHeld(pods []*guest) (out []Device) {
	for _, g := range pods {
		for _, c := range g.held {
			out = append(out, devicesOf(c.Status.Allocation.Devices.Results)...)
		}
	}
	return out
}

// size is the memory of the devices that a pod holds.
func (s *search) size(g *guest) (n int64) {
	for _, d := range devicesHeld([]*guest{g}) {
		if known := s.devices[d]; known != nil {
			n += known.Consumes[gpu.CounterMemory]
		}
	}
	return n
}
