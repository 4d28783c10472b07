package reshape

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const (
	// lookBudget is how long one card may take to tell how it is.
	lookBudget = 30 * time.Second
	// stepBudget is how long one step may take. A reset of a card takes seconds.
	stepBudget = 2 * time.Minute
	// memoryBudget is how long the load of a driver may take: eight cards are reset
	// one by one.
	memoryBudget = 15 * time.Minute
)

// Apply changes the cards so that a wish is followed, and says what came of it. It can
// be called again after a kill at any point, and after a failure: it finishes what is
// left. A card of which a holder is in the way is not touched. What failed is not
// taken back: the caller says what to go back to, by applying that.
//
// With allowReboot the mode of a card that needs a reset stays pending; the answer is
// RebootRequired with or without it. The caller fills in whom it answers.
func (n *Node) Apply(ctx context.Context, to v1alpha1.Wish, allowReboot bool) v1alpha1.Task {
	n.turn.Lock()
	defer n.turn.Unlock()
	return n.apply(ctx, to, allowReboot, n.isBack(to))
}

// RollBack is Apply of the wish that was followed before the one that was applied
// last, whether that came to an end or not. What the wish leaves as it is (AMD's
// memory mode, Ampere's MIG mode) is put back to what it was. A card that does not
// answer, or is in use, does not keep the others from it.
func (n *Node) RollBack(ctx context.Context, to v1alpha1.Wish, allowReboot bool) v1alpha1.Task {
	n.turn.Lock()
	defer n.turn.Unlock()
	if in := n.intent(); in.Applying == nil && in.Last != nil && in.Last.Wish.Hash == to.Hash {
		if err := n.update(intent.reopen); err != nil {
			return failed(err)
		}
	}
	return n.apply(ctx, to, allowReboot, true)
}

func (n *Node) apply(ctx context.Context, to v1alpha1.Wish, allowReboot, back bool) v1alpha1.Task {
	if err := n.tryApply(ctx, to, allowReboot, back); err != nil {
		return failed(err)
	}
	klog.FromContext(ctx).Info("The cards follow a profile", "profile", to.Profile, "hash", to.Hash)
	return v1alpha1.Task{Phase: v1alpha1.TaskDone}
}

func (n *Node) tryApply(ctx context.Context, to v1alpha1.Wish, allowReboot, back bool) error {
	seen, silent := n.survey(ctx)
	silent = join(silent, n.allThere(seen))
	if silent != nil && !back {
		return silent
	}
	wanted, err := n.choose(to, seen)
	if err != nil {
		return unfit(err.Error())
	}
	plan, err := n.sure(ctx, seen, wanted)
	if err != nil {
		return err
	}
	refusal := n.refusal(plan)
	// On the way back one card must not keep the others from it.
	if err := join(refusal, inTheWay(plan), n.lostInTheWay(plan)); err != nil && !back {
		return err
	}
	if err := n.begin(wanted, seen); err != nil {
		return err
	}
	if err := join(silent, refusal, n.reshape(ctx, group{wanted: wanted, leavePending: allowReboot}, seen)); err != nil {
		return err
	}
	if err := n.at("commit"); err != nil {
		return err
	}
	return n.update(func(in intent) intent { return in.finish(wanted, seen) })
}

// isBack tells whether the wish is the one that was followed before.
func (n *Node) isBack(to v1alpha1.Wish) bool {
	in := n.intent()
	return in.Applying != nil && in.Applied.Wish.Hash == to.Hash
}

// begin writes down what is about to be done.
func (n *Node) begin(wanted followed, seen []Card) error {
	if err := n.at("begin"); err != nil {
		return err
	}
	now := map[string]gpu.Modes{}
	for i := range seen {
		now[seen[i].PCIAddress] = seen[i].Modes
	}
	return n.update(func(in intent) intent { return in.begin(wanted, now) })
}

// reshape brings all cards to their shapes, as g says, all at once. The error has those
// of all cards.
func (n *Node) reshape(ctx context.Context, g group, seen []Card) error {
	groups := n.groups(seen)
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, cards := range groups {
		wg.Go(func() {
			g := g
			g.Node, g.cards = n, cards
			errs[i] = g.change(ctx)
		})
	}
	wg.Wait()
	return join(errs...)
}

// groups are the cards of which anything is to be changed, those that change together
// in one group.
func (n *Node) groups(seen []Card) [][]gpu.GPU {
	shapes := n.intent().Shapes
	plan := NewPlan(seen)
	var groups [][]gpu.GPU
	var together []gpu.GPU
	for i := range seen {
		c := &seen[i]
		at := slices.IndexFunc(plan.Cards, func(p CardPlan) bool { return p.PCIAddress == c.PCIAddress })
		switch {
		case at >= 0 && plan.Cards[at].Steps != nil && plan.Cards[at].Steps[0].Op == OpMemory:
			together = append(together, c.GPU)
		case at >= 0, !sameShape(shapes[c.PCIAddress], c.To):
			groups = append(groups, []gpu.GPU{c.GPU})
		}
	}
	if together != nil {
		groups = append(groups, together)
	}
	return groups
}

// sameShape tells whether two shapes are the same for claims: what is static decides
// over their release.
func sameShape(a, b profile.Shape) bool {
	return a.Cut == b.Cut && slices.EqualFunc(a.Layout, b.Layout, func(p, q gpu.Placement) bool { return p.Name() == q.Name() })
}

// group is cards that are changed under one lock.
type group struct {
	*Node
	cards  []gpu.GPU
	wanted followed
	// leavePending leaves modes pending that need a reset.
	leavePending bool
	// keepMemory leaves the memory mode as it is, whatever is wanted.
	keepMemory bool
}

