package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile/layout"
	"github.com/tranche-dev/tranche/pkg/profile/strict"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Resolve is what holds for each card of a node, by its PCI address: the first rule
// that selects the card, otherwise the defaults. What the card's vendor does not
// have is left out. The partitions that are there now on a card, if there is a
// function that tells, are kept as far as the profile lets them.
//
// Cards that cannot be read should be among them as they were last known:
// otherwise a rule that counts cards goes over to others.
//
// An error tells everything that does not fit: rule, cards, and what would fit.
func (s *Profile) Resolve(cards []gpu.GPU, there func(pciAddress string) []gpu.Partition) (map[string]Desired, error) {
	cards = slices.Clone(cards)
	gpu.SortCards(cards)
	r := resolver{there: there, told: map[problem][]string{}}
	if r.there == nil {
		r.there = func(string) []gpu.Partition { return nil }
	}
	selected := r.choose(s.rules, cards)
	memory := r.memoryMode(cards, selected)
	resolved := make(map[string]Desired, len(cards))
	for i := range cards {
		resolved[cards[i].PCIAddress] = r.card(&cards[i], selected[i], memory)
	}
	if err := r.err(cmp.Or(s.Profile, "no profile")); err != nil {
		return nil, err
	}
	return resolved, nil
}

// resolver collects what does not fit.
type resolver struct {
	there func(pciAddress string) []gpu.Partition
	// told has the names of the cards of each problem, in PCI order, and order the
	// problems as they were found.
	told  map[problem][]string
	order []problem
}

type problem struct{ path, text string }

// add notes what does not fit at a card, or at none. Cards with the same problem are
// told together.
func (r *resolver) add(path string, card *gpu.GPU, format string, args ...any) {
	p := problem{path, fmt.Sprintf(format, args...)}
	if _, known := r.told[p]; !known {
		r.order = append(r.order, p)
		r.told[p] = nil
	}
	if card != nil {
		r.told[p] = append(r.told[p], card.Name())
	}
}

// mostCards is how many cards are named for one problem.
const mostCards = 4

func (r *resolver) err(profile string) error {
	problems := strict.NewProblems(profile)
	for _, p := range r.order {
		problem := p.text
		switch cards := r.told[p]; {
		case len(cards) == 1:
			problem = "card " + cards[0] + ": " + problem
		case len(cards) > 1:
			problem = "cards " + text.List(cards, mostCards) + ": " + problem
		}
		problems.Add(p.path, "%s", problem)
	}
	return problems.Err()
}

// choose finds the rule of each card, nil for the defaults.
func (r *resolver) choose(rules []rule, cards []gpu.GPU) []*rule {
	selected := make([]*rule, len(cards))
	for i := range rules {
		rule := &rules[i]
		taken := 0
		for j := range cards {
			if full := rule.cards.count > 0 && taken == rule.cards.count; !full && selected[j] == nil && rule.cards.selects(&cards[j]) {
				selected[j] = rule
				taken++
			}
		}
		if taken < rule.cards.count {
			r.add(strict.Key(strict.Key(rule.path, "cards"), "count"), nil,
				"is %d, and the node has %d cards that fit and that no earlier rule takes", rule.cards.count, taken)
		}
	}
	return selected
}

// memoryMode is the memory mode that all AMD cards of the node are to have, with the
// rule that says so; empty where none does.
func (r *resolver) memoryMode(cards []gpu.GPU, selected []*rule) memoryWish {
	var wish memoryWish
	for i := range cards {
		rule := selected[i]
		if cards[i].Vendor != gpu.AMD || rule == nil || rule.amd == nil || rule.amd.MemoryPartition == "" {
			continue
		}
		path := strict.Key(strict.Key(rule.path, "amd"), "memoryPartition")
		switch {
		case wish.mode == "":
			wish = memoryWish{mode: rule.amd.MemoryPartition, path: path}
		case wish.mode != rule.amd.MemoryPartition && wish.path != path:
			r.add(path, nil, "is %s, and %s is %s: all AMD cards of a node share the memory mode", rule.amd.MemoryPartition, wish.path, wish.mode)
		}
	}
	return wish
}

type memoryWish struct{ mode, path string }

// card is what holds for one card.
func (r *resolver) card(card *gpu.GPU, rule *rule, memory memoryWish) Desired {
	resolved := Default()
	if rule != nil {
		resolved = fit(rule.card, card.Vendor)
	}
	switch card.Vendor {
	case gpu.NVIDIA:
		if rule != nil && rule.mig != nil {
			resolved.Shape = r.mig(card, strict.Key(rule.path, "mig"), rule.mig)
		}
	case gpu.AMD:
		resolved.Shape = r.amd(card, rule, memory)
	}
	if rule != nil {
		r.legacy(card, strict.Key(rule.path, "legacyResource"), resolved)
	}
	return resolved
}

