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
	return p.hardware.Problem()
}

// expectSilent handles drivers that cannot be used, or list no GPU: failed says why. It returns
// the problems of their GPUs, by PCI address. Those that the plugin has not seen since it started
// are added with their last devices: claims may hold them.
func (p *plugin) expectSilent(ctx context.Context, failed map[gpu.Vendor]error) map[string]string {
	p.hardware.SetUnlisted(ctx, failed)
	problems, known := map[string]string{}, map[string]bool{}
	isSilent := func(g *gpu.GPU) bool {
		if err := p.hardware.WhyNot(g.Vendor); err != nil {
			problems[g.PCIAddress] = "its driver cannot be used: " + err.Error()
		} else if err := failed[g.Vendor]; err != nil {
			problems[g.PCIAddress] = "its driver lists no GPU: " + err.Error()
		}
		return problems[g.PCIAddress] != ""
	}
	for _, g := range p.gpus.List() {
		known[g.PCIAddress] = true
		isSilent(&g.GPU)
	}
	unseen := slices.DeleteFunc(p.roster.All(), func(g gpu.GPU) bool { return !isSilent(&g) || known[g.PCIAddress] })
	if len(unseen) == 0 {
		return problems
	}
	p.hardware.Expect(unseen)
	p.removeUnoffered(unseen)
	p.sharing.AddShares(ctx, unseen, func(g *gpu.GPU) profile.Desired {
		now, _ := p.sharing.LookUp(g.PCIAddress)
		return now
	})
	p.gpus.Seed(unseen, problems)
	return problems
}
