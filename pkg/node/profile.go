package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/partition"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func (c *Config) profileFile() string { return filepath.Join(c.DataDir(), "profile.json") }

// openRoster reads which GPUs the node has.
func (p *plugin) openRoster(ctx context.Context) {
	var err error
	if p.roster, err = inventory.OpenRoster(p.rosterFile()); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the list of the node's GPUs; profiles count only GPUs that answer")
	}
}

// openProfile reads the applied profile of the node.
func (p *plugin) openProfile(ctx context.Context) {
	var err error
	p.profile, err = partition.New(partition.Config{
		File:           p.profileFile(),
		GPUs:           p.roster.All,
		Lost:           p.roster.Lost,
		Driver:         p.hardware.Of,
		Resolve:        profile.Resolve,
		RemovalCommand: p.removalCommand,
		MemoryModes:    p.MemoryModes,
	})
	if err != nil {
		p.events.Warn(ctx, names.EventProfileUnknown, fmt.Sprintf("The applied profile of this node cannot be read, so the node has none until the controller applies it again: %v", err))
	}
}

// removeUnoffered removes the devices that the profile does not offer. Held devices stay, with
// a taint: the scheduler ignores what an allocated device consumes once it is not published.
func (p *plugin) removeUnoffered(gpus []gpu.GPU) {
	held := p.heldPlacements()
	for i := range gpus {
		g := &gpus[i]
		layout := p.profile.Layout(g.PCIAddress)
		g.Placements = slices.DeleteFunc(slices.Clone(g.Placements), func(q gpu.Placement) bool {
			// A share is held itself; so is the partition or GPU that it is a share of.
			return !layout.Offers(q) && !slices.ContainsFunc(held[g.PCIAddress], func(h gpu.Placement) bool {
				return h.Name() == q.Name() || h.Base().Name() == q.Name()
			})
		})
	}
}

// preparable returns the GPUs with the devices that claims can be prepared for: those that the
// profile offers, and those that claims hold. Between a change of a GPU and the next check,
// p.gpus still has the previous devices.
func (p *plugin) preparable() []gpu.GPU {
	gpus := p.gpus.Now()
	p.removeUnoffered(gpus)
	return gpus
}
