package defrag

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Plan finds how to make room for a waiting pod by moving few pods. If there is no way, the error is a
// *Refusal.
func (p *Planner) Plan(ctx context.Context, pod *corev1.Pod) (*Plan, error) {
	limited, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	g, refusal := p.waiting(limited, pod)
	if refusal != nil {
		return nil, refusal
	}
	s := &search{Planner: p, waiting: g, nearest: refuse(NoNode, "No node is open to %s and has such devices.", g)}
	plan, err := s.run(limited)
	switch {
	case plan != nil:
		return plan, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		s.note(OutOfTime, "Whether pods can be moved for %s could not be found out in %s.", g, p.o.Patience)
	case errors.As(err, &refusal):
		return nil, refusal
	case err != nil:
		return nil, refuse(Unsupported, "For %s no room is made: %v.", g, err)
	}
	return nil, s.nearest
}

// search is the search for a plan for one pod.
type search struct {
	*Planner
	waiting *guest
	// nearest is why there is no plan, as far as the search came.
	nearest *Refusal
}

// note keeps a reason if the search came further than before.
func (s *search) note(reason Reason, format string, args ...any) {
	if slices.Index(reasons, reason) > slices.Index(reasons, s.nearest.Reason) {
		s.nearest = refuse(reason, format, args...)
	}
}

// candidate are pods without which the waiting pod may fit on a node.
type candidate struct {
	site *site
	pods []*guest
	// devices is how many they hold.
	devices int
}

func (s *search) run(ctx context.Context) (*Plan, error) {
	var all []candidate
	var slow error
	for _, name := range s.names {
		found, err := s.onSite(ctx, s.sites[name])
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			slow = err // another one may be easier
		case err != nil:
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(len(a.pods), len(b.pods)), cmp.Compare(a.devices, b.devices))
	})
	for _, c := range all {
		plan, err := s.prove(ctx, c)
		switch {
		case plan != nil:
			return plan, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			slow = err
		case err != nil:
			return nil, err
		}
	}
	return nil, slow
}

// onSite finds candidates on a node.
func (s *search) onSite(ctx context.Context, on *site) ([]candidate, error) {
	g := s.waiting
	if !on.open(g) {
		return nil, nil
	}
	now, err := s.allocate(ctx, on, on.held(nil, nil), on.slices, g.claims)
	switch {
	case err != nil:
		return nil, err
	case now != nil && enough(on.free, g.requests, g.extended):
		return nil, refuse(FitsNow, "%s fits on %s without moving any pod.", g, on.node.Name)
	case now != nil:
		return nil, nil // it does not wait for devices
	}
	if one := g.single(); one != nil {
		return s.byDevice(ctx, on, one)
	}
	return s.byGPU(ctx, on)
}

// byDevice finds candidates for each device that would do.
func (s *search) byDevice(ctx context.Context, on *site, choices []demand.Choice) (out []candidate, err error) {
	fits := s.fits(s.waiting.claims)
	for _, pool := range on.pools {
		for _, d := range pool.Devices {
			ok, err := s.matches(ctx, d, choices, fits)
			switch {
			case err != nil:
				return nil, err
			case !ok:
				continue
			case d.Shared():
				s.note(NotKept, "%s asks for a share of a GPU, for which no room can be kept.", s.waiting)
				continue
			}
			if pods, fixed := s.inTheWay(pool, d); fixed != "" {
				s.note(NotMovable, "Pods in the way of %s may not be moved. On %s, %s.", s.waiting, on.node.Name, fixed)
			} else if len(pods) > s.o.MaxPods {
				s.tooMany(len(pods))
			} else if len(pods) > 0 {
				out = append(out, newCandidate(on, pods))
			}
		}
	}
	return out, nil
}

func (s *search) tooMany(pods int) {
	s.note(TooMany, "%d pods would have to move for %s, at most %d may.", pods, s.waiting, s.o.MaxPods)
}

func newCandidate(on *site, pods []*guest) candidate {
	c := candidate{site: on, pods: pods}
	for _, g := range pods {
		for _, claim := range g.held {
			c.devices += len(claim.Status.Allocation.Devices.Results)
		}
	}
	return c
}

