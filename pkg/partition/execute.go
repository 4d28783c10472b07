package partition

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
	// lookBudget is how long one GPU may take to tell how it is.
	lookBudget = 30 * time.Second
	// stepBudget is how long one step may take. A reset of a GPU takes seconds.
	stepBudget = 2 * time.Minute
	// memoryBudget is how long the load of a driver may take: eight GPUs are reset
	// one by one.
	memoryBudget = 15 * time.Minute
)

// Apply changes the GPUs so that a wish is followed, and says what came of it. It can
// be called again after a kill at any point, and after a failure: it finishes what is
// left. A GPU of which a holder is in the way is not touched. What failed is not
// taken back: the caller says what to go back to, by applying that.
//
// With allowReboot the mode of a GPU that needs a reset stays pending; the answer is
// RebootRequired with or without it. The caller fills in whom it answers.
func (n *Node) Apply(ctx context.Context, to v1alpha1.ProfileSnapshot, allowReboot bool) v1alpha1.Task {
	n.turn.Lock()
	defer n.turn.Unlock()
	return n.apply(ctx, to, allowReboot, n.isBack(to))
}

// RollBack is Apply of the wish that was followed before the one that was applied
// last, whether that came to an end or not. What the wish leaves as it is (AMD's
// memory mode, Ampere's MIG mode) is put back to what it was. A GPU that does not
// answer, or is in use, does not keep the others from it.
func (n *Node) RollBack(ctx context.Context, to v1alpha1.ProfileSnapshot, allowReboot bool) v1alpha1.Task {
	n.turn.Lock()
	defer n.turn.Unlock()
	if in := n.intent(); in.Applying == nil && in.Last != nil && in.Last.Wish.Hash == to.Hash {
		if err := n.update(intent.reopen); err != nil {
			return failed(err)
		}
	}
	return n.apply(ctx, to, allowReboot, true)
}

func (n *Node) apply(ctx context.Context, to v1alpha1.ProfileSnapshot, allowReboot, back bool) v1alpha1.Task {
	if err := n.tryApply(ctx, to, allowReboot, back); err != nil {
		return failed(err)
	}
	klog.FromContext(ctx).Info("The GPUs follow a profile", "profile", to.Profile, "hash", to.Hash)
	return v1alpha1.Task{Phase: v1alpha1.TaskDone}
}

func (n *Node) tryApply(ctx context.Context, to v1alpha1.ProfileSnapshot, allowReboot, back bool) error {
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
	// On the way back one GPU must not keep the others from it.
	if err := join(refusal, inTheWay(plan), n.lostInTheWay(plan)); err != nil && !back {
		return err
	}
	if err := n.begin(wanted, seen); err != nil {
		return err
	}
	if err := join(silent, refusal, n.applyAll(ctx, group{wanted: wanted, leavePending: allowReboot}, seen)); err != nil {
		return err
	}
	if err := n.at("commit"); err != nil {
		return err
	}
	return n.update(func(in intent) intent { return in.finish(wanted, seen) })
}

// isBack tells whether the wish is the one that was followed before.
func (n *Node) isBack(to v1alpha1.ProfileSnapshot) bool {
	in := n.intent()
	return in.Applying != nil && in.Applied.Wish.Hash == to.Hash
}

// begin writes down what is about to be done.
func (n *Node) begin(wanted followed, seen []GPU) error {
	if err := n.at("begin"); err != nil {
		return err
	}
	now := map[string]gpu.Modes{}
	for i := range seen {
		now[seen[i].PCIAddress] = seen[i].Modes
	}
	return n.update(func(in intent) intent { return in.begin(wanted, now) })
}

// applyAll brings all GPUs to their shapes, as g says, all at once. The error has those
// of all GPUs.
func (n *Node) applyAll(ctx context.Context, g group, seen []GPU) error {
	groups := n.groups(seen)
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, gpus := range groups {
		wg.Go(func() {
			g := g
			g.Node, g.gpus = n, gpus
			errs[i] = about(g.change(ctx), addresses(gpus)...)
		})
	}
	wg.Wait()
	return join(errs...)
}

