package inventory

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// GPU is what the node knows about one GPU.
type GPU struct {
	gpu.GPU
	// Problem says what is wrong with the GPU, empty for a healthy one.
	Problem string
	// wellLooks counts the looks in a row at which nothing was wrong any more.
	wellLooks int
	// gone are the placements that claims hold and that the GPU does not have
	// any more, with the reason, by device name.
	gone map[string]Gone
	// removed are devices that claims hold, that the GPU still offers, and that
	// somebody else took away: a partition was destroyed, or a mode changed.
	removed map[string]Gone
	// Published tells whether the API server may have seen devices of the
	// GPU. Those may be allocated, so they are tainted and not withdrawn.
	Published bool
}

// Gone is what a claim holds of a GPU that has changed since: a reload
// of its driver may bring up another memory mode, in which other partitions are
// legal. It stays published, tainted, until the claim is released.
type Gone struct {
	gpu.Placement
	Reason string
}

// Unhealthy tells whether nothing new may be put on the GPU. That is so, too,
// while a claim holds what is gone: its container may start again with device
// nodes that are another partition's now.
func (c *GPU) Unhealthy() bool { return c.Problem != "" || len(c.Lacks()) > 0 }

// Lacks are all devices that claims hold and the GPU does not have.
func (c *GPU) Lacks() map[string]Gone {
	all := maps.Clone(c.gone)
	if all == nil {
		all = map[string]Gone{}
	}
	maps.Copy(all, c.removed)
	return all
}

// Offer is the GPU as it is published: with what is gone and still held.
func (c *GPU) Offer() gpu.GPU {
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
func goneOf(g *gpu.GPU, held []gpu.Placement) map[string]Gone {
	var gone map[string]Gone
	for _, p := range held {
		if _, ok := g.Placement(p.Name()); ok {
			continue
		}
		reason := "the GPU's mode or driver has changed, and it does not have it any more"
		if g.MemoryMode != "" {
			reason = "the GPU's memory mode is now " + g.MemoryMode + ", in which it does not have it"
		}
		if gone == nil {
			gone = map[string]Gone{}
		}
		gone[p.Name()] = Gone{Placement: p, Reason: reason}
	}
	return gone
}

// GPUs is the set of GPUs that the node ever saw in this run of the plugin. A
// GPU that is lost stays, with a problem, because its devices may be allocated.
type GPUs struct {
	// mu protects known.
	mu    sync.RWMutex
	known map[string]GPU
}

// List returns all GPUs in PCI order.
func (c *GPUs) List() []GPU {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := slices.Collect(maps.Values(c.known))
	slices.SortFunc(all, func(a, b GPU) int {
		if a.PCIAddress < b.PCIAddress {
			return -1
		}
		return 1
	})
	return all
}

// Now returns the GPUs as they are now, for claims to be prepared: without
// what the node adds to them, and without what is gone.
func (c *GPUs) Now() []gpu.GPU {
	all := c.List()
	out := make([]gpu.GPU, len(all))
	for i := range all {
		out[i] = all[i].GPU
	}
	return out
}

// Seed takes in GPUs as they were before the plugin started, with what is wrong with
// them now.
func (c *GPUs) Seed(before []gpu.GPU, problems map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]GPU{}
	}
	for _, g := range before {
		c.known[g.PCIAddress] = GPU{GPU: g, Problem: problems[g.PCIAddress]}
	}
}

// RecoveredLooks is how often in a row a GPU must look well before it is given
// out again. A GPU that is dying answers now and then.
const RecoveredLooks = 3

// Change is a GPU that got a problem, or got rid of it; or a single device of it
// that is gone while a claim holds it, or is released.
type Change struct{ PCIAddress, Device, Problem string }

// Update takes in what a look at the hardware found: the GPUs that answered,
// and what is wrong with these or others. held is what claims hold, by GPU. It
// returns the GPUs whose health has changed, and tells whether there is anything
// to publish.
func (c *GPUs) Update(found []gpu.GPU, problems map[string]string, held map[string][]gpu.Placement) (changes []Change, publish bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]GPU{}
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

// Trouble takes in an error that the driver has just told of. It returns the
// GPU if it was well before.
func (c *GPUs) Trouble(pciAddress, problem string) []Change {
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
func (c *GPU) setProblem(problem string, isNew bool) {
	if problem != "" || isNew || c.Problem == "" {
		c.Problem, c.wellLooks = problem, 0
		return
	}
	c.wellLooks++
	if c.wellLooks >= RecoveredLooks {
		c.Problem, c.wellLooks = "", 0
	}
}

func changeOf(before, now GPU) []Change {
	var changes []Change
	if before.Problem != now.Problem {
		changes = append(changes, Change{PCIAddress: now.PCIAddress, Problem: now.Problem})
	}
	lacked, lacks := before.Lacks(), now.Lacks()
	for name, p := range lacks {
		if lacked[name].Reason != p.Reason {
			changes = append(changes, Change{PCIAddress: now.PCIAddress, Device: name, Problem: p.Reason})
		}
	}
	for name := range lacked {
		if _, still := lacks[name]; !still {
			changes = append(changes, Change{PCIAddress: now.PCIAddress, Device: name})
		}
	}
	return changes
}

// SetRemoved takes in which devices of a GPU claims hold although somebody else took
// them away. It returns those for which this has changed.
func (c *GPUs) SetRemoved(pciAddress string, missing []ledger.Device) []Change {
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
			now.removed = map[string]Gone{}
		}
		reason := "somebody other than Tranche has removed the partition"
		if base := d.Placement.Base(); base.Type == gpu.TypeGPU || base.Type.FollowsMode() {
			reason = "somebody other than Tranche has changed how the GPU is partitioned"
		}
		now.removed[d.Name] = Gone{Placement: d.Placement, Reason: reason}
	}
	c.known[pciAddress] = now
	return changeOf(before, now)
}

func sameGone(a, b map[string]Gone) bool {
	return maps.EqualFunc(a, b, func(x, y Gone) bool { return x.Reason == y.Reason })
}

// MarkPublished remembers that devices of a GPU have been published.
func (c *GPUs) MarkPublished(pciAddress string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[pciAddress]; ok {
		known.Published = true
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

// Adopt remembers which GPUs an earlier run of the plugin has published.
func (c *GPUs) Adopt(node string, published []resourceapi.ResourceSlice) {
	withDevices := map[string]bool{}
	for _, s := range published {
		if gpu.NodeOfPool(s.Spec.Pool.Name) != node {
			continue
		}
		for _, d := range s.Spec.Devices {
			withDevices[gpu.OfDevice(d.Name)] = true
		}
	}
	for _, known := range c.List() {
		if withDevices[known.Name()] {
			c.MarkPublished(known.PCIAddress)
		}
	}
}