// inTheWay guesses the fewest pods to move for a device: all that hold devices of its GPU, without those
// that fit beside it. Pods that may not be moved stay first, then the largest.
func (s *search) inTheWay(pool *cluster.Pool, d *cluster.Device) (out []*guest, fixed string) {
	taken := maps.Clone(pool.Taken)
	var held []*cluster.Device
	why := map[*cluster.Device]string{}
	for _, o := range pool.Devices {
		if !o.Held() {
			continue
		}
		held = append(held, o)
		for name, n := range o.Consumes {
			taken[name] -= n
		}
		_, why[o] = s.holders(o)
	}
	slices.SortStableFunc(held, func(a, b *cluster.Device) int {
		if (why[a] != "") != (why[b] != "") {
			return cmp.Compare(why[b], why[a])
		}
		return cmp.Compare(b.Consumes[gpu.CounterMemory], a.Consumes[gpu.CounterMemory])
	})
	for _, o := range held {
		with := maps.Clone(taken)
		with.Add(o.Consumes)
		if o != d && len(pool.Short(d, with)) == 0 {
			taken = with
			continue
		}
		if why[o] != "" {
			return nil, why[o]
		}
		of, _ := s.holders(o)
		out = union(out, of)
	}
	return out, ""
}

// holders are the pods that hold a device.
func (s *search) holders(d *cluster.Device) (out []*guest, fixed string) {
	for _, h := range d.Holders {
		if h.Admin {
			continue
		}
		g, why := s.holder(h, s.waiting.pod)
		if why != "" {
			return nil, why
		}
		out = union(out, []*guest{g})
	}
	return out, ""
}

func union(all, more []*guest) []*guest {
	for _, g := range more {
		if !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// byGPU releases GPU after GPU, those with the fewest pods first, until the waiting pod fits.
func (s *search) byGPU(ctx context.Context, on *site) ([]candidate, error) {
	movable := map[*cluster.Pool][]*guest{}
	reason := ""
	for _, pool := range on.pools {
		for _, d := range pool.Devices {
			pods, fixed := s.holders(d)
			if fixed == "" {
				movable[pool] = union(movable[pool], pods)
			}
			reason = cmp.Or(reason, fixed)
		}
	}
	pools := slices.DeleteFunc(slices.Clone(on.pools), func(p *cluster.Pool) bool { return len(movable[p]) == 0 })
	slices.SortStableFunc(pools, func(a, b *cluster.Pool) int { return cmp.Compare(len(movable[a]), len(movable[b])) })
	var pods []*guest
	for _, pool := range pools {
		if pods = union(pods, movable[pool]); len(pods) > 4*s.o.MaxPods {
			s.note(TooMany, "More than %d pods would have to move for %s.", s.o.MaxPods, s.waiting)
			return nil, nil
		}
		results, err := s.without(ctx, on, pods)
		if err != nil {
			return nil, err
		}
		if results != nil {
			return []candidate{newCandidate(on, pods)}, nil
		}
	}
	if reason != "" {
		s.note(NotMovable, "Pods in the way of %s may not be moved. On %s, %s.", s.waiting, on.node.Name, reason)
	}
	return nil, nil
}

// without is what the waiting pod gets on a node without some pods, nil if it does not fit.
func (s *search) without(ctx context.Context, on *site, pods []*guest) (results, error) {
	free := maps.Clone(on.free)
	for _, g := range pods {
		add(free, g.requests)
	}
	if !enough(free, s.waiting.requests, s.waiting.extended) {
		s.note(NoResources, "No node has the CPU or the memory that %s requests.", s.waiting)
		return nil, nil
	}
	return s.allocate(ctx, on, on.held(released(pods), nil), on.slices, s.waiting.claims)
}

// released are the claims that pods hold.
func released(pods []*guest) map[*resourceapi.ResourceClaim]bool {
	out := map[*resourceapi.ResourceClaim]bool{}
	for _, g := range pods {
		for _, c := range g.held {
			out[c] = true
		}
	}
	return out
}
