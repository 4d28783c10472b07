package partition

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Claims are the claims of the node. *claim.Manager is one.
type Claims interface {
	// Exclusive runs do while no claim is prepared or released on the GPUs, and gives
	// it the records that hold something of them.
	Exclusive(ctx context.Context, gpus []string, why string, do func(held []ledger.Record) error) error
	// Held are the records that hold something of the GPUs at this moment.
	Held(gpus []string) []ledger.Record
}

// Resolve says what a wish comes to on GPUs, by PCI address. there tells which
// partitions a GPU has: they keep their places where that is possible. An error
// names everything that does not fit.
type Resolve func(w v1alpha1.ProfileSnapshot, gpus []gpu.GPU, there func(pciAddress string) []gpu.Partition) (map[string]profile.Desired, error)

// Config is what a Node works with. All fields but Lost, RemovalCommand,
// MemoryModes and At are needed. Claims may be set after New, before anything but Static, Shape and
// Applied is called.
type Config struct {
	// File keeps what the node follows: <data>/profile.json.
	File string
	// GPUs are the GPUs of the node, also one that does not answer now, as it was last
	// known: otherwise a rule that counts GPUs would go over to others.
	GPUs func() []gpu.GPU
	// Lost tells of a GPU that it is known not to answer. It is left alone, and comes
	// to follow the profile by Restore. Nil: none is lost.
	Lost     func(pciAddress string) bool
	Hardware Hardware
	Claims   Claims
	Resolve  Resolve
	// RemovalCommand is what a person types on the node to remove a partition.
	RemovalCommand func(gpu.Partition) string
	// MemoryModes says that AMD's driver may be loaded anew.
	MemoryModes bool
	// At is called at each point of a change, before what it names. Tests stop the
	// change by an error.
	At func(point string) error
}

// Node brings the GPUs of a node to what a profile wants of them. It is safe for
// concurrent use; one change is made at a time.
type Node struct {
	Config

	// turn lets one call at a time plan or change GPUs.
	turn sync.Mutex
	// planned is what was worked out last, so that what is applied is what was
	// planned. turn protects it.
	planned followed

	// write orders the writes of the file. It is taken before mu.
	write sync.Mutex
	// mu protects now, which is what the file says, and version, which tells whether it
	// still does.
	mu      sync.RWMutex
	now     intent
	version fileVersion
}

// New reads what the node follows. An error says that this is not known, and is to be
// reported; the node then follows nothing, and can be used.
func New(c Config) (*Node, error) {
	n := &Node{Config: c, version: versionOf(c.File)}
	var err error
	n.now, err = readIntent(c.File)
	return n, err
}

// Applied is the wish that the node follows; its hash is empty where it follows none.
// While another one is being applied it is still the one before.
func (n *Node) Applied() v1alpha1.ProfileSnapshot { return n.intent().Applied.Wish }

// Unfinished is the wish whose application was begun and has not come to an end, nil
// if there is none.
func (n *Node) Unfinished() *v1alpha1.ProfileSnapshot {
	if applying := n.intent().Applying; applying != nil {
		return &applying.Wish
	}
	return nil
}

// Shape is the shape that a GPU has: what is to be published of it.
func (n *Node) Shape(pciAddress string) profile.Shape { return n.intent().Shapes[pciAddress] }

// Behind tells whether a GPU has yet to become what the wish that the node follows
// wants of it: it did not answer when the others did.
func (n *Node) Behind(pciAddress string) bool {
	in := n.intent()
	want, known := in.Applied.Shapes[pciAddress]
	return known && in.Applying == nil && !reflect.DeepEqual(want, in.Shapes[pciAddress])
}

// Static tells whether the partition at a placement is there to stay, whatever claims
// do.
func (n *Node) Static(p gpu.Placement) bool {
	in := n.intent()
	return in.static(p.Base())
}

// AppliedShapes is the wish that the node follows, with the shapes that the GPUs have, by
// PCI address. The map must not be changed.
func (n *Node) AppliedShapes() (v1alpha1.ProfileSnapshot, map[string]profile.Shape) {
	in := n.intent()
	return in.Applied.Wish, in.Shapes
}

// Plan says what has to change for a wish to be followed. It touches nothing. The
// caller fills in whom it answers.
func (n *Node) Plan(ctx context.Context, to v1alpha1.ProfileSnapshot) v1alpha1.Task {
	n.turn.Lock()
	defer n.turn.Unlock()
	seen, err := n.survey(ctx)
	if err := join(err, n.allThere(seen)); err != nil {
		return failed(err)
	}
	n.planned = followed{}
	wanted, err := n.choose(to, seen)
	if err != nil {
		return refused(unfit(err.Error()))
	}
	plan, err := n.sure(ctx, seen, wanted)
	if err != nil {
		return failed(err)
	}
	if err := n.refusal(plan); err != nil {
		return refused(err)
	}
	if err := n.lostInTheWay(plan); err != nil {
		return failed(err)
	}
	n.planned = wanted
	return v1alpha1.Task{Phase: v1alpha1.TaskPlanned, Changes: plan.Changes(), Shrinking: plan.Shrinking}
}

