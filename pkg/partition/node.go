package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Claims are the claims of the node. *claim.Manager is one.
type Claims interface {
	// Exclusive runs do while no claim is prepared or released on the GPUs, and gives
	// it the records that hold devices of them.
	Exclusive(ctx context.Context, gpus []string, why string, do func(held []ledger.Record) error) error
	// Held returns the records that hold devices of the GPUs now.
	Held(gpus []string) []ledger.Record
}

// Resolve returns the desired state of GPUs by a profile, by PCI address. there returns
// what exists on a GPU. An error names everything that does not fit.
type Resolve func(w v1beta1.ProfileSnapshot, gpus []gpu.GPU, there func(pciAddress string) profile.Existing) (map[string]profile.Desired, error)

// Config is the configuration of a Node. Lost, Resolve, MemoryModes and At are
// optional.
type Config struct {
	// State is what is applied.
	*State
	// GPUs returns the GPUs of the node, including those that do not answer, as last known.
	// Otherwise a rule that counts GPUs would select others.
	GPUs func() []gpu.GPU
	// Lost reports whether a GPU is known not to answer. It is skipped, and Restore applies
	// the profile to it later. Nil: none is lost.
	Lost func(pciAddress string) bool
	// Driver returns the driver of a GPU. A Node calls it with the locks of the GPU, or of
	// all GPUs of the vendor to change the memory mode.
	Driver hardware.Lookup
	Claims Claims
	// Resolve is profile.Resolve, except in tests.
	Resolve Resolve
	// MemoryModes: AMD's driver may be reloaded.
	MemoryModes bool
	// At is called before each step of a change. Tests stop the change by an error.
	At func(point string) error
}

// Node applies profiles to the GPUs of a node. It is safe for concurrent use; it makes one
// change at a time.
type Node struct {
	Config

	// working is locked while a call plans or changes GPUs.
	working sync.Mutex
	// planned is the result of the last Plan, so that Apply applies the same. working
	// protects it.
	planned resolvedProfile
}

// New returns a Node that applies profiles.
func New(c Config) *Node {
	if c.Resolve == nil {
		c.Resolve = profile.Resolve
	}
	return &Node{Config: c}
}

// Plan says what has to change to apply a profile. It changes nothing. The caller fills in
// which switch it answers.
func (n *Node) Plan(ctx context.Context, to v1beta1.ProfileSnapshot) v1beta1.Task {
	n.working.Lock()
	defer n.working.Unlock()
	if err := n.Unread(); err != nil {
		return failed(err) // Apply would fail, after pods were evicted for it.
	}
	seen, err := n.survey(ctx)
	if err := join(err, n.allThere(seen)); err != nil {
		return failed(err)
	}
	n.planned = resolvedProfile{}
	desired, err := n.choose(to, seen)
	if err != nil {
		return refused(unfit(err.Error()))
	}
	changes, err := n.confirmedChanges(ctx, seen, desired)
	if err != nil {
		return failed(err)
	}
	if err := n.refusal(changes); err != nil {
		return refused(err)
	}
	if err := n.lostInTheWay(changes); err != nil {
		return failed(err)
	}
	n.planned = desired
	return v1beta1.Task{Phase: v1beta1.TaskPlanned, Changes: changesOf(changes), ShrinkingGPUs: changes.Shrinking}
}

func refused(err error) v1beta1.Task {
	task := failed(err)
	task.Phase = v1beta1.TaskRefused
	return task
}

// setDesired sets the desired layouts of GPUs.
func setDesired(gpus []profile.NodeGPU, layouts map[string]profile.Layout) {
	for i := range gpus {
		gpus[i].To = layouts[gpus[i].PCIAddress]
	}
}

// setDesired also says which GPUs the profile leaves unchanged.
func (r *resolvedProfile) setDesired(gpus []profile.NodeGPU) {
	setDesired(gpus, r.Layouts)
	for i := range gpus {
		gpus[i].Unchanged = slices.Contains(r.unchanged, gpus[i].PCIAddress)
	}
}