// mig is how an NVIDIA card is cut.
func (r *resolver) mig(card *gpu.GPU, path string, m *v1alpha1.MIG) Shape {
	var s Shape
	capable := len(layout.Profiles(card)) > 0
	restricted := m.Mode == v1alpha1.MIGStatic || m.Profiles != nil || m.WholeCards != nil && !*m.WholeCards
	switch {
	case !capable && restricted:
		r.add(path, card, "%s cannot be cut by MIG: put a rule for it before this one, or select other cards", cmp.Or(card.ProductName, "it"))
	case !capable:
	case m.Mode == v1alpha1.MIGDisabled:
		s.Cut = CutOff
	case m.Mode == v1alpha1.MIGStatic:
		s.Cut = CutStatic
		s.Layout = r.layout(card, strict.Key(path, "partitions"), m.Partitions)
	default:
		s.Named = true
		s.NoWhole = m.WholeCards != nil && !*m.WholeCards
		s.Profiles = r.profiles(card, strict.Key(path, "profiles"), m.Profiles)
	}
	return s
}

// profiles are the full names of profiles of a card, in its order.
func (r *resolver) profiles(card *gpu.GPU, path string, names []string) []string {
	var full []string
	for i, name := range names {
		profile, err := layout.Profile(card, name)
		if err != nil {
			r.add(strict.Index(path, i), card, "%s", withoutCard(card, err))
			continue
		}
		full = append(full, profile)
	}
	all := layout.Profiles(card)
	slices.SortFunc(full, func(a, b string) int { return cmp.Compare(slices.Index(all, a), slices.Index(all, b)) })
	return slices.Compact(full)
}

func (r *resolver) layout(card *gpu.GPU, path string, partitions []v1alpha1.StaticPartition) []gpu.Placement {
	parts := make([]layout.Part, len(partitions))
	for i, p := range partitions {
		parts[i] = layout.Part{Profile: p.Profile}
		if p.Count != nil {
			parts[i].Count = int(*p.Count)
		}
	}
	found, err := layout.Solve(card, parts, r.there(card.PCIAddress))
	if err != nil {
		r.add(path, card, "%s", withoutCard(card, err))
	}
	return found
}

// withoutCard is an error without the card's name at its beginning.
func withoutCard(card *gpu.GPU, err error) string {
	return strings.TrimPrefix(err.Error(), "card "+card.Name()+": ")
}

// amd is how an AMD card is cut. The memory mode holds for all cards of the node.
func (r *resolver) amd(card *gpu.GPU, rule *rule, memory memoryWish) Shape {
	var wanted v1alpha1.AMD
	path := ""
	if rule != nil && rule.amd != nil {
		wanted, path = *rule.amd, strict.Key(rule.path, "amd")
	}
	compute := strict.Key(path, "computePartition")
	if len(card.Modes) == 0 {
		switch {
		case wanted.ComputePartition != "" && wanted.ComputePartition != wholeMode:
			r.add(compute, card, "is %s, and %s cannot be cut", wanted.ComputePartition, cmp.Or(card.ProductName, "it"))
		case wanted.MemoryPartition != "":
			r.add(strict.Key(path, "memoryPartition"), card, "is %s, and %s has no memory modes", wanted.MemoryPartition, cmp.Or(card.ProductName, "it"))
		}
		return Shape{}
	}
	s := Shape{Compute: wanted.ComputePartition, Memory: memory.mode}
	mode := cmp.Or(s.Memory, card.MemoryMode)
	legal, has := card.Modes[mode]
	switch {
	case !has && wanted.MemoryPartition == s.Memory:
		r.add(memory.path, card, "is %s, which the card does not have; it has %s", s.Memory, strings.Join(slices.Sorted(maps.Keys(card.Modes)), ", "))
	case !has:
		r.add(memory.path, card, "is %s, all AMD cards of a node share the memory mode, and this one has %s", s.Memory, strings.Join(slices.Sorted(maps.Keys(card.Modes)), ", "))
	case s.Compute != "" && !slices.Contains(legal, s.Compute):
		r.add(compute, card, "is %s, which does not go with memory mode %s; %s", s.Compute, mode, instead(card, s.Compute, legal))
	}
	return s
}

// instead says what would go: other compute modes, or other memory modes.
func instead(card *gpu.GPU, compute string, legal []string) string {
	text := strings.Join(legal, ", ") + " do"
	if len(legal) == 1 {
		text = legal[0] + " does"
	}
	var memory []string
	for _, m := range slices.Sorted(maps.Keys(card.Modes)) {
		if slices.Contains(card.Modes[m], compute) {
			memory = append(memory, m)
		}
	}
	if len(memory) == 0 {
		return text + ", and the card has no " + compute
	}
	return text + ", or set memoryPartition to " + strings.Join(memory, " or ")
}

// legacy refuses an old resource name that stands for what the card does not offer.
func (r *resolver) legacy(card *gpu.GPU, path string, resolved Desired) {
	switch resolved.Legacy.Kind {
	case LegacyReplica:
		if !resolved.Shape.Offers(gpu.Placement{Type: gpu.TypeGPU}) {
			r.add(path, card, "is %s, a share of the whole card, which the rule does not offer", LegacyReplica)
		}
	case LegacyPartition:
		has := false
		for _, p := range card.WithMIG(gpu.MIGOn).Placements {
			if p.Type != gpu.TypeGPU && p.Profile == resolved.Legacy.Profile {
				if resolved.Shape.Offers(p) {
					return
				}
				has = true
			}
		}
		if has {
			r.add(path, card, "is %s, which the rule does not offer", resolved.Legacy.Profile)
		}
	}
}
