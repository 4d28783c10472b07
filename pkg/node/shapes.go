package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/reshape"
)

func (c *Config) profileFile() string { return filepath.Join(c.dataDir(), "profile.json") }

// openRoster reads which cards the node has.
func (p *plugin) openRoster(ctx context.Context) {
	var err error
	if p.roster, err = openRoster(p.rosterFile()); err != nil {
		klog.FromContext(ctx).Error(err, "Rules that count cards count those that answer only")
	}
}

// openProfile reads which profile the node follows.
func (p *plugin) openProfile(ctx context.Context) {
	var err error
	p.profile, err = reshape.New(reshape.Config{
		File:           p.profileFile(),
		Cards:          p.roster.all,
		Lost:           p.roster.lost,
		Hardware:       modes{p.hardware},
		Resolve:        resolve,
		RemovalCommand: p.hardware.RemovalCommand,
		MemoryModes:    p.MemoryModes,
	})
	if err != nil {
		p.events.warn(ctx, "ProfileUnknown", fmt.Sprintf("It is not known any more which profile this node follows, so it follows none until the controller asks again: %v", err))
	}
}

// resolve says what a wish comes to on cards.
func resolve(w v1alpha1.Wish, cards []gpu.GPU, there func(pciAddress string) []gpu.Partition) (map[string]profile.Card, error) {
	s, err := profile.FromRules(w.Profile, w.Rules)
	if err != nil {
		return nil, err
	}
	resolved, problems := s.Resolve(cards, there)
	return resolved, problems
}

// shape takes out of cards that were found what the node's profile does not offer.
// What a claim holds stays, tainted: the scheduler forgets what an allocated device
// consumes as soon as it is not published.
func (p *plugin) shape(found []gpu.GPU) {
	held := p.heldPlacements()
	for i := range found {
		card := &found[i]
		shape := p.profile.Shape(card.PCIAddress)
		card.Placements = slices.DeleteFunc(slices.Clone(card.Placements), func(q gpu.Placement) bool {
			return !shape.Offers(q) && !slices.ContainsFunc(held[card.PCIAddress], func(h gpu.Placement) bool { return h.Base().Name() == q.Name() })
		})
	}
}

// preparable are the GPUs with the devices that claims can be prepared for: those that
// the profile offers, and those that claims hold. Between a change of a GPU and the next
// look at it, p.cards still has what it offered before.
func (p *plugin) preparable() []gpu.GPU {
	cards := p.cards.gpus()
	held := p.heldPlacements()
	for i := range cards {
		card := &cards[i]
		shape := p.profile.Shape(card.PCIAddress)
		card.Placements = slices.DeleteFunc(slices.Clone(card.Placements), func(q gpu.Placement) bool {
			return !shape.Offers(q) && !slices.ContainsFunc(held[card.PCIAddress], func(h gpu.Placement) bool {
				return h.Name() == q.Name() || h.Base().Name() == q.Name()
			})
		})
	}
	return cards
}

// profileSettings are how the cards are shared by the profile that the node follows;
// nil where it follows none, or configuration of the device plugin goes before. Where
// the profile does not fit the cards any more, one was taken out, they stay as they are.
func (p *plugin) profileSettings(ctx context.Context, other *profile.Settings) map[string]profile.Card {
	applied := p.profile.Applied()
	if applied.Profile == "" || applied.Source == v1alpha1.FromDefault && other != nil && other.Profile != "" {
		return nil
	}
	cards, err := p.profile.Settings(p.roster.all())
	text := ""
	if err != nil {
		text = err.Error()
		for address, card := range cards {
			if now, known := p.sharing.lookUp(address); known {
				now.Shape = card.Shape
				cards[address] = now
			}
		}
	}
	if p.sharing.first("profile", text) && err != nil {
		p.events.warn(ctx, "ProfileDoesNotFit", fmt.Sprintf("Profile %s, which this node follows, does not fit its cards any more, so they stay shared as they are: %v", applied.Profile, err))
	}
	return cards
}

// withoutProfile are a node's labels for those who do not ask the controller.
func withoutProfile(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	delete(labels, v1alpha1.ProfileLabel)
	return labels
}

// bootID identifies this boot of the machine, real or simulated; empty if it does not
// tell.
func (c *Config) bootID() string {
	root := "/"
	if c.inventory() != "" {
		root = c.SimulateRoot
	}
	data, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
