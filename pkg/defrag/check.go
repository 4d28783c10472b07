package defrag

import (
	"context"
	"slices"
)

// Check proves a plan again, on newer objects, with the taints of its reservation. The error is a *Refusal if
// it does not hold any more. Of the plan, it needs the pods, the node and the names of the wanted devices.
func (p *Planner) Check(ctx context.Context, plan *Plan) error {
	limited, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	pod := p.pods[plan.Pod]
	on := p.sites[plan.Node]
	if pod == nil || on == nil {
		return refuse(NotWaiting, "%s or the node %s is gone.", plan.Pod, plan.Node)
	}
	g, refusal := p.waiting(limited, pod)
	if refusal != nil {
		return refusal
	}
	s := &search{Planner: p, waiting: g, nearest: refuse(NoNode, "%s has no room on %s any more.", g, plan.Node)}
	if !on.open(g) {
		return s.nearest
	}
	now, err := s.without(limited, on, nil)
	if err != nil {
		return err
	}
	if now != nil {
		return refuse(FitsNow, "%s fits on %s without moving any pod.", g, plan.Node)
	}
	var pods []*guest
	for _, m := range plan.Moves {
		moving := p.pods[m.Pod]
		if moving == nil || moving.UID != m.UID || moving.Spec.NodeName != plan.Node {
			return refuse(NotMovable, "%s is gone.", m.Pod)
		}
		mover := p.guest(moving)
		if mover.fixed != "" {
			return refuse(NotMovable, "%s may not be moved: %s.", m.Pod, mover.fixed)
		}
		pods = append(pods, mover)
	}
	again, err := s.prove(limited, newCandidate(on, pods))
	switch {
	case err != nil:
		return err
	case again == nil:
		return s.nearest
	case !slices.Equal(Names(again.Devices), Names(plan.Devices)) || len(again.Moves) != len(plan.Moves):
		return refuse(NotKept, "%s would get other devices of %s now.", g, plan.Node)
	}
	return nil
}
