package defrag

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Plan finds which pods to move so that a waiting pod fits. If there is no plan, the error is a
// *Refusal.
func (p *Planner) Plan(ctx context.Context, pod *corev1.Pod) (*Plan, error) {
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	waiting, refusal := p.waiting(limited, pod)
	if refusal != nil {
		return nil, refusal
	}
	s := &search{Planner: p, waiting: waiting, refusal: refuse(NoNode, "No node both has such devices and admits pod %s. Check its node selector, node affinity and tolerations.", waiting)}
	plan, err := s.run(limited)
	switch {
	case plan != nil:
		return plan, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		s.refuse(OutOfTime, "The search for pods to move for pod %s did not finish in time, so there may be a plan that was not found.", waiting)
	case errors.As(err, &refusal):
		return nil, refusal
	case err != nil:
		return nil, refuse(Unsupported, "Plans are not made for pod %s: %v.", waiting, err)
	}
	return nil, s.refusal
}

type search struct {
	*Planner
	waiting *podInfo
	// refusal is why there is no plan, as far as the search came.
	refusal *Refusal
}

// refuse sets the refusal if the search came further than before.
func (s *search) refuse(reason Reason, format string, args ...any) {
	if slices.Index(reasons, reason) > slices.Index(reasons, s.refusal.Reason) {
		s.refusal = refuse(reason, format, args...)
	}
}

// candidate has pods without which the waiting pod may fit on a node.
type candidate struct {
	node *nodeInfo
	pods []*podInfo
	// devices is the number of devices that the pods hold.
	devices int
}

func newCandidate(n *nodeInfo, pods []*podInfo) candidate {
	return candidate{node: n, pods: pods, devices: len(devicesHeld(pods...))}
}

// run tries the candidates of all nodes, those with the fewest pods first.
func (s *search) run(ctx context.Context) (*Plan, error) {
	var all []candidate
	var timeout error
	for _, name := range s.nodeNames {
		found, err := s.candidatesOn(ctx, s.nodes[name])
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			timeout = err // another node may be easier
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
			timeout = err
		case err != nil:
			return nil, err
		}
	}
	return nil, timeout
}

// candidatesOn finds candidates on a node. The error is a *Refusal if the waiting pod fits there now.
func (s *search) candidatesOn(ctx context.Context, n *nodeInfo) ([]candidate, error) {
	if !n.admits(s.waiting) {
		return nil, nil
	}
	now, err := s.allocate(ctx, n, n.allocated(nil, nil), n.slices, s.waiting.claims)
	switch {
	case err != nil:
		return nil, err
	case now != nil && enough(n.free, s.waiting):
		return nil, refuse(FitsNow, "Pod %s fits on node %s without moving any pod. See the events of the pod for why it waits.", s.waiting, n.node.Name)
	case now != nil:
		return nil, nil // it does not wait for devices of this node
	}
	if choices := s.waiting.oneDevice(); choices != nil {
		return s.candidatesByDevice(ctx, n, choices), nil
	}
	return s.candidatesByGPU(ctx, n)
}

// candidatesByDevice finds a candidate for each device that satisfies one of the choices.
func (s *search) candidatesByDevice(ctx context.Context, n *nodeInfo, choices []demand.Choice) (out []candidate) {
	known := s.matchesOf(s.waiting.claims)
	for _, pool := range n.pools {
		for _, d := range pool.Devices {
			switch {
			case !s.matches(ctx, d, choices, known):
				continue
			case d.Shared():
				s.refuseShare()
				continue
			}
			if pods, notMovable := s.inTheWay(pool, d); notMovable != "" {
				s.refuseNotMovable(n, notMovable)
			} else if len(pods) > s.o.MaxPods {
				s.refuseTooMany(len(pods))
			} else if len(pods) > 0 {
				out = append(out, newCandidate(n, pods))
			}
		}
	}
	return out
}

func (s *search) refuseShare() {
	s.refuse(NotKept, "Pod %s requests a share of a GPU. Shares cannot be reserved, so no pods are moved for it.", s.waiting)
}

