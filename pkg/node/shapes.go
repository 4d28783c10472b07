package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/drivers"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func (c *Config) profileFile() string { return filepath.Join(c.DataDir(), "profile.json") }

// openRoster reads which GPUs the node has.
func (p *plugin) openRoster(ctx context.Context) {
	var err error
	if p.roster, err = inventory.OpenRoster(p.rosterFile()); err != nil {
		klog.FromContext(ctx).Error(err, "Rules that count GPUs count those that answer only")
	}
}

// openProfile reads which profile the node follows.
func (p *plugin) openProfile(ctx context.Context) {
	var err error
	p.profile, err = partition.New(partition.Config{
		File:           p.profileFile(),
		GPUs:           p.roster.All,
		Lost:           p.roster.Lost,
		Hardware:       drivers.Modes{Set: p.hardware},
		Resolve:        profile.Resolve,
		RemovalCommand: p.hardware.RemovalCommand,
		MemoryModes:    p.MemoryModes,
	})
	if err != nil {
		p.events.Warn(ctx, v1alpha1.EventProfileUnknown, fmt.Sprintf("It is not known any more which profile this node follows, so it follows none until the controller asks again: %v", err))
	}
}

// shape takes out of GPUs that were found what the node's profile does not offer.
// What a claim holds stays, tainted: the scheduler forgets what an allocated device
// consumes as soon as it is not published.
func (p *plugin) shape(found []gpu.GPU) {
	held := p.heldPlacements()
	for i := range found {
		g := &found[i]
		layout := p.profile.Layout(g.PCIAddress)
		g.Placements = slices.DeleteFunc(slices.Clone(g.Placements), func(q gpu.Placement) bool {
			return !layout.Offers(q) && !slices.ContainsFunc(held[g.PCIAddress], func(h gpu.Placement) bool { return h.Base().Name() == q.Name() })
		})
	}
}

// preparable are the GPUs with the devices that claims can be prepared for: those that
// the profile offers, and those that claims hold. Between a change of a GPU and the next
// look at it, p.gpus still has what it offered before.
func (p *plugin) preparable() []gpu.GPU {
	gpus := p.gpus.Now()
	held := p.heldPlacements()
	for i := range gpus {
		g := &gpus[i]
		layout := p.profile.Layout(g.PCIAddress)
		g.Placements = slices.DeleteFunc(slices.Clone(g.Placements), func(q gpu.Placement) bool {
			return !layout.Offers(q) && !slices.ContainsFunc(held[g.PCIAddress], func(h gpu.Placement) bool {
				return h.Name() == q.Name() || h.Base().Name() == q.Name()
			})
		})
	}
	return gpus
}
