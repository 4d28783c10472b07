package node

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// ready says why the plugin is not ready, nil if it is: the kubelet has not registered it, or
// an expected driver cannot be used.
func (p *plugin) ready() error {
	if err := p.registration.Ready(); err != nil {
		return err
	}
	return p.drivers.Problem()
}

// expectSilent adds the known GPUs whose driver cannot be used, with their last devices and the
// problem: claims may hold them.
func (p *plugin) expectSilent(ctx context.Context) {
	silent := slices.DeleteFunc(p.roster.All(), func(g gpu.GPU) bool { return p.hardware.WhyNot(g.Vendor) == nil })
	if len(silent) == 0 {
		return
	}
	p.seed(ctx, silent, p.driverProblems())
}

// seed adds GPUs as they were before the plugin started, with the same devices and shares, and
// their current problems.
func (p *plugin) seed(ctx context.Context, before []gpu.GPU, problems map[string]string) {
	p.hardware.Expect(before)
	p.removeUnoffered(before)
	p.sharing.AddShares(ctx, before, func(g *gpu.GPU) profile.Desired {
		now, _ := p.sharing.LookUp(g.PCIAddress)
		return now
	})
	p.gpus.Seed(before, problems)
}

// driverProblems returns the problems of the known GPUs whose driver cannot be used, by PCI
// address.
func (p *plugin) driverProblems() map[string]string {
	problems := map[string]string{}
	note := func(g *gpu.GPU) {
		if err := p.hardware.WhyNot(g.Vendor); err != nil {
			problems[g.PCIAddress] = "its driver cannot be used: " + err.Error()
		}
	}
	for _, g := range p.roster.All() {
		note(&g)
	}
	for _, g := range p.gpus.List() {
		note(&g.GPU)
	}
	return problems
}
