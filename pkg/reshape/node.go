package reshape

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/settings"
)

// Claims are the claims of the node. *claim.Manager is one.
type Claims interface {
	// Exclusive runs do while no claim is prepared or released on the cards, and gives
	// it the records that hold something of them.
	Exclusive(ctx context.Context, cards []string, why string, do func(held []ledger.Record) error) error
	// Held are the records that hold something of the cards at this moment.
	Held(cards []string) []ledger.Record
}

// Resolve says what a wish comes to on cards, by PCI address. there tells which
// partitions a card has: they keep their places where that is possible. An error
// names everything that does not fit.
type Resolve func(w v1alpha1.Wish, cards []gpu.GPU, there func(pciAddress string) []gpu.Partition) (map[string]settings.Card, error)

// Config is what a Node works with. All fields but RemovalCommand, MemoryModes and
// At are needed. Claims may be set after New, before anything but Static, Shape and
// Applied is called.
type Config struct {
	// File keeps what the node follows: <data>/profile.json.
	File string
	// Cards are the cards that can be changed: one that does not answer is not among
	// them.
	Cards    func() []gpu.GPU
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

// Node brings the cards of a node to what a profile wants of them. It is safe for
// concurrent use; one change is made at a time.
type Node struct {
	Config

	// turn lets one call at a time plan or change cards.
	turn sync.Mutex
	// planned is what was worked out last, so that what is applied is what was
	// planned. turn protects it.
	planned followed

	// write orders the writes of the file. It is taken before mu.
	write sync.Mutex
	// mu protects now, which is what the file says.
	mu  sync.RWMutex
	now intent
}

// New reads what the node follows. An error says that this is not known, and is to be
// reported; the node then follows nothing, and can be used.
func New(c Config) (*Node, error) {
	n := &Node{Config: c}
	var err error
	n.now, err = readIntent(c.File)
	return n, err
}

// Applied is the wish that the node follows; its hash is empty where it follows none.
// While another one is being applied it is still the one before.
func (n *Node) Applied() v1alpha1.Wish { return n.intent().Applied.Wish }

// Unfinished is the wish whose application was begun and has not come to an end, nil
// if there is none.
func (n *Node) Unfinished() *v1alpha1.Wish {
	if applying := n.intent().Applying; applying != nil {
		return &applying.Wish
	}
	return nil
}

// Shape is the shape that a card has: what is to be published of it.
func (n *Node) Shape(pciAddress string) settings.Shape { return n.intent().Shapes[pciAddress] }

// Static tells whether the partition at a placement is there to stay, whatever claims
// do.
func (n *Node) Static(p gpu.Placement) bool {
	in := n.intent()
	return in.static(p.Base())
}

// Settings is what the wish that the node follows says of cards, with the shapes that
// they have. On an error, which names what does not fit, it says what it can.
func (n *Node) Settings(cards []gpu.GPU) (map[string]settings.Card, error) {
	in := n.intent()
	resolved, err := n.Resolve(in.Applied.Wish, cards, func(card string) []gpu.Partition {
		return asPartitions(in.Shapes[card].Layout)
	})
	out := map[string]settings.Card{}
	for i := range cards {
		address := cards[i].PCIAddress
		card, ok := resolved[address]
		if !ok {
			card = settings.Default()
			card.Profile = in.Applied.Wish.Profile
		}
		card.Shape = in.Shapes[address]
		out[address] = card
	}
	return out, err
}

// asPartitions are partitions as they would be at placements.
func asPartitions(placements []gpu.Placement) []gpu.Partition {
	parts := make([]gpu.Partition, len(placements))
	for i, p := range placements {
		parts[i] = gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, Complete: true}
	}
	return parts
}