func refused(err error) v1alpha1.Task {
	task := failed(err)
	task.Phase = v1alpha1.TaskRefused
	return task
}

// aim sets the shapes that are wanted of GPUs.
func aim(gpus []GPU, shapes map[string]profile.Shape) {
	for i := range gpus {
		gpus[i].To = shapes[gpus[i].PCIAddress]
	}
}

// survey looks at the GPUs that are not lost.
func (n *Node) survey(ctx context.Context) ([]GPU, error) {
	gpus := n.present()
	return n.lookAll(ctx, gpus, n.Claims.Held(addresses(gpus)))
}

// sure is the plan by which the GPUs that were seen come to what is wanted. Claims
// came and went while they were looked at: what looks as if it was somebody else's is
// looked at once more, when they cannot.
func (n *Node) sure(ctx context.Context, seen []GPU, wanted followed) (Plan, error) {
	aim(seen, wanted.Shapes)
	plan := NewPlan(seen)
	if len(plan.Foreign) == 0 {
		return plan, nil
	}
	for i := range seen {
		gpuID := seen[i].PCIAddress
		if !slices.ContainsFunc(plan.Foreign, func(q gpu.Partition) bool { return q.GPU == gpuID }) {
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
			return Plan{}, about(err, gpuID)
		}
	}
	aim(seen, wanted.Shapes)
	return NewPlan(seen), nil
}

// present are the GPUs that are not lost.
func (n *Node) present() []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(n.GPUs()), func(c gpu.GPU) bool { return n.Lost != nil && n.Lost(c.PCIAddress) })
}

// lookAll looks at GPUs, all at once. Those that did not answer are left out, and
// named by the error.
func (n *Node) lookAll(ctx context.Context, gpus []gpu.GPU, held []ledger.Record) ([]GPU, error) {
	all, errs := make([]GPU, len(gpus)), make([]error, len(gpus))
	var wg sync.WaitGroup
	for i := range gpus {
		wg.Go(func() {
			var err error
			all[i], err = n.look(ctx, gpus[i], held)
			errs[i] = about(err, gpus[i].PCIAddress)
		})
	}
	wg.Wait()
	var seen []GPU
	for i := range all {
		if errs[i] == nil {
			seen = append(seen, all[i])
		}
	}
	return seen, join(errs...)
}

// look reads how a GPU is.
func (n *Node) look(ctx context.Context, g gpu.GPU, held []ledger.Record) (GPU, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookBudget, fmt.Errorf("the %s for looking at a GPU are used up", lookBudget))
	defer cancel()
	in := n.intent()
	c := GPU{
		GPU: g, Before: in.Before[g.PCIAddress], Ours: in.ours(g.PCIAddress), Now: in.Shapes[g.PCIAddress],
		Held: holdersOf(g.PCIAddress, held),
	}
	var err error
	if c.Modes, err = n.Hardware.Modes(ctx, g.PCIAddress); err != nil {
		return c, fmt.Errorf("read how GPU %s is set: %w", g.Name(), err)
	}
	if c.Live, err = n.Hardware.Live(ctx, g.PCIAddress); err != nil {
		return c, fmt.Errorf("list the partitions of GPU %s: %w", g.Name(), err)
	}
	return c, nil
}

// holdersOf are those who hold something of a GPU.
func holdersOf(gpuID string, records []ledger.Record) []Holder {
	var holders []Holder
	for _, r := range records {
		for _, d := range r.Devices {
			if d.Placement.GPU == gpuID && !d.Admin {
				holders = append(holders, Holder{Claim: r.Claim, Device: d.Name, Placement: d.Placement})
			}
		}
	}
	return holders
}

// intent is what the file says. Its maps must not be changed. The file may be another
// process's: during a rolling update, two plugins are on the node.
func (n *Node) intent() intent {
	version := versionOf(n.File)
	n.mu.RLock()
	now, current := n.now, version == n.version
	n.mu.RUnlock()
	if current || version == (fileVersion{}) {
		return now
	}
	n.write.Lock()
	defer n.write.Unlock()
	return n.refresh()
}

// refresh reads the file if another process has written it. One that cannot be read is
// that of a newer plugin: what was known stays. The caller holds the lock of writes.
func (n *Node) refresh() intent {
	version := versionOf(n.File)
	n.mu.Lock()
	defer n.mu.Unlock()
	if version == n.version || version == (fileVersion{}) {
		return n.now
	}
	n.version = version
	if data, err := os.ReadFile(n.File); err == nil {
		if in, err := decodeIntent(data); err == nil {
			n.now = in
		}
	}
	return n.now
}

// update changes what the file says, which is written before anybody sees it.
func (n *Node) update(change func(intent) intent) error {
	n.write.Lock()
	defer n.write.Unlock()
	next := change(n.refresh())
	if err := writeIntent(n.File, next); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now, n.version = next, versionOf(n.File)
	return nil
}

func addresses(gpus []gpu.GPU) []string {
	all := make([]string, len(gpus))
	for i := range gpus {
		all[i] = gpus[i].PCIAddress
	}
	return all
}
