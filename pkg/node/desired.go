package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// share adds their share devices to GPUs that were found. It tells whether the settings of
// sharing have changed.
func (p *plugin) share(ctx context.Context, found []gpu.GPU) (changed bool) {
	p.readDesired(ctx)
	withMPS, load := p.hardware.LoadWithMPS()
	// Whether MPS works is tried with a daemon.
	shared := p.node.IsManaged() && slices.ContainsFunc(found, func(g gpu.GPU) bool {
		return g.Vendor == withMPS && p.desiredOf(&g).Shared
	})
	limits := p.daemons.Limits(ctx, load, shared)
	if ctx.Err() != nil {
		return false // the plugin is stopping, so the probe of the MPS daemon failed
	}
	return p.sharing.AddShares(ctx, found, func(g *gpu.GPU) profile.Desired {
		want := p.desiredOf(g)
		want.Limits = limits && g.Vendor == withMPS
		return want
	})
}

// desiredOf returns the desired state of one GPU.
func (p *plugin) desiredOf(g *gpu.GPU) profile.Desired {
	if c, ok := p.desired[g.PCIAddress]; ok {
		return c
	}
	if now, known := p.sharing.LookUp(g.PCIAddress); known {
		return now
	}
	return profile.Default()
}

// readDesired computes the desired state of all GPUs.
func (p *plugin) readDesired(ctx context.Context) {
	sources := profile.Sources{Undecided: p.follow.Undecided(), Current: p.sharing.LookUp}
	sources.Applied, sources.Layouts = p.profile.AppliedLayouts()
	gpus, err := sources.Desired(p.roster.All())
	text := ""
	if err != nil {
		text = err.Error()
	}
	if p.sharing.First("profile", text) && err != nil {
		p.events.Warn(ctx, names.EventProfileDoesNotFit, fmt.Sprintf("The profile of this node no longer fits its GPUs, so the settings of sharing stay as they are: %v", err))
	}
	p.desired = gpus
}