// Plan says what has to change for a wish to be followed. It touches nothing. The
// caller fills in whom it answers.
func (n *Node) Plan(ctx context.Context, to v1alpha1.Wish) v1alpha1.Task {
	n.turn.Lock()
	defer n.turn.Unlock()
	cards := n.Cards()
	seen, err := n.lookAll(ctx, cards, n.Claims.Held(addresses(cards)))
	if err := join(err, n.allThere(seen)); err != nil {
		return failed(err)
	}
	wanted, err := n.choose(to, seen)
	if err != nil {
		return refused(unfit(err.Error()))
	}
	aim(seen, wanted.Shapes)
	plan := NewPlan(seen)
	if err := n.refusal(plan); err != nil {
		return refused(err)
	}
	n.planned = wanted
	return v1alpha1.Task{Phase: v1alpha1.TaskPlanned, Changes: plan.Changes()}
}

func refused(err error) v1alpha1.Task {
	task := failed(err)
	task.Phase = v1alpha1.TaskRefused
	return task
}

// choose says what a wish comes to on the cards. Partitions of a wish that was chosen
// before keep their places.
func (n *Node) choose(to v1alpha1.Wish, cards []Card) (followed, error) {
	in := n.intent()
	before := n.before(to, in)
	resolved, err := n.resolve(to, cards)
	if err != nil {
		if before != nil && before.Wish.Hash == in.Applied.Wish.Hash {
			// What was followed once can be gone back to, whatever has happened since.
			return *before, nil
		}
		return followed{}, err
	}
	wanted := followed{Wish: to, Shapes: map[string]settings.Shape{}, Vendors: vendorsOf(cards)}
	for i := range cards {
		card := &cards[i].GPU
		shape := resolved[card.PCIAddress].Shape
		if before != nil {
			shape.Layout = sameLayout(card, before.Shapes[card.PCIAddress].Layout, shape.Layout)
		}
		wanted.Shapes[card.PCIAddress] = shape
	}
	return wanted, nil
}

