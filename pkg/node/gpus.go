package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpuState is what the node knows about one GPU.
type gpuState struct {
	gpu.GPU
	// problem says what is wrong with the GPU, empty for a healthy one.
	problem string
	// wellLooks counts the looks in a row at which nothing was wrong any more.
	wellLooks int
	// gone are the placements that claims hold and that the GPU does not have
	// any more, with the reason, by device name.
	gone map[string]gonePlacement
	// removed are devices that claims hold, that the GPU still offers, and that
	// somebody else took away: a partition was destroyed, or a mode changed.
	removed map[string]gonePlacement
	// published tells whether the API server may have seen devices of the
	// GPU. Those may be allocated, so they are tainted and not withdrawn.
	published bool
}

// gonePlacement is what a claim holds of a GPU that has changed since: a reload
// of its driver may bring up another memory mode, in which other partitions are
// legal. It stays published, tainted, until the claim is released.
type gonePlacement struct {
	gpu.Placement
	reason string
}

// unhealthy tells whether nothing new may be put on the GPU. That is so, too,
// while a claim holds what is gone: its container may start again with device
// nodes that are another partition's now.
func (c *gpuState) unhealthy() bool { return c.problem != "" || len(c.lacks()) > 0 }

// lacks are all devices that claims hold and the GPU does not have.
func (c *gpuState) lacks() map[string]gonePlacement {
	all := maps.Clone(c.gone)
	if all == nil {
		all = map[string]gonePlacement{}
	}
	maps.Copy(all, c.removed)
	return all
}

// offer is the GPU as it is published: with what is gone and still held.
func (c *gpuState) offer() gpu.GPU {
	g := c.GPU
	g.Placements = slices.Clone(g.Placements)
	for _, name := range slices.Sorted(maps.Keys(c.gone)) {
		p := c.gone[name].Placement
		p.Consumes = within(p.Consumes, g.Counters)
		g.Placements = append(g.Placements, p)
	}
	return g
}

// within is what a placement takes of the counters that there are now. Nothing
// else is allocated beside it, but the API wants that the numbers make sense.
func within(consumes, has gpu.Counters) gpu.Counters {
	out := gpu.Counters{}
	for name, n := range consumes {
		if total, ok := has[name]; ok {
			out[name] = min(n, total)
		}
	}
	if len(out) == 0 {
		return maps.Clone(has)
	}
	return out
}

// goneOf lists what claims hold of a GPU and the GPU does not have.
func goneOf(g *gpu.GPU, held []gpu.Placement) map[string]gonePlacement {
	var gone map[string]gonePlacement
	for _, p := range held {
		if _, ok := g.Placement(p.Name()); ok {
			continue
		}
		reason := "the GPU's mode or driver has changed, and it does not have it any more"
		if g.MemoryMode != "" {
			reason = "the GPU's memory mode is now " + g.MemoryMode + ", in which it does not have it"
		}
		if gone == nil {
			gone = map[string]gonePlacement{}
		}
		gone[p.Name()] = gonePlacement{Placement: p, reason: reason}
	}
	return gone
}

// gpus is the set of GPUs that the node ever saw in this run of the plugin. A
// GPU that is lost stays, with a problem, because its devices may be allocated.
type gpus struct {
	// mu protects known.
	mu    sync.RWMutex
	known map[string]gpuState
}

// list returns all GPUs in PCI order.
func (c *gpus) list() []gpuState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := slices.Collect(maps.Values(c.known))
	slices.SortFunc(all, func(a, b gpuState) int {
		if a.PCIAddress < b.PCIAddress {
			return -1
		}
		return 1
	})
	return all
}

// gpus returns the GPUs as they are now, for claims to be prepared: without
// what the node adds to them, and without what is gone.
func (c *gpus) gpus() []gpu.GPU {
	all := c.list()
	out := make([]gpu.GPU, len(all))
	for i := range all {
		out[i] = all[i].GPU
	}
	return out
}

// seed takes in GPUs as they were before the plugin started, with what is wrong with
// them now.
func (c *gpus) seed(before []gpu.GPU, problems map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]gpuState{}
	}
	for _, g := range before {
		c.known[g.PCIAddress] = gpuState{GPU: g, problem: problems[g.PCIAddress]}
	}
}

// recoveredLooks is how often in a row a GPU must look well before it is given
// out again. A GPU that is dying answers now and then.
const recoveredLooks = 3

// change is a GPU that got a problem, or got rid of it; or a single device of it
// that is gone while a claim holds it, or is released.
type change struct{ pciAddress, device, problem string }

