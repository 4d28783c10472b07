package inventory

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// GPU is what the plugin knows about one GPU.
type GPU struct {
	gpu.GPU
	// Problem is what is wrong with the GPU. It is empty for a healthy one.
	Problem gpu.Problem
	// healthyChecks counts the successful checks in a row since the problem.
	healthyChecks int
	// gone has, by name, the devices that claims hold and the GPU no longer offers.
	gone map[string]Gone
	// removed has, by name, the devices that claims hold, that the GPU still offers, and
	// that somebody else removed: a partition was destroyed, or a mode changed.
	removed map[string]Gone
	// Published: devices of the GPU may be in the API server. They may be allocated, so
	// they are tainted and not withdrawn.
	Published bool
}

// Gone is a device that a claim holds and that no longer exists. For example, the driver was
// reloaded in another memory mode. The device stays published, with a taint, until the claim
// is released.
type Gone struct {
	gpu.Placement
	Reason string
}

// Unhealthy reports whether the GPU must not be used for new claims. That includes a GPU of
// which a claim holds a device that is gone: the claim's container may restart with device
// nodes that belong to another partition now.
func (g *GPU) Unhealthy() bool { return g.Problem.Message != "" || len(g.Lacks()) > 0 }

// Cause says in a word why the GPU is unhealthy.
func (g *GPU) Cause() gpu.Cause {
	if g.Problem.Message != "" {
		return cmp.Or(g.Problem.Cause, gpu.CauseCheck)
	}
	return gpu.CauseHeldDevice
}

// Lacks returns all devices that claims hold and the GPU does not have. That the GPU does not
// offer a device explains why it does not have it.
func (g *GPU) Lacks() map[string]Gone {
	all := map[string]Gone{}
	maps.Copy(all, g.removed)
	maps.Copy(all, g.gone)
	return all
}

// Offer returns the GPU as it is published: with devices that are gone and still held.
func (g *GPU) Offer() gpu.GPU {
	offered := g.GPU
	offered.Placements = slices.Clone(offered.Placements)
	for _, name := range slices.Sorted(maps.Keys(g.gone)) {
		p := g.gone[name].Placement
		p.Consumes = within(p.Consumes, offered.Counters)
		offered.Placements = append(offered.Placements, p)
	}
	return offered
}

// within limits what a placement consumes to the GPU's current counters, because the API
// refuses more. The GPU is tainted, so nothing else is allocated beside it.
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

// GPUs is the set of all GPUs that were found since the plugin started. A lost GPU stays in
// it, with a problem, because its devices may be allocated.
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

// Now returns the GPUs as the hardware has them, without devices that are gone.
func (c *GPUs) Now() []gpu.GPU {
	all := c.List()
	return lists.Map(all, func(g GPU) gpu.GPU { return g.GPU })
}

// Seed adds GPUs as they were before the plugin started, with their current problems.
func (c *GPUs) Seed(before []gpu.GPU, problems map[string]gpu.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]GPU{}
	}
	for _, g := range before {
		c.known[g.PCIAddress] = GPU{GPU: g, Problem: problems[g.PCIAddress]}
	}
}

// Remove removes GPUs that were taken out of the machine.
func (c *GPUs) Remove(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, address := range addresses {
		delete(c.known, address)
	}
}

// HealthyChecks is how many checks in a row must succeed until a GPU is healthy again. A
// failing GPU answers now and then.
const HealthyChecks = 3

// Change is a change of a GPU's health. With a Device, it is that of a device that is gone
// while a claim holds it. An empty Problem means that the problem is over.
type Change struct{ PCIAddress, Device, Problem string }

// Update records the result of a check: the GPUs that answered, and the problems of these
// and other GPUs. held has the devices that claims hold, by GPU. Update returns the changes
// of health, and whether the ResourceSlices must be published again.
func (c *GPUs) Update(found []gpu.GPU, problems map[string]gpu.Problem, held map[string][]gpu.Placement) (changes []Change, publish bool) {
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
		now.setProblem(problems[g.PCIAddress])
		publish = publish || !known || !sameGPU(before.GPU, g) || !sameGone(before.gone, now.gone)
		c.known[g.PCIAddress] = now
		changes = append(changes, changeOf(before, now)...)
	}
	for address, before := range c.known {
		if answered[address] {
			continue
		}
		now := before
		now.setProblem(cmp.Or(problems[address], gpu.Problem{Cause: gpu.CauseLost, Message: "the driver no longer lists the GPU"}))
		c.known[address] = now
		changes = append(changes, changeOf(before, now)...)
	}
	return changes, publish || len(changes) > 0
}