func vendorsOf(cards []Card) []gpu.Vendor {
	var all []gpu.Vendor
	for i := range cards {
		all = append(all, cards[i].Vendor)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// allThere refuses to go on with what was begun while all cards of a vendor are gone:
// its driver was taken out for the memory mode, or does not answer yet.
func (n *Node) allThere(cards []Card) error {
	applying := n.intent().Applying
	if applying == nil {
		return nil
	}
	var errs []error
	there := vendorsOf(cards)
	for _, v := range applying.Vendors {
		if !slices.Contains(there, v) {
			errs = append(errs, fmt.Errorf("the node had %s cards when its profile was to be changed, and has none now: is their driver loaded?", v.Title()))
		}
	}
	return join(errs...)
}

// resolve says what a wish comes to on cards as they are. As many partitions as
// possible stay where they are, those that claims hold above all.
func (n *Node) resolve(to v1alpha1.Wish, cards []Card) (map[string]settings.Card, error) {
	all := make([]gpu.GPU, len(cards))
	live, held := map[string][]gpu.Partition{}, map[string][]gpu.Partition{}
	anyHeld := false
	for i := range cards {
		c := &cards[i]
		all[i], live[c.PCIAddress] = c.GPU, c.Live
		held[c.PCIAddress] = slices.DeleteFunc(slices.Clone(c.Live), func(q gpu.Partition) bool { return !c.holds(q) })
		anyHeld = anyHeld || len(held[c.PCIAddress]) > 0
	}
	resolved, err := n.Resolve(to, all, func(card string) []gpu.Partition { return live[card] })
	if err != nil || !anyHeld {
		return resolved, err
	}
	forHolders, err := n.Resolve(to, all, func(card string) []gpu.Partition { return held[card] })
	if err != nil {
		return nil, err
	}
	for card, parts := range held {
		if kept(parts, forHolders[card]) > kept(parts, resolved[card]) {
			resolved[card] = forHolders[card]
		}
	}
	return resolved, nil
}

// holds tells whether a claim holds a partition.
func (c *Card) holds(q gpu.Partition) bool {
	return slices.ContainsFunc(c.Held, func(h Holder) bool { return q.Is(h.Placement) })
}

// kept is how many of the partitions have a place in the card's layout.
func kept(parts []gpu.Partition, card settings.Card) int {
	n := 0
	for _, q := range parts {
		if slices.ContainsFunc(card.Shape.Layout, q.Is) {
			n++
		}
	}
	return n
}

// before is what a wish came to the last time, nil if it is new.
func (n *Node) before(to v1alpha1.Wish, in intent) *followed {
	switch {
	case in.Applying != nil && in.Applying.Wish.Hash == to.Hash:
		return in.Applying
	case in.Applied.Wish.Hash == to.Hash:
		return &in.Applied
	case n.planned.Wish.Hash == to.Hash && n.planned.Shapes != nil:
		return &n.planned
	}
	return nil
}

// sameLayout is the layout from before, if it is of the same partitions as the new
// one and the card still has its places.
func sameLayout(card *gpu.GPU, before, now []gpu.Placement) []gpu.Placement {
	cut := card.WithMIG(gpu.MIGOn)
	for _, p := range before {
		if _, ok := cut.Placement(p.Name()); !ok {
			return now
		}
	}
	if !slices.Equal(profiles(before), profiles(now)) {
		return now
	}
	return before
}

func profiles(placements []gpu.Placement) []string {
	names := make([]string, len(placements))
	for i, p := range placements {
		names[i] = p.Profile
	}
	slices.Sort(names)
	return names
}

// aim sets the shapes that are wanted of cards.
func aim(cards []Card, shapes map[string]settings.Shape) {
	for i := range cards {
		cards[i].To = shapes[cards[i].PCIAddress]
	}
}

// lookAll looks at cards, all at once. Those that did not answer are left out, and
// named by the error.
func (n *Node) lookAll(ctx context.Context, cards []gpu.GPU, held []ledger.Record) ([]Card, error) {
	all, errs := make([]Card, len(cards)), make([]error, len(cards))
	var wg sync.WaitGroup
	for i := range cards {
		wg.Go(func() { all[i], errs[i] = n.look(ctx, cards[i], held) })
	}
	wg.Wait()
	var seen []Card
	for i := range all {
		if errs[i] == nil {
			seen = append(seen, all[i])
		}
	}
	return seen, join(errs...)
}

// look reads how a card is.
func (n *Node) look(ctx context.Context, card gpu.GPU, held []ledger.Record) (Card, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookBudget, fmt.Errorf("the %s for looking at a card are used up", lookBudget))
	defer cancel()
	in := n.intent()
	c := Card{
		GPU: card, Before: in.Before[card.PCIAddress], Ours: in.ours(card.PCIAddress),
		Held: holdersOf(card.PCIAddress, held),
	}
	var err error
	if c.Modes, err = n.Hardware.Modes(ctx, card.PCIAddress); err != nil {
		return c, fmt.Errorf("read how card %s is set: %w", card.Name(), err)
	}
	if c.Live, err = n.Hardware.Live(ctx, card.PCIAddress); err != nil {
		return c, fmt.Errorf("list the partitions of card %s: %w", card.Name(), err)
	}
	return c, nil
}

// holdersOf are those who hold something of a card.
func holdersOf(card string, records []ledger.Record) []Holder {
	var holders []Holder
	for _, r := range records {
		for _, d := range r.Devices {
			if d.Placement.GPU == card && !d.Admin {
				holders = append(holders, Holder{Claim: r.Claim, Device: d.Name, Placement: d.Placement})
			}
		}
	}
	return holders
}

// intent is what the file says. Its maps must not be changed.
func (n *Node) intent() intent {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.now
}

// update changes what the file says, which is written before anybody sees it.
func (n *Node) update(change func(intent) intent) error {
	n.write.Lock()
	defer n.write.Unlock()
	next := change(n.intent())
	if err := writeIntent(n.File, next); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = next
	return nil
}

func addresses(cards []gpu.GPU) []string {
	all := make([]string, len(cards))
	for i := range cards {
		all[i] = cards[i].PCIAddress
	}
	return all
}