// update takes in what a look at the hardware found: the GPUs that answered,
// and what is wrong with these or others. held is what claims hold, by GPU. It
// returns the GPUs whose health has changed, and tells whether there is anything
// to publish.
func (c *gpus) update(found []gpu.GPU, problems map[string]string, held map[string][]gpu.Placement) (changes []change, publish bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]gpuState{}
	}
	answered := map[string]bool{}
	for _, g := range found {
		answered[g.PCIAddress] = true
		before, known := c.known[g.PCIAddress]
		now := before
		now.GPU = g
		now.gone = goneOf(&g, held[g.PCIAddress])
		now.setProblem(problems[g.PCIAddress], !known)
		publish = publish || !known || !sameGPU(before.GPU, g) || !sameGone(before.gone, now.gone)
		c.known[g.PCIAddress] = now
		changes = append(changes, changeOf(before, now)...)
	}
	for address, before := range c.known {
		if answered[address] {
			continue
		}
		now := before
		now.setProblem(cmp.Or(problems[address], "the driver no longer lists the GPU"), false)
		c.known[address] = now
		changes = append(changes, changeOf(before, now)...)
	}
	return changes, publish || len(changes) > 0
}

// trouble takes in an error that the driver has just told of. It returns the
// GPU if it was well before.
func (c *gpus) trouble(pciAddress, problem string) []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.known[pciAddress]
	if !ok {
		return nil
	}
	now := before
	now.setProblem(problem, false)
	c.known[pciAddress] = now
	return changeOf(before, now)
}

// setProblem believes in a problem at once, and in its end when it has seen it
// several times.
func (c *gpuState) setProblem(problem string, isNew bool) {
	if problem != "" || isNew || c.problem == "" {
		c.problem, c.wellLooks = problem, 0
		return
	}
	c.wellLooks++
	if c.wellLooks >= recoveredLooks {
		c.problem, c.wellLooks = "", 0
	}
}

func changeOf(before, now gpuState) []change {
	var changes []change
	if before.problem != now.problem {
		changes = append(changes, change{pciAddress: now.PCIAddress, problem: now.problem})
	}
	lacked, lacks := before.lacks(), now.lacks()
	for name, p := range lacks {
		if lacked[name].reason != p.reason {
			changes = append(changes, change{pciAddress: now.PCIAddress, device: name, problem: p.reason})
		}
	}
	for name := range lacked {
		if _, still := lacks[name]; !still {
			changes = append(changes, change{pciAddress: now.PCIAddress, device: name})
		}
	}
	return changes
}

// setRemoved takes in which devices of a GPU claims hold although somebody else took
// them away. It returns those for which this has changed.
func (c *gpus) setRemoved(pciAddress string, missing []ledger.Device) []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.known[pciAddress]
	if !ok {
		return nil
	}
	now := before
	now.removed = nil
	for _, d := range missing {
		if _, gone := now.gone[d.Name]; gone {
			continue // its mode is gone, too
		}
		if now.removed == nil {
			now.removed = map[string]gonePlacement{}
		}
		reason := "somebody other than Tranche has removed the partition"
		if base := d.Placement.Base(); base.Type == gpu.TypeGPU || base.Type.FollowsMode() {
			reason = "somebody other than Tranche has changed how the GPU is partitioned"
		}
		now.removed[d.Name] = gonePlacement{Placement: d.Placement, reason: reason}
	}
	c.known[pciAddress] = now
	return changeOf(before, now)
}

func sameGone(a, b map[string]gonePlacement) bool {
	return maps.EqualFunc(a, b, func(x, y gonePlacement) bool { return x.reason == y.reason })
}

// markPublished remembers that devices of a GPU have been published.
func (c *gpus) markPublished(pciAddress string) {
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
		return x.Name() == y.Name() && x.Memory == y.Memory && x.ComputeUnits == y.ComputeUnits && ptr.Equal(x.Share, y.Share) &&
			maps.Equal(x.Engines, y.Engines) && maps.Equal(x.Consumes, y.Consumes)
	})
	return samePlacements && a.UUID == b.UUID && a.ProductName == b.ProductName && a.Architecture == b.Architecture &&
		a.DriverVersion == b.DriverVersion && a.MemoryMode == b.MemoryMode && a.PCIeRoot == b.PCIeRoot && ptr.Equal(a.NUMANode, b.NUMANode) &&
		maps.Equal(a.Counters, b.Counters)
}