// aim sets the shapes that the group's cards are to have.
func (g *group) aim(cards []Card) {
	aim(cards, g.wanted.Shapes)
	if g.keepMemory {
		ignoreMemory(cards)
	}
}

func ignoreMemory(cards []Card) {
	for i := range cards {
		cards[i].To.Memory, cards[i].Before.Memory = "", ""
	}
}

// change brings the cards to their shapes while no claim comes or goes.
func (g *group) change(ctx context.Context) error {
	why := "is being changed to profile " + g.wanted.Wish.Profile
	if g.wanted.Wish.Profile == "" {
		why = "is being changed to what it is without a profile"
	}
	return g.Claims.Exclusive(ctx, addresses(g.cards), why, func(held []ledger.Record) error {
		plan, err := g.plan(ctx, held)
		if err != nil {
			return err
		}
		if step := memoryStep(plan); step != nil {
			if err := g.take(ctx, *step); err != nil {
				return err
			}
			if plan, err = g.plan(ctx, held); err != nil {
				return err
			}
			if step := memoryStep(plan); step != nil {
				return fmt.Errorf("%s: the driver was loaded anew, but the cards do not show it: %w", step, gpu.ErrModeLost)
			}
		}
		return g.changeEach(ctx, plan, held)
	})
}

// plan looks at the cards once nobody else can change them.
func (g *group) plan(ctx context.Context, held []ledger.Record) (Plan, error) {
	seen, err := g.lookAll(ctx, g.cards, held)
	if err != nil {
		return Plan{}, err
	}
	g.aim(seen)
	plan := NewPlan(seen)
	if err := join(g.refusal(plan), inTheWay(plan), g.lostInTheWay(plan)); err != nil {
		return Plan{}, err
	}
	if step := memoryStep(plan); step != nil && len(g.cards) < g.ofVendor(step.Vendor) {
		return Plan{}, fmt.Errorf("%s: the mode of card %s has changed meanwhile; this is tried again", step, gpu.CardName(step.Card))
	}
	return plan, nil
}

// ofVendor is how many cards of a vendor there are.
func (n *Node) ofVendor(v gpu.Vendor) int {
	count := 0
	for _, c := range n.present() {
		if c.Vendor == v {
			count++
		}
	}
	return count
}

// memoryStep is the step that changes the memory mode, nil if there is none.
func memoryStep(plan Plan) *Step {
	for _, c := range plan.Cards {
		if len(c.Steps) > 0 && c.Steps[0].Op == OpMemory {
			return &c.Steps[0]
		}
	}
	return nil
}

// changeEach takes the steps of each card, all cards at once.
func (g *group) changeEach(ctx context.Context, plan Plan, held []ledger.Record) error {
	errs := make([]error, len(g.cards))
	var wg sync.WaitGroup
	for i := range g.cards {
		wg.Go(func() {
			var steps []Step
			for _, c := range plan.Cards {
				if c.PCIAddress == g.cards[i].PCIAddress {
					steps = c.Steps
				}
			}
			errs[i] = g.changeOne(ctx, g.cards[i], steps, held)
		})
	}
	wg.Wait()
	return join(errs...)
}

// changeOne takes the steps of one card, reads back what became of it, and writes it
// down.
func (g *group) changeOne(ctx context.Context, card gpu.GPU, steps []Step, held []ledger.Record) error {
	for _, s := range steps {
		if err := g.take(ctx, s); err != nil {
			return err
		}
	}
	if err := g.at("verify " + card.Name()); err != nil {
		return err
	}
	now, err := g.lookAll(ctx, []gpu.GPU{card}, held)
	if err != nil {
		return err
	}
	g.aim(now)
	if left := NewPlan(now); len(left.Cards)+len(left.Refused)+len(left.Foreign) > 0 {
		return fmt.Errorf("card %s was changed without an error, but is not as it should be: %s", card.Name(), leftOver(left))
	}
	if err := g.at("done " + card.Name()); err != nil {
		return err
	}
	return g.update(func(in intent) intent { return in.done(card.PCIAddress, g.wanted.Shapes[card.PCIAddress]) })
}

// take takes one step, which is written down first.
func (g *group) take(ctx context.Context, s Step) error {
	if err := g.at(s.String()); err != nil {
		return err
	}
	if err := g.update(func(in intent) intent { in.Step = s.String(); return in }); err != nil {
		return err
	}
	budget := stepBudget
	if s.Op == OpMemory {
		budget = memoryBudget
	}
	ctx, cancel := context.WithTimeoutCause(ctx, budget, fmt.Errorf("the %s for it are used up", budget))
	defer cancel()
	start := time.Now()
	err := g.do(ctx, s)
	klog.FromContext(ctx).V(2).Info("Changed a card", "step", s.String(), "took", time.Since(start), "err", err)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

func (g *group) do(ctx context.Context, s Step) error {
	switch s.Op {
	case OpMemory:
		return g.Hardware.SetMemoryPartition(ctx, s.Vendor, s.Mode)
	case OpCompute:
		return g.Hardware.SetComputePartition(ctx, s.Card, s.Mode)
	case OpMIG:
		return g.Hardware.SetMIG(ctx, s.Card, s.Mode == string(gpu.MIGOn), g.leavePending)
	case OpDestroy:
		return g.Hardware.Destroy(ctx, s.Placement)
	case OpCreate:
		_, err := g.Hardware.Create(ctx, s.Placement)
		return err
	}
	return fmt.Errorf("unknown step %q", s.Op)
}

// at is a point at which a test may stop the change.
func (n *Node) at(point string) error {
	if n.At == nil {
		return nil
	}
	return n.At(point)
}
