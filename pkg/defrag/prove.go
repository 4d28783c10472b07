package defrag

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// prove makes a plan of a candidate, nil if it does not hold.
func (s *search) prove(ctx context.Context, c candidate) (*Plan, error) {
	moved, got, err := s.fewestPods(ctx, c)
	if got == nil || !s.mayEvict(moved) {
		return nil, err
	}
	if slices.ContainsFunc(got, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.ShareID != nil }) {
		s.refuseShare()
		return nil, nil
	}
	plan := &Plan{Pod: nameOf(s.waiting), Node: c.node.node.Name, Devices: devicesOf(got)}
	overlapping := c.node.overlapping(plan.Devices)
	reserved := c.node.reservedSlices(overlapping)
	if kept, err := s.isKept(ctx, c.node, moved, reserved, append(overlapping, plan.Devices...)); !kept {
		return nil, err
	}
	placed, err := s.place(ctx, plan, c.node, reserved, moved)
	if placed == nil {
		return nil, err
	}
	// What the moved pods get must not change what the waiting pod gets.
	again, err := s.allocateFrom(ctx, c.node, c.node.allocated(releasedBy(moved), placed), reserved, s.waiting.claims)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(devicesOf(again), plan.Devices) {
		s.refuse(NotKept, "The devices on node %s could not be kept free for pod %s.", plan.Node, s.waiting)
		return nil, nil
	}
	return plan, nil
}

// fewestPods leaves out pods that need not move. It returns no results if the waiting pod does not fit.
func (s *search) fewestPods(ctx context.Context, c candidate) ([]*podInfo, results, error) {
	got, err := s.allocateWithout(ctx, c.node, c.pods)
	if got == nil {
		return nil, nil, err
	}
	moved := slices.Clone(c.pods)
	for i := len(moved) - 1; i >= 0 && len(moved) > 1; i-- {
		fewer := slices.Delete(slices.Clone(moved), i, i+1)
		without, err := s.allocateWithout(ctx, c.node, fewer)
		if err != nil {
			return nil, nil, err
		}
		if without != nil {
			moved, got = fewer, without
		}
	}
	return moved, got, nil
}

// mayEvict reports whether pods may be evicted together. Each alone may.
func (s *search) mayEvict(pods []*podInfo) bool {
	if len(pods) > s.o.MaxPods {
		s.refuseTooMany(len(pods))
		return false
	}
	if b := exceededBudget(pods); b != nil {
		s.refuse(Disruptions, "PodDisruptionBudget %s does not allow the evictions for pod %s now.", nameOf(b), s.waiting)
		return false
	}
	if j := failingJob(pods); j != nil {
		s.refuse(NotMovable, "Job %s would fail if all pods were evicted that would have to move for pod %s.", nameOf(j), s.waiting)
		return false
	}
	return true
}

// isKept reports whether no replacement of a moved pod can take the devices before the waiting pod is
// scheduled: none fits if the node offers only these devices.
func (s *search) isKept(ctx context.Context, n *nodeInfo, moved []*podInfo, reserved []*resourceapi.ResourceSlice, devices []Device) (bool, error) {
	released := releasedBy(moved)
	held := map[Device]bool{}
	for _, c := range n.claims {
		if !released[c] {
			for _, d := range devicesOf(c.Status.Allocation.Devices.Results) {
				held[d] = true
			}
		}
	}
	// What other pods hold must stay in the slices, because it uses counters.
	offered := mapDevices(reserved, func(d Device, device resourceapi.Device) (resourceapi.Device, bool) {
		return device, slices.Contains(devices, d) || held[d]
	})
	for _, pod := range moved {
		if !n.admits(pod) {
			continue
		}
		for _, claim := range pod.claims {
			got, err := s.allocate(ctx, n, n.allocated(released, nil), offered, []*resourceapi.ResourceClaim{claim})
			if err != nil {
				return false, err
			}
			if len(devicesOf(got)) > 0 {
				s.refuse(NotKept, "The replacement of pod %s could take the devices on node %s before pod %s gets them.", pod, n.node.Name, s.waiting)
				return false, nil
			}
		}
	}
	return true, nil
}

// placement is the search for places of the moved pods, one after another, while nothing is released.
type placement struct {
	*search
	// source is the node that the pods leave. offered are its slices without the planned devices.
	source  *nodeInfo
	offered []*resourceapi.ResourceSlice
	moved   []*podInfo
	// free is what is left of nodes, and placed what claims got so far.
	free   map[*nodeInfo]corev1.ResourceList
	placed results
}

// place adds the moves to a plan and returns what the claims of the moved pods get, nil if one of the pods
// fits nowhere.
func (s *search) place(ctx context.Context, plan *Plan, source *nodeInfo, reserved []*resourceapi.ResourceSlice, moved []*podInfo) (results, error) {
	// The planned devices are not allocated to the waiting pod here: together with what is not released yet,
	// they would use more than there is, and then the allocator gives nothing of the node.
	held := devicesHeld(moved...)
	p := &placement{search: s, source: source, moved: moved, free: map[*nodeInfo]corev1.ResourceList{}}
	p.offered = mapDevices(reserved, func(id Device, device resourceapi.Device) (resourceapi.Device, bool) {
		return device, slices.Contains(held, id) || !slices.Contains(plan.Devices, id)
	})
	largestFirst := slices.SortedStableFunc(slices.Values(moved), func(a, b *podInfo) int {
		return cmp.Or(cmp.Compare(s.memoryOf(b), s.memoryOf(a)), cmp.Compare(a.String(), b.String()))
	})
	for _, pod := range largestFirst {
		to, got, err := p.placeOne(ctx, pod)
		if err != nil {
			return nil, err
		}
		if to == nil {
			s.refuse(NoPlace, "Pod %s would have to move for pod %s, and fits nowhere else.", pod, s.waiting)
			return nil, nil
		}
		subtract(p.free[to], pod.requests)
		p.placed = append(p.placed, got...)
		plan.Moves = append(plan.Moves, Move{
			Pod: nameOf(pod), UID: pod.UID, From: devicesHeld(pod), Node: to.node.Name, To: devicesOf(got),
		})
	}
	return p.placed, nil
}

// placeOne finds a place for a pod: on the node with the most allocated memory where it fits, so that other
// nodes stay empty.
func (p *placement) placeOne(ctx context.Context, pod *podInfo) (*nodeInfo, results, error) {
	for _, name := range p.mostAllocated {
		to := p.nodes[name]
		if p.free[to] == nil {
			p.free[to] = maps.Clone(to.free)
		}
		if !to.admits(pod) || !enough(p.free[to], pod) || to == p.source && !p.leavesEnough(pod) {
			continue
		}
		published := to.slices
		if to == p.source {
			published = p.offered
		}
		got, err := p.allocate(ctx, to, to.allocated(nil, p.placed), published, pod.claims)
		if err != nil || got != nil {
			return to, got, err
		}
	}
	return nil, nil, nil
}

// leavesEnough reports whether the source node has enough for the waiting pod if a moved pod stays there, on
// other devices.
func (p *placement) leavesEnough(pod *podInfo) bool {
	free := maps.Clone(p.free[p.source])
	for _, m := range p.moved {
		add(free, m.requests)
	}
	subtract(free, pod.requests)
	return enough(free, p.waiting)
}

// memoryOf returns the memory of the devices that a pod holds, in bytes.
func (s *search) memoryOf(pod *podInfo) (n int64) {
	for _, d := range devicesHeld(pod) {
		if known := s.devices[d]; known != nil {
			n += known.Consumes[names.CounterMemory]
		}
	}
	return n
}