func (s *search) refuseNotMovable(n *nodeInfo, why string) {
	s.refuse(NotMovable, "Pods that would have to move for pod %s may not be moved. On node %s, %s.", s.waiting, n.node.Name, why)
}

func (s *search) refuseTooMany(pods int) {
	s.refuse(TooMany, "%d pods would have to move for pod %s, and the maximum is %d.", pods, s.waiting, s.o.MaxPods)
}

// inTheWay estimates the fewest pods to move for a device: all that hold devices of its GPU, without those
// that fit beside it. Pods that may not be moved are kept first, then the largest. notMovable is why
// there is no such set of pods.
func (s *search) inTheWay(pool *cluster.Pool, d *cluster.Device) (out []*podInfo, notMovable string) {
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
		return cmp.Compare(b.Consumes[names.CounterMemory], a.Consumes[names.CounterMemory])
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
		pods, _ := s.holders(o)
		out = lists.Union(out, pods...)
	}
	return out, ""
}

// holders returns the pods that hold a device. notMovable is why one of them may not be moved.
func (s *search) holders(d *cluster.Device) (out []*podInfo, notMovable string) {
	for _, h := range d.Holders {
		if h.Admin {
			continue
		}
		pod, why := s.podOf(h, s.waiting)
		if why != "" {
			return nil, why
		}
		out = lists.Union(out, pod)
	}
	return out, ""
}

// candidatesByGPU releases GPU after GPU, those with the fewest pods first, until the waiting pod fits.
func (s *search) candidatesByGPU(ctx context.Context, n *nodeInfo) ([]candidate, error) {
	movable := map[*cluster.Pool][]*podInfo{}
	reason := ""
	for _, pool := range n.pools {
		for _, d := range pool.Devices {
			pods, notMovable := s.holders(d)
			if notMovable == "" {
				movable[pool] = lists.Union(movable[pool], pods...)
			}
			reason = cmp.Or(reason, notMovable)
		}
	}
	pools := slices.DeleteFunc(slices.Clone(n.pools), func(p *cluster.Pool) bool { return len(movable[p]) == 0 })
	slices.SortStableFunc(pools, func(a, b *cluster.Pool) int { return cmp.Compare(len(movable[a]), len(movable[b])) })
	var pods []*podInfo
	for _, pool := range pools {
		if pods = lists.Union(pods, movable[pool]...); len(pods) > 4*s.o.MaxPods {
			s.refuse(TooMany, "More than %d pods would have to move for pod %s.", s.o.MaxPods, s.waiting)
			return nil, nil
		}
		got, err := s.allocateWithout(ctx, n, pods)
		if err != nil {
			return nil, err
		}
		if got != nil {
			return []candidate{newCandidate(n, pods)}, nil
		}
	}
	if reason != "" {
		s.refuseNotMovable(n, reason)
	}
	return nil, nil
}

// allocateWithout returns what the waiting pod gets on a node without some pods, nil if it does not fit.
func (s *search) allocateWithout(ctx context.Context, n *nodeInfo, pods []*podInfo) (results, error) {
	free := maps.Clone(n.free)
	for _, pod := range pods {
		add(free, pod.requests)
	}
	if !enough(free, s.waiting) {
		s.refuse(NoResources, "No node has enough CPU, memory or other resources for pod %s, even without the pods that may be moved.", s.waiting)
		return nil, nil
	}
	return s.allocate(ctx, n, n.allocated(releasedBy(pods), nil), n.slices, s.waiting.claims)
}

// releasedBy returns the claims that pods release when they end.
func releasedBy(pods []*podInfo) map[*resourceapi.ResourceClaim]bool {
	out := map[*resourceapi.ResourceClaim]bool{}
	for _, pod := range pods {
		for _, c := range pod.held {
			out[c] = true
		}
	}
	return out
}

// devicesHeld returns the devices that pods hold.
func devicesHeld(pods ...*podInfo) (out []Device) {
	for _, pod := range pods {
		for _, c := range pod.held {
			out = append(out, devicesOf(c.Status.Allocation.Devices.Results)...)
		}
	}
	return out
}
