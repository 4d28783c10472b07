package partition

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Restore puts back what the wish that the node follows wants of the GPUs, where it
// was lost: partitions are gone after a reboot, and so are AMD's modes. It is called
// at the start, when a driver was loaded anew, and when a GPU has come. GPUs of
// which a claim holds something that would change are left as they are. The error
// says what was not put back.
//
// While another wish is being applied nothing is done: whoever asked for it asks
// again.
func (n *Node) Restore(ctx context.Context) error {
	n.turn.Lock()
	defer n.turn.Unlock()
	in := n.intent()
	if in.Applying != nil || in.Applied.Wish.Hash == "" {
		return nil
	}
	seen, silent := n.survey(ctx)
	wanted, err := n.choose(in.Applied.Wish, seen)
	if err != nil {
		return join(silent, about(err, addresses(n.GPUs())...))
	}
	if _, err := n.sure(ctx, seen, wanted); err != nil {
		return join(silent, err)
	}
	g := group{wanted: wanted}
	lost := n.memoryObstacle(seen)
	if lost != nil {
		g.keepMemory = true
		ignoreMemory(seen)
	}
	refusal := n.refusal(NewPlan(seen))
	if refusal == nil {
		if err := n.settle(wanted, seen); err != nil {
			return err
		}
	}
	if len(n.groups(seen)) == 0 {
		return join(silent, lost, refusal)
	}
	klog.FromContext(ctx).Info("The GPUs are not as the profile wants them; they are put back", "profile", in.Applied.Wish.Profile)
	if err := n.update(func(in intent) intent { return in.adopt(wanted) }); err != nil {
		return err
	}
	return join(silent, lost, refusal, n.applyAll(ctx, g, seen))
}

// settle has the GPUs follow the wish on which nothing is to be changed for it: some
// have come, or answer again, since the others were done, and what the wish says of
// what is offered holds for them, too. What was kept of them for a change is forgotten.
func (n *Node) settle(wanted followed, seen []GPU) error {
	groups := slices.Concat(n.groups(seen)...)
	in := n.intent()
	var settled []string
	for i := range seen {
		gpuID := seen[i].PCIAddress
		same := reflect.DeepEqual(in.Shapes[gpuID], wanted.Shapes[gpuID])
		if (in.unsettled(gpuID) || !same) && !slices.ContainsFunc(groups, func(g gpu.GPU) bool { return g.PCIAddress == gpuID }) {
			settled = append(settled, gpuID)
		}
	}
	if settled == nil {
		return nil
	}
	return n.update(func(in intent) intent {
		in = in.adopt(wanted)
		for _, gpuID := range settled {
			in = in.done(gpuID, wanted.Shapes[gpuID])
		}
		return in
	})
}

// memoryObstacle says why the memory mode is not put back, nil if it need not be, or
// can be.
func (n *Node) memoryObstacle(seen []GPU) error {
	plan := NewPlan(seen)
	step := memoryStep(plan)
	if step == nil {
		return nil
	}
	var together Plan
	for _, c := range plan.GPUs {
		if c.Vendor == step.Vendor {
			together.GPUs = append(together.GPUs, c)
		}
	}
	if !n.MemoryModes {
		return n.refusal(together)
	}
	if err := inTheWay(together); err != nil {
		return about(fmt.Errorf("%s: %w", step, err), plan.withMemoryStep()...)
	}
	return n.lostInTheWay(together)
}

// adopt is the intent when GPUs that have come are to follow the wish, too.
func (in intent) adopt(wanted followed) intent {
	in = in.clone()
	if in.Ours == nil {
		in.Ours = map[string][]gpu.Placement{}
	}
	for gpuID, shape := range wanted.Shapes {
		if !sameShape(in.Shapes[gpuID], shape) {
			in.Ours[gpuID] = union(in.Ours[gpuID], shape.Layout)
		}
	}
	in.Applied = wanted
	return in
}
