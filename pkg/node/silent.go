package node

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// expectSilent handles drivers that cannot be used, or list no GPU: failed says why. It returns
// the problems of their GPUs, by PCI address. GPUs that do not answer and that the plugin has not seen
// since it started, which may be lost, are added with their last devices: claims may hold them.
func (m *monitor) expectSilent(ctx context.Context, failed map[gpu.Vendor]error) map[string]gpu.Problem {
	m.drivers.SetUnlisted(ctx, failed)
	problems, known := map[string]gpu.Problem{}, map[string]bool{}
	find := func(g *gpu.GPU) {
		if err := m.drivers.WhyNot(g.Vendor); err != nil {
			problems[g.PCIAddress] = gpu.Problem{Cause: gpu.CauseDriver, Message: "its driver cannot be used: " + err.Error()}
		} else if err := failed[g.Vendor]; err != nil {
			problems[g.PCIAddress] = gpu.Problem{Cause: gpu.CauseDriver, Message: "its driver lists no GPU: " + err.Error()}
		}
	}
	for _, g := range m.gpus.List() {
		known[g.PCIAddress] = true
		find(&g.GPU)
	}
	unseen := lists.Filter(m.roster.Silent(), func(g gpu.GPU) bool { return !known[g.PCIAddress] })
	if len(unseen) == 0 {
		return problems
	}
	for i := range unseen {
		find(&unseen[i])
	}
	m.drivers.Expect(unseen)
	m.removeUnoffered(unseen)
	m.sharing.AddShares(ctx, unseen, func(g *gpu.GPU) profile.Desired {
		now, _ := m.sharing.LookUp(g.PCIAddress)
		return now
	})
	m.gpus.Seed(unseen, problems)
	return problems
}
