package publisher

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// heldOn names the devices of a GPU that claims hold, including those with admin access.
func (p *Publisher) heldOn(pciAddress string) []string {
	return lists.Map(p.Ledger.DevicesOn(pciAddress), func(d ledger.Device) string { return d.Name })
}

// holdsBack reports whether a GPU must not be published because of what claims hold without admin
// access. The caller holds the lock.
func (p *Publisher) holdsBack(pciAddress string) bool {
	return slices.ContainsFunc(p.Ledger.DevicesOn(pciAddress), func(d ledger.Device) bool {
		// Without counters, the whole GPU would be allocated although a partition is held. The
		// scheduler does not count held shares that are not published any more.
		return !d.Admin && (p.wholeOnly && d.Placement.Type != gpu.TypeGPU || p.noShares && d.IsShare())
	})
}