// change changes one GPU, if it is known, and returns the changes of its health.
func (c *GPUs) change(pciAddress string, change func(*GPU)) []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.known[pciAddress]
	if !ok {
		return nil
	}
	now := before
	change(&now)
	c.known[pciAddress] = now
	return changeOf(before, now)
}

// Trouble records a problem that the driver has just reported.
func (c *GPUs) Trouble(pciAddress string, problem gpu.Problem) []Change {
	return c.change(pciAddress, func(g *GPU) { g.setProblem(problem) })
}

// setProblem sets a problem at once, and clears it after several healthy checks.
func (g *GPU) setProblem(problem gpu.Problem) {
	none := gpu.Problem{}
	if problem != none || g.Problem == none {
		g.Problem, g.healthyChecks = problem, 0
		return
	}
	g.healthyChecks++
	if g.healthyChecks >= HealthyChecks {
		g.Problem, g.healthyChecks = none, 0
	}
}

func changeOf(before, now GPU) []Change {
	var changes []Change
	if before.Problem != now.Problem {
		changes = append(changes, Change{PCIAddress: now.PCIAddress, Problem: now.Problem.Message})
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

// SetRemoved records the devices of a GPU that claims hold and somebody else removed.
func (c *GPUs) SetRemoved(pciAddress string, missing []ledger.Device) []Change {
	return c.change(pciAddress, func(g *GPU) {
		g.removed = map[string]Gone{}
		for _, d := range missing {
			if _, gone := g.gone[d.Name]; gone {
				continue // the GPU does not offer it any more
			}
			reason := "somebody other than Tranche has removed the partition"
			if base := d.Placement.Base(); base.Type == gpu.TypeGPU || base.Type.FollowsMode() {
				reason = "somebody other than Tranche has changed how the GPU is partitioned"
			}
			g.removed[d.Name] = Gone{Placement: d.Placement, Reason: reason}
		}
	})
}

func sameGone(a, b map[string]Gone) bool {
	return maps.EqualFunc(a, b, func(x, y Gone) bool { return x.Reason == y.Reason })
}

// MarkPublished records that devices of a GPU have been published.
func (c *GPUs) MarkPublished(pciAddress string) {
	c.change(pciAddress, func(g *GPU) { g.Published = true })
}

// sameGPU compares what is published of a GPU.
func sameGPU(a, b gpu.GPU) bool {
	samePlacements := slices.EqualFunc(a.Placements, b.Placements, func(x, y gpu.Placement) bool {
		return x.Name() == y.Name() && x.Memory == y.Memory && x.ComputeUnits == y.ComputeUnits && ptr.Equal(x.Share, y.Share) &&
			maps.Equal(x.Engines, y.Engines) && maps.Equal(x.Consumes, y.Consumes)
	})
	return samePlacements && a.UUID == b.UUID && a.ProductName == b.ProductName && a.Architecture == b.Architecture &&
		a.DriverVersion == b.DriverVersion && a.CUDAComputeCapability == b.CUDAComputeCapability && a.CUDADriverVersion == b.CUDADriverVersion &&
		a.Partitionable == b.Partitionable && a.MemoryMode == b.MemoryMode && a.PCIeRoot == b.PCIeRoot && ptr.Equal(a.NUMANode, b.NUMANode) &&
		maps.Equal(a.Counters, b.Counters)
}

// Adopt marks the GPUs that an earlier run of the plugin has published.
func (c *GPUs) Adopt(node string, published []resourceapi.ResourceSlice) {
	withDevices := map[string]bool{}
	for _, s := range published {
		if s.Spec.Pool.Name != names.PoolName(node) {
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
