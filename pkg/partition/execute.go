package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

const (
	// lookBudget limits the reading of one GPU's state.
	lookBudget = 30 * time.Second
	// stepBudget limits one step. A reset of a GPU takes seconds.
	stepBudget = 2 * time.Minute
	// memoryBudget limits the load of a driver, which resets eight GPUs one by one.
	memoryBudget = 15 * time.Minute
)

// Apply applies a profile and returns the result. It can be called again after a kill at
// any point, and after a failure, to complete the rest. It does not change a GPU whose
// holders are in the way. It does not undo a failed change: the caller applies the previous
// profile for that.
//
// With allowReboot, the mode of a GPU that needs a reset stays pending; the result is
// RebootRequired either way. The caller fills in which switch it answers.
func (n *Node) Apply(ctx context.Context, to v1beta1.ProfileSnapshot, allowReboot bool) v1beta1.Task {
	n.working.Lock()
	defer n.working.Unlock()
	return n.apply(ctx, to, allowReboot, n.isBack(to))
}

// RollBack applies the previous profile again, whether the last one was completely applied
// or not. Modes that the previous profile does not set (AMD's memory mode, Ampere's MIG
// mode) return to what they were. A GPU that does not answer, or is in use, does not block
// the others.
func (n *Node) RollBack(ctx context.Context, to v1beta1.ProfileSnapshot, allowReboot bool) v1beta1.Task {
	n.working.Lock()
	defer n.working.Unlock()
	if in := n.journal(); in.Applying == nil && in.Previous != nil && in.Previous.Applied.Snapshot.Hash == to.Hash {
		if err := n.update(journal.reopen); err != nil {
			return failed(err)
		}
	}
	return n.apply(ctx, to, allowReboot, true)
}

func (n *Node) apply(ctx context.Context, to v1beta1.ProfileSnapshot, allowReboot, back bool) v1beta1.Task {
	if err := n.tryApply(ctx, to, allowReboot, back); err != nil {
		return failed(err)
	}
	klog.FromContext(ctx).Info("Applied a profile", "profile", to.ProfileName, "hash", to.Hash)
	return v1beta1.Task{Phase: v1beta1.TaskDone}
}

func (n *Node) tryApply(ctx context.Context, to v1beta1.ProfileSnapshot, allowReboot, back bool) error {
	seen, silent := n.survey(ctx)
	silent = join(silent, n.allThere(seen))
	if silent != nil && !back {
		return silent
	}
	desired, err := n.choose(to, seen)
	if err != nil {
		return unfit(err.Error())
	}
	changes, err := n.confirmedChanges(ctx, seen, desired)
	if err != nil {
		return err
	}
	refusal := n.refusal(changes)
	// In a rollback, one GPU must not block the others.
	if err := join(refusal, inTheWay(changes), n.lostInTheWay(changes)); err != nil && !back {
		return err
	}
	if err := n.begin(desired, seen); err != nil {
		return err
	}
	if err := join(silent, refusal, n.applyAll(ctx, group{desired: desired, leavePending: allowReboot}, seen)); err != nil {
		return err
	}
	if err := n.at("commit"); err != nil {
		return err
	}
	return n.update(func(in journal) journal { return in.finish(desired, seen) })
}

// isBack reports whether a profile is the one that was applied before an unfinished change.
func (n *Node) isBack(to v1beta1.ProfileSnapshot) bool {
	in := n.journal()
	return in.Applying != nil && in.Applied.Snapshot.Hash == to.Hash
}

// begin records in the journal what is about to change.
func (n *Node) begin(desired resolvedProfile, seen []profile.NodeGPU) error {
	if err := n.at("begin"); err != nil {
		return err
	}
	now := map[string]gpu.Modes{}
	for i := range seen {
		now[seen[i].PCIAddress] = seen[i].Modes
	}
	return n.update(func(in journal) journal { return in.begin(desired, now) })
}

