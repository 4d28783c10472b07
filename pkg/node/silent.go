package node

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// ready says why the plugin is not ready: the kubelet has not registered it, or it
// serves the kubelet without a driver that it should have.
func (p *plugin) ready() error {
	if err := p.registration.Ready(); err != nil {
		return err
	}
	return p.drivers.Problem()
}

// expectSilent publishes the GPUs that were here before and whose driver cannot be
// used, as they were, with what is wrong: claims may hold them.
func (p *plugin) expectSilent(ctx context.Context) {
	silent := slices.DeleteFunc(p.roster.All(), func(g gpu.GPU) bool { return p.hardware.WhyNot(g.Vendor) == nil })
	if len(silent) == 0 {
		return
	}
	p.seed(ctx, silent, p.driverProblems())
}

// seed takes in GPUs as they were before the plugin started, offered and shared as they
// were then, with what is wrong with them now.
func (p *plugin) seed(ctx context.Context, before []gpu.GPU, problems map[string]string) {
	p.hardware.Expect(before)
	p.shape(before)
	p.sharing.AddShares(ctx, before, func(g *gpu.GPU) profile.Desired {
		now, _ := p.sharing.LookUp(g.PCIAddress)
		return now
	})
	p.gpus.Seed(before, problems)
}

// driverProblems is what is wrong with the known GPUs whose driver cannot be used.
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
	for _, c := range p.gpus.List() {
		note(&c.GPU)
	}
	return problems
}
