package node

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// removeUnoffered removes the devices that the profile does not offer. Held devices stay, with
// a taint: the scheduler ignores what an allocated device consumes once it is not published.
func (b *base) removeUnoffered(gpus []gpu.GPU) {
	held := ledger.Held(b.records.List())
	for i := range gpus {
		g := &gpus[i]
		layout := b.applied.Layout(g.PCIAddress)
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
// b.gpus still has the previous devices.
func (b *base) preparable() []gpu.GPU {
	gpus := b.gpus.Now()
	b.removeUnoffered(gpus)
	return gpus
}