// applyAll applies the layouts of all GPUs in parallel, as g says. The error joins those of
// all GPUs.
func (n *Node) applyAll(ctx context.Context, g group, seen []profile.NodeGPU) error {
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

// groups returns the GPUs that have to change. Those that change together are one group.
func (n *Node) groups(seen []profile.NodeGPU) [][]gpu.GPU {
	layouts := n.journal().Layouts
	changes := profile.NewChanges(seen)
	var groups [][]gpu.GPU
	var together []gpu.GPU
	for i := range seen {
		g := &seen[i]
		at := slices.IndexFunc(changes.GPUs, func(p profile.GPUChanges) bool { return p.PCIAddress == g.PCIAddress })
		switch {
		case at >= 0 && changes.GPUs[at].Steps != nil && changes.GPUs[at].Steps[0].Op == profile.OpMemory:
			together = append(together, g.GPU)
		case at >= 0, !sameLayout(layouts[g.PCIAddress], g.To):
			groups = append(groups, []gpu.GPU{g.GPU})
		}
	}
	if together != nil {
		groups = append(groups, together)
	}
	return groups
}

// sameLayout reports whether two layouts have the same static partitions, which claims do
// not remove when they are released.
func sameLayout(a, b profile.Layout) bool {
	return a.Partitioning == b.Partitioning && slices.EqualFunc(a.Static, b.Static, func(p, q gpu.Placement) bool { return p.Name() == q.Name() })
}

// group is a set of GPUs that change under one lock.
type group struct {
	*Node
	gpus    []gpu.GPU
	desired resolvedProfile
	// leavePending: modes that need a reset stay pending.
	leavePending bool
	// keepMemory: the memory mode does not change, whatever the layout says.
	keepMemory bool
}

// setDesired sets the desired layouts of the group's GPUs.
func (g *group) setDesired(gpus []profile.NodeGPU) {
	setDesired(gpus, g.desired.Layouts)
	if g.keepMemory {
		ignoreMemory(gpus)
	}
}

func ignoreMemory(gpus []profile.NodeGPU) {
	for i := range gpus {
		gpus[i].To.Memory, gpus[i].Before.Memory = "", ""
	}
}

// change applies the layouts of the GPUs while no claim is prepared or released.
func (g *group) change(ctx context.Context) error {
	why := "is being changed to profile " + g.desired.Snapshot.ProfileName
	if g.desired.Snapshot.ProfileName == "" {
		why = "is being changed to what it is without a profile"
	}
	return g.Claims.Exclusive(ctx, addresses(g.gpus), why, func(held []ledger.Record) error {
		changes, err := g.changes(ctx, held)
		if err != nil {
			return err
		}
		if step := memoryStep(changes); step != nil {
			if err := g.take(ctx, *step); err != nil {
				return err
			}
			if changes, err = g.changes(ctx, held); err != nil {
				return err
			}
			if step := memoryStep(changes); step != nil {
				return fmt.Errorf("%s: the driver was reloaded, but the GPUs are not in the mode: %w", step, gpu.ErrModeLost)
			}
		}
		return g.changeEach(ctx, changes, held)
	})
}

// changes returns the changes of the GPUs, under their lock.
func (g *group) changes(ctx context.Context, held []ledger.Record) (profile.Changes, error) {
	seen, err := g.lookAll(ctx, g.gpus, held)
	if err != nil {
		return profile.Changes{}, err
	}
	g.setDesired(seen)
	changes := profile.NewChanges(seen)
	if err := join(g.refusal(changes), inTheWay(changes), g.lostInTheWay(changes)); err != nil {
		return profile.Changes{}, err
	}
	if step := memoryStep(changes); step != nil && len(g.gpus) < g.ofVendor(step.Vendor) {
		return profile.Changes{}, fmt.Errorf("%s: the mode of GPU %s has changed meanwhile; retrying", step, gpu.NameOf(step.GPU))
	}
	return changes, nil
}

func (n *Node) ofVendor(v gpu.Vendor) int {
	count := 0
	for _, g := range n.present() {
		if g.Vendor == v {
			count++
		}
	}
	return count
}

// memoryStep returns the step that changes the memory mode, nil if there is none.
func memoryStep(changes profile.Changes) *profile.Step {
	for _, c := range changes.GPUs {
		if len(c.Steps) > 0 && c.Steps[0].Op == profile.OpMemory {
			return &c.Steps[0]
		}
	}
	return nil
}

// withMemoryStep returns the PCI addresses of the GPUs whose memory mode changes.
func withMemoryStep(p profile.Changes) []string {
	var gpus []string
	for _, c := range p.GPUs {
		if len(c.Steps) > 0 && c.Steps[0].Op == profile.OpMemory {
			gpus = append(gpus, c.PCIAddress)
		}
	}
	return gpus
}

// changeEach performs the steps of all GPUs in parallel.
func (g *group) changeEach(ctx context.Context, changes profile.Changes, held []ledger.Record) error {
	errs := make([]error, len(g.gpus))
	var wg sync.WaitGroup
	for i := range g.gpus {
		wg.Go(func() {
			var steps []profile.Step
			for _, c := range changes.GPUs {
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

// changeOne performs the steps of one GPU, reads the GPU back, and records the result.
func (g *group) changeOne(ctx context.Context, changed gpu.GPU, steps []profile.Step, held []ledger.Record) error {
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
	g.setDesired(now)
	if left := profile.NewChanges(now); len(left.GPUs)+len(left.Refused)+len(left.Foreign) > 0 {
		return fmt.Errorf("GPU %s was changed without an error, but does not have the desired layout: %s", changed.Name(), leftOver(left))
	}
	if err := g.at("done " + changed.Name()); err != nil {
		return err
	}
	return g.update(func(in journal) journal { return in.done(changed.PCIAddress, g.desired.Layouts[changed.PCIAddress]) })
}

// take records one step in the journal, then performs it.
func (g *group) take(ctx context.Context, s profile.Step) error {
	if err := g.at(s.String()); err != nil {
		return err
	}
	if err := g.update(func(in journal) journal { in.Step = s.String(); return in }); err != nil {
		return err
	}
	budget := stepBudget
	if s.Op == profile.OpMemory {
		budget = memoryBudget
	}
	ctx, cancel := context.WithTimeoutCause(ctx, budget, fmt.Errorf("it took longer than %s", budget))
	defer cancel()
	start := time.Now()
	err := g.do(ctx, s)
	klog.FromContext(ctx).V(2).Info("Changed a GPU", "step", s.String(), "took", time.Since(start), "err", err)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

func (g *group) do(ctx context.Context, s profile.Step) error {
	driver, err := g.Driver(s.GPU)
	if err != nil {
		return err
	}
	switch s.Op {
	case profile.OpMemory:
		return driver.SetMemoryPartition(ctx, s.Mode)
	case profile.OpCompute:
		return driver.SetComputePartition(ctx, s.GPU, s.Mode)
	case profile.OpMIG:
		return driver.SetMIG(ctx, s.GPU, s.Mode == string(gpu.MIGOn), g.leavePending)
	case profile.OpDestroy:
		return driver.Destroy(ctx, s.Placement)
	case profile.OpCreate:
		_, err := driver.Create(ctx, s.Placement)
		return err
	}
	return fmt.Errorf("unknown step %q", s.Op)
}

// at lets a test stop the change at a point.
func (n *Node) at(point string) error {
	if n.At == nil {
		return nil
	}
	return n.At(point)
}
