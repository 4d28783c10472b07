package defrag

import (
	"context"
	"errors"
	"slices"
)

// Check proves a plan again, on newer objects, with the taints of its reservation. The error is a *Refusal
// if the plan does not hold any more. Check needs of the plan the pods, the node and the names of the
// devices.
func (p *Planner) Check(ctx context.Context, plan *Plan) error {
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	err := p.check(limited, plan)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return refuse(OutOfTime, "Checking the plan for pod %s took too long.", plan.Pod)
	}
	return err
}

func (p *Planner) check(ctx context.Context, plan *Plan) error {
	found, node := p.pods[plan.Pod], p.nodes[plan.Node]
	switch {
	case found == nil:
		return refuse(NotWaiting, "Pod %s does not exist any more.", plan.Pod)
	case node == nil:
		return refuse(NoNode, "Node %s does not exist or has no GPUs any more.", plan.Node)
	}
	pod, refusal := p.waiting(ctx, found)
	if refusal != nil {
		return refusal
	}
	s := &search{Planner: p, waiting: pod, refusal: refuse(NoNode, "Pod %s would not fit on node %s any more.", pod, plan.Node)}
	if !node.admits(pod) {
		return refuse(NoNode, "Node %s does not admit pod %s any more.", plan.Node, pod)
	}
	now, err := s.allocateWithout(ctx, node, nil)
	if err != nil {
		return err
	}
	if now != nil {
		return refuse(FitsNow, "Pod %s fits on node %s without moving any pod.", pod, plan.Node)
	}
	var moved []*podInfo
	for _, m := range plan.Moves {
		current := p.pods[m.Pod]
		if current == nil || current.UID != m.UID || current.Spec.NodeName != plan.Node {
			return refuse(NotMovable, "Pod %s does not exist any more.", m.Pod)
		}
		info := p.movable(current)
		if info.notMovable != "" {
			return refuse(NotMovable, "Pod %s may not be moved: %s.", m.Pod, info.notMovable)
		}
		moved = append(moved, info)
	}
	again, err := s.prove(ctx, newCandidate(node, moved))
	switch {
	case err != nil:
		return err
	case again == nil:
		return s.refusal
	case !slices.Equal(Names(again.Devices), Names(plan.Devices)):
		return refuse(NotKept, "Pod %s would get other devices of node %s than planned.", pod, plan.Node)
	case len(again.Moves) != len(plan.Moves):
		return refuse(NotKept, "Not all planned moves for pod %s are needed any more.", pod)
	}
	return nil
}