// survey reads the state of the GPUs that are not lost.
func (n *Node) survey(ctx context.Context) ([]profile.NodeGPU, error) {
	gpus := n.present()
	return n.lookAll(ctx, gpus, n.Claims.Held(addresses(gpus)))
}

// confirmedChanges returns the changes of the GPUs that answered. Claims may have come and
// gone while their state was read, so GPUs that seem to have foreign partitions are read
// again under their lock.
func (n *Node) confirmedChanges(ctx context.Context, seen []profile.NodeGPU, desired resolvedProfile) (profile.Changes, error) {
	desired.setDesired(seen)
	changes := profile.NewChanges(seen)
	if len(changes.Foreign) == 0 {
		return changes, nil
	}
	for i := range seen {
		gpuID := seen[i].PCIAddress
		if !slices.ContainsFunc(changes.Foreign, func(q gpu.Partition) bool { return q.GPU == gpuID }) {
			continue
		}
		err := n.Claims.Exclusive(ctx, []string{gpuID}, "is being looked at", func(held []ledger.Record) error {
			now, err := n.look(ctx, seen[i].GPU, held)
			if err == nil {
				seen[i] = now
			}
			return err
		})
		if err != nil {
			return profile.Changes{}, about(err, gpuID)
		}
	}
	desired.setDesired(seen)
	return profile.NewChanges(seen), nil
}

// present returns the GPUs that are not lost.
func (n *Node) present() []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(n.GPUs()), func(g gpu.GPU) bool { return n.Lost != nil && n.Lost(g.PCIAddress) })
}

// lookAll reads the state of GPUs in parallel. It leaves out those that do not answer; the
// error names them.
func (n *Node) lookAll(ctx context.Context, gpus []gpu.GPU, held []ledger.Record) ([]profile.NodeGPU, error) {
	all, errs := make([]profile.NodeGPU, len(gpus)), make([]error, len(gpus))
	var wg sync.WaitGroup
	for i := range gpus {
		wg.Go(func() {
			var err error
			all[i], err = n.look(ctx, gpus[i], held)
			errs[i] = about(err, gpus[i].PCIAddress)
		})
	}
	wg.Wait()
	var seen []profile.NodeGPU
	for i := range all {
		if errs[i] == nil {
			seen = append(seen, all[i])
		}
	}
	return seen, join(errs...)
}

// look reads the state of a GPU.
func (n *Node) look(ctx context.Context, g gpu.GPU, held []ledger.Record) (profile.NodeGPU, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookBudget, fmt.Errorf("not finished within %s, the limit for looking at a GPU", lookBudget))
	defer cancel()
	in := n.journal()
	read := profile.NodeGPU{
		GPU: g, Before: in.Before[g.PCIAddress], Ours: in.ours(g.PCIAddress), Now: in.Layouts[g.PCIAddress],
		Held: holdersOf(g.PCIAddress, held),
	}
	driver, err := n.Driver(g.PCIAddress)
	if err != nil {
		return read, fmt.Errorf("read how GPU %s is set: %w", g.Name(), err)
	}
	if read.Modes, err = driver.Modes(ctx, g.PCIAddress); err != nil {
		return read, fmt.Errorf("read how GPU %s is set: %w", g.Name(), err)
	}
	if read.Live, err = driver.Live(ctx, g.PCIAddress); err != nil {
		return read, fmt.Errorf("list the partitions of GPU %s: %w", g.Name(), err)
	}
	return read, nil
}

// holdersOf returns the holders of a GPU's devices.
func holdersOf(gpuID string, records []ledger.Record) []profile.Holder {
	var holders []profile.Holder
	for _, r := range records {
		for _, d := range r.Devices {
			if d.Placement.GPU == gpuID && !d.Admin {
				holders = append(holders, profile.Holder{Claim: r.Claim.String(), Device: d.Name, Placement: d.Placement})
			}
		}
	}
	return holders
}

func addresses(gpus []gpu.GPU) []string {
	return lists.Map(gpus, func(g gpu.GPU) string { return g.PCIAddress })
}
