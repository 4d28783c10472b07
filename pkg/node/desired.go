package node

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// share adds their share devices to GPUs that were found. It reports whether the settings of
// sharing have changed.
func (m *monitor) share(ctx context.Context, found []gpu.GPU) (changed bool) {
	m.readDesired(ctx)
	withMPS, load := m.drivers.LoadWithMPS()
	// Whether the kernel driver and MPS limit memory is tried.
	byKernel, needsMPS := map[string]bool{}, false
	for i := range found {
		g := &found[i]
		if want := m.desiredOf(g); m.node.IsManaged() && want.Shared {
			byKernel[g.PCIAddress] = m.claims.limiter.Works(ctx, g) == nil
			needsMPS = needsMPS || g.Vendor == withMPS && (want.Strategy == gpu.MPS || !byKernel[g.PCIAddress])
		}
	}
	limits := m.claims.daemons.Limits(ctx, load, needsMPS)
	if ctx.Err() != nil {
		return false // the plugin is stopping, so the probe of the MPS daemon failed
	}
	return m.sharing.AddShares(ctx, found, func(g *gpu.GPU) profile.Desired {
		want := m.desiredOf(g)
		want.Limits, want.KernelLimits = limits && g.Vendor == withMPS, byKernel[g.PCIAddress]
		return want
	})
}

func (m *monitor) desiredOf(g *gpu.GPU) profile.Desired {
	if c, ok := m.desired[g.PCIAddress]; ok {
		return c
	}
	if now, known := m.sharing.LookUp(g.PCIAddress); known {
		return now
	}
	return profile.Default()
}

func (m *monitor) readDesired(ctx context.Context) {
	sources := profile.Sources{Undecided: m.applied.Undecided(), Current: m.sharing.LookUp}
	sources.Applied, sources.Layouts = m.applied.AppliedLayouts()
	gpus, err := sources.Desired(m.roster.All())
	text := ""
	if err != nil {
		text = err.Error()
	}
	if m.sharing.First("profile", text) && err != nil {
		m.events.Warn(ctx, names.EventProfileDoesNotFit, fmt.Sprintf("The profile of this node no longer fits its GPUs, so the settings of sharing stay as they are: %v", err))
	}
	m.desired = gpus
}
