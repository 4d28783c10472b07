package node

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// expectSilent handles drivers that cannot be used, or list no GPU: failed says why. It returns
// the problems of their GPUs, by PCI address. Those that the plugin has not seen since it started
// are added with their last devices: claims may hold them.
func (m *monitor) expectSilent(ctx context.Context, failed map[gpu.Vendor]error) map[string]gpu.Problem {
	m.drivers.SetUnlisted(ctx, failed)
	problems, known := map[string]gpu.Problem{}, map[string]bool{}
	isSilent := func(g *gpu.GPU) bool {
		if err := m.drivers.WhyNot(g.Vendor); err != nil {
			problems[g.PCIAddress] = gpu.Problem{Cause: gpu.CauseDriver, Message: "its driver cannot be used: " + err.Error()}
		} else if err := failed[g.Vendor]; err != nil {
			problems[g.PCIAddress] = gpu.Problem{Cause: gpu.CauseDriver, Message: "its driver lists no GPU: " + err.Error()}
		}
		return problems[g.PCIAddress].Message != ""
	}
	for _, g := range m.gpus.List() {
		known[g.PCIAddress] = true
		isSilent(&g.GPU)
	}
	unseen := slices.DeleteFunc(m.roster.All(), func(g gpu.GPU) bool { return !isSilent(&g) || known[g.PCIAddress] })
	if len(unseen) == 0 {
		return problems
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
