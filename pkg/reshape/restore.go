package reshape

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Restore puts back what the wish that the node follows wants of the cards, where it
// was lost: partitions are gone after a reboot, and so are AMD's modes. It is called
// at the start, when a driver was loaded anew, and when a card has come. Cards of
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
		return join(silent, err)
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
	klog.FromContext(ctx).Info("The cards are not as the profile wants them; they are put back", "profile", in.Applied.Wish.Profile)
	if err := n.update(func(in intent) intent { return in.adopt(wanted) }); err != nil {
		return err
	}
	return join(silent, lost, refusal, n.reshape(ctx, g, seen))
}

// settle has the cards follow the wish on which nothing is to be changed for it: some
// have come, or answer again, since the others were done, and what the wish says of
// what is offered holds for them, too. What was kept of them for a change is forgotten.
func (n *Node) settle(wanted followed, seen []Card) error {
	groups := slices.Concat(n.groups(seen)...)
	in := n.intent()
	var settled []string
	for i := range seen {
		card := seen[i].PCIAddress
		same := reflect.DeepEqual(in.Shapes[card], wanted.Shapes[card])
		if (in.unsettled(card) || !same) && !slices.ContainsFunc(groups, func(g gpu.GPU) bool { return g.PCIAddress == card }) {
			settled = append(settled, card)
		}
	}
	if settled == nil {
		return nil
	}
	return n.update(func(in intent) intent {
		in = in.adopt(wanted)
		for _, card := range settled {
			in = in.done(card, wanted.Shapes[card])
		}
		return in
	})
}

// memoryObstacle says why the memory mode is not put back, nil if it need not be, or
// can be.
func (n *Node) memoryObstacle(seen []Card) error {
	plan := NewPlan(seen)
	step := memoryStep(plan)
	if step == nil {
		return nil
	}
	var amd Plan
	for _, c := range plan.Cards {
		if c.Vendor == gpu.AMD {
			amd.Cards = append(amd.Cards, c)
		}
	}
	if !n.MemoryModes {
		return n.refusal(amd)
	}
	if err := inTheWay(amd); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return n.lostInTheWay(amd)
}

// adopt is the intent when cards that have come are to follow the wish, too.
func (in intent) adopt(wanted followed) intent {
	in = in.clone()
	if in.Ours == nil {
		in.Ours = map[string][]gpu.Placement{}
	}
	for card, shape := range wanted.Shapes {
		if !sameShape(in.Shapes[card], shape) {
			in.Ours[card] = union(in.Ours[card], shape.Layout)
		}
	}
	in.Applied = wanted
	return in
}
