package node

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// card is what the node knows about one card.
type card struct {
	gpu.GPU
	// problem says what is wrong with the card, empty for a healthy one.
	problem string
	// published tells whether the API server may have seen devices of the
	// card. Those may be allocated, so they are tainted and not withdrawn.
	published bool
}

// cards is the set of cards that the node ever saw in this run of the plugin. A
// card that is lost stays, with a problem, because its devices may be allocated.
type cards struct {
	// mu protects known.
	mu    sync.RWMutex
	known map[string]card
}

// list returns all cards in PCI order.
func (c *cards) list() []card {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := slices.Collect(maps.Values(c.known))
	slices.SortFunc(all, func(a, b card) int {
		if a.PCIAddress < b.PCIAddress {
			return -1
		}
		return 1
	})
	return all
}

// gpus returns the cards without what the node adds to them.
func (c *cards) gpus() []gpu.GPU {
	all := c.list()
	out := make([]gpu.GPU, len(all))
	for i := range all {
		out[i] = all[i].GPU
	}
	return out
}

// update takes in what a look at the hardware found: the cards that answered
// and what is wrong with the others. It tells whether anything changed.
func (c *cards) update(found []gpu.GPU, problems map[string]string) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]card{}
	}
	answered := map[string]bool{}
	for _, g := range found {
		answered[g.PCIAddress] = true
		before, known := c.known[g.PCIAddress]
		now := before
		now.GPU, now.problem = g, ""
		if !known || before.problem != "" || !sameGPU(before.GPU, g) {
			changed = true
		}
		c.known[g.PCIAddress] = now
	}
	for address, before := range c.known {
		if answered[address] {
			continue
		}
		now := before
		now.problem = problems[address]
		if now.problem == "" {
			now.problem = "the driver no longer lists the card"
		}
		changed = changed || now.problem != before.problem
		c.known[address] = now
	}
	return changed
}

// markPublished remembers that devices of a card have been published.
func (c *cards) markPublished(pciAddress string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[pciAddress]; ok {
		known.published = true
		c.known[pciAddress] = known
	}
}

// sameGPU tells whether nothing that is published has changed.
func sameGPU(a, b gpu.GPU) bool {
	samePlacements := slices.EqualFunc(a.Placements, b.Placements, func(x, y gpu.Placement) bool {
		return x.Name() == y.Name() && x.Memory == y.Memory && x.ComputeUnits == y.ComputeUnits &&
			maps.Equal(x.Engines, y.Engines) && maps.Equal(x.Consumes, y.Consumes)
	})
	return samePlacements && a.UUID == b.UUID && a.ProductName == b.ProductName && a.Architecture == b.Architecture &&
		a.DriverVersion == b.DriverVersion && a.PCIeRoot == b.PCIeRoot && ptr.Equal(a.NUMANode, b.NUMANode) &&
		maps.Equal(a.Counters, b.Counters)
}