// groups are the GPUs of which anything is to be changed, those that change together
// in one group.
func (n *Node) groups(seen []GPU) [][]gpu.GPU {
	shapes := n.intent().Shapes
	plan := NewPlan(seen)
	var groups [][]gpu.GPU
	var together []gpu.GPU
	for i := range seen {
		c := &seen[i]
		at := slices.IndexFunc(plan.GPUs, func(p GPUPlan) bool { return p.PCIAddress == c.PCIAddress })
		switch {
		case at >= 0 && plan.GPUs[at].Steps != nil && plan.GPUs[at].Steps[0].Op == OpMemory:
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

// group is GPUs that are changed under one lock.
type group struct {
	*Node
	gpus   []gpu.GPU
	wanted followed
	// leavePending leaves modes pending that need a reset.
	leavePending bool
	// keepMemory leaves the memory mode as it is, whatever is wanted.
	keepMemory bool
}

// aim sets the shapes that the group's GPUs are to have.
func (g *group) aim(gpus []GPU) {
	aim(gpus, g.wanted.Shapes)
	if g.keepMemory {
		ignoreMemory(gpus)
	}
}

func ignoreMemory(gpus []GPU) {
	for i := range gpus {
		gpus[i].To.Memory, gpus[i].Before.Memory = "", ""
	}
}

// change brings the GPUs to their shapes while no claim comes or goes.
func (g *group) change(ctx context.Context) error {
	why := "is being changed to profile " + g.wanted.Wish.Profile
	if g.wanted.Wish.Profile == "" {
		why = "is being changed to what it is without a profile"
	}
	return g.Claims.Exclusive(ctx, addresses(g.gpus), why, func(held []ledger.Record) error {
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
				return fmt.Errorf("%s: the driver was loaded anew, but the GPUs do not show it: %w", step, gpu.ErrModeLost)
			}
		}
		return g.changeEach(ctx, plan, held)
	})
}

// plan looks at the GPUs once nobody else can change them.
func (g *group) plan(ctx context.Context, held []ledger.Record) (Plan, error) {
	seen, err := g.lookAll(ctx, g.gpus, held)
	if err != nil {
		return Plan{}, err
	}
	g.aim(seen)
	plan := NewPlan(seen)
	if err := join(g.refusal(plan), inTheWay(plan), g.lostInTheWay(plan)); err != nil {
		return Plan{}, err
	}
	if step := memoryStep(plan); step != nil && len(g.gpus) < g.ofVendor(step.Vendor) {
		return Plan{}, fmt.Errorf("%s: the mode of GPU %s has changed meanwhile; this is tried again", step, gpu.GPUName(step.GPU))
	}
	return plan, nil
}

// ofVendor is how many GPUs of a vendor there are.
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
	for _, c := range plan.GPUs {
		if len(c.Steps) > 0 && c.Steps[0].Op == OpMemory {
			return &c.Steps[0]
		}
	}
	return nil
}

// withMemoryStep are the PCI addresses of the GPUs whose memory mode changes.
func (p Plan) withMemoryStep() []string {
	var gpus []string
	for _, c := range p.GPUs {
		if len(c.Steps) > 0 && c.Steps[0].Op == OpMemory {
			gpus = append(gpus, c.PCIAddress)
		}
	}
	return gpus
}

// changeEach takes the steps of each GPU, all GPUs at once.
func (g *group) changeEach(ctx context.Context, plan Plan, held []ledger.Record) error {
	errs := make([]error, len(g.gpus))
	var wg sync.WaitGroup
	for i := range g.gpus {
		wg.Go(func() {
			var steps []Step
			for _, c := range plan.GPUs {
				if c.PCIAddress == g.gpus[i].PCIAddress {
					steps = c.Steps
				}
			}
			errs[i] = about(g.changeOne(ctx, g.gpus[i], steps, held), g.gpus[i].PCIAddress)
		})
	}
	wg.Wait()
	return join(errs...)
}

// changeOne takes the steps of one GPU, reads back what became of it, and writes it
// down.
func (g *group) changeOne(ctx context.Context, changed gpu.GPU, steps []Step, held []ledger.Record) error {
	for _, s := range steps {
		if err := g.take(ctx, s); err != nil {
			return err
		}
	}
	if err := g.at("verify " + changed.Name()); err != nil {
		return err
	}
	now, err := g.lookAll(ctx, []gpu.GPU{changed}, held)
	if err != nil {
		return err
	}
	g.aim(now)
	if left := NewPlan(now); len(left.GPUs)+len(left.Refused)+len(left.Foreign) > 0 {
		return fmt.Errorf("GPU %s was changed without an error, but is not as it should be: %s", changed.Name(), leftOver(left))
	}
	if err := g.at("done " + changed.Name()); err != nil {
		return err
	}
	return g.update(func(in intent) intent { return in.done(changed.PCIAddress, g.wanted.Shapes[changed.PCIAddress]) })
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
	klog.FromContext(ctx).V(2).Info("Changed a GPU", "step", s.String(), "took", time.Since(start), "err", err)
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
		return g.Hardware.SetComputePartition(ctx, s.GPU, s.Mode)
	case OpMIG:
		return g.Hardware.SetMIG(ctx, s.GPU, s.Mode == string(gpu.MIGOn), g.leavePending)
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
