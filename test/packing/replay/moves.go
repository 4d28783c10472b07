package replay

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const (
	// mostMoves is how many pods move for one claim, as by default of the chart.
	mostMoves = 2
	// movedShare is how many pods move in all, as a share of the claims that have arrived.
	movedShare = 0.01
	// mostPlans is how many plans are tried for one claim.
	mostPlans = 10
)

// moves makes room for large claims that wait: pods with smaller partitions move if the claim then
// fits and the policy has another place for each of them. A pod that moves keeps the end of its
// life.
type moves struct {
	on *placed
	// arrived counts the claims that have arrived since the replay began, moved the pods that
	// have moved.
	arrived, moved int
}

// plan is a node where a claim fits without some pods.
type plan struct {
	node int
	candidate
}

// candidate is a set of pods that may move.
type candidate struct {
	pods []*fleet.Claim
	// memory is what they hold, in GPUs.
	memory float64
}

func (o candidate) with(c *fleet.Claim) candidate {
	return candidate{append(slices.Clip(o.pods), c), o.memory + c.GPUs()}
}

// compare puts fewer pods first, then those that hold less.
func (o candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(len(o.pods), len(other.pods)), cmp.Compare(o.memory, other.memory))
}

// place makes room for a large claim on one of the nodes from first to before last, and places it.
func (m *moves) place(c *fleet.Claim, first, last int) bool {
	left := int(movedShare*float64(m.arrived)) - m.moved
	if c.Kind < workload.FirstLarge || left < 1 {
		return false
	}
	var plans []plan
	for i := first; i < last; i++ {
		if o, found := without(&m.on.Nodes[i], c, min(left, mostMoves)); found {
			plans = append(plans, plan{i, o})
		}
	}
	slices.SortStableFunc(plans, func(a, b plan) int { return a.compare(b.candidate) })
	return slices.ContainsFunc(plans[:min(len(plans), mostPlans)], func(p plan) bool { return m.perform(c, p) })
}

// without finds the fewest pods without which a claim fits on a node.
func without(n *fleet.Node, c *fleet.Claim, most int) (all candidate, found bool) {
	k, missing := min(c.Kind, workload.WholeGPU), workload.Kinds[c.Kind].Count
	for _, s := range n.GPUs {
		if s.First[k] >= 0 {
			missing--
		}
	}
	// If none are missing, the claim waits for CPUs or memory. These are not what moves are for.
	if missing < 1 || missing > most {
		return candidate{}, false
	}
	var candidates []candidate
	for g, s := range n.GPUs {
		if s.First[k] < 0 {
			if o := fewestPods(n, g, c.Kind); o.pods != nil {
				candidates = append(candidates, o)
			}
		}
	}
	if len(candidates) < missing {
		return candidate{}, false
	}
	slices.SortStableFunc(candidates, candidate.compare)
	cpu, memory := n.CPU+c.CPU, n.Memory+c.Memory
	for _, o := range candidates[:missing] {
		for _, pod := range o.pods {
			all = all.with(pod)
			cpu, memory = cpu-pod.CPU, memory-pod.Memory
		}
	}
	return all, len(all.pods) <= most && cpu <= fleet.NodeCPU && memory <= fleet.NodeMemory
}

// fewestPods finds one or two pods, each smaller than a kind, without which a device for this kind
// fits on a GPU where it does not fit now. It returns no pods if there are none.
func fewestPods(n *fleet.Node, g, kind int) (best candidate) {
	k := min(kind, workload.WholeGPU)
	consider := func(o candidate) {
		if best.pods == nil || o.compare(best) < 0 {
			best = o
		}
	}
	smaller := func(c *fleet.Claim) bool { return c.Kind < kind && c.Place.GPUs == 1<<g }
	for i, a := range n.Claims {
		if !smaller(a) {
			continue
		}
		one, without := candidate{}.with(a), n.GPUs[g].After[a.Place.Device]
		if without.First[k] >= 0 {
			consider(one)
			continue
		}
		for _, b := range n.Claims[i+1:] {
			if smaller(b) && without.After[b.Place.Device].First[k] >= 0 {
				consider(one.with(b))
			}
		}
	}
	return best
}

// perform moves the pods of a plan and places the claim, or does nothing if one of the pods has
// no other place.
func (m *moves) perform(c *fleet.Claim, p plan) bool {
	changes := m.on.Changes
	from := make([]fleet.Place, len(p.pods))
	for i, pod := range p.pods {
		from[i] = pod.Place
		m.on.Release(pod)
	}
	at, found := m.on.Nodes[p.node].First(c.Kind, fleet.AllGPUs)
	if !found {
		panic("a plan does not make room")
	}
	at.Node = p.node
	m.on.Hold(c, at)
	for i, pod := range p.pods {
		if m.on.place(pod) {
			continue
		}
		for _, moved := range p.pods[:i] {
			m.on.Release(moved)
		}
		m.on.Release(c)
		for j, back := range p.pods {
			m.on.Hold(back, from[j])
		}
		m.on.Changes = changes
		return false
	}
	m.moved += len(p.pods)
	return true
}
