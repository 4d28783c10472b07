package main

import (
	"cmp"
	"slices"
)

const (
	// mostMoves is how many pods move for one claim.
	mostMoves = 2
	// movedShare is how many pods move in all, as a share of the claims that have arrived.
	movedShare = 0.01
	// mostPlans is how many plans are tried for one claim.
	mostPlans = 10
)

// moves makes room for large claims that wait: pods with small partitions move if the claim then
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

// candidate is a set of pods with small partitions.
type candidate struct {
	pods []*claim
	// memory is what they hold, in GPUs.
	memory float64
}

func (o candidate) with(c *claim) candidate {
	return candidate{append(slices.Clip(o.pods), c), o.memory + kinds[c.kind].gpus()}
}

// compare puts fewer pods first, then those that hold less.
func (o candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(len(o.pods), len(other.pods)), cmp.Compare(o.memory, other.memory))
}

// place makes room for a large claim on one of the nodes from first to before last, and places it.
func (m *moves) place(c *claim, first, last int) bool {
	left := int(movedShare*float64(m.arrived)) - m.moved
	if c.kind < firstLarge || left < 1 {
		return false
	}
	var plans []plan
	for i := first; i < last; i++ {
		if o, found := m.on.nodes[i].without(c, min(left, mostMoves)); found {
			plans = append(plans, plan{i, o})
		}
	}
	slices.SortStableFunc(plans, func(a, b plan) int { return a.compare(b.candidate) })
	return slices.ContainsFunc(plans[:min(len(plans), mostPlans)], func(p plan) bool { return m.perform(c, p) })
}

// without finds the fewest pods without which a claim fits on a node.
func (n *node) without(c *claim, most int) (all candidate, found bool) {
	k, missing := min(c.kind, wholeGPU), kinds[c.kind].count
	for _, s := range n.gpus {
		if s.first[k] >= 0 {
			missing--
		}
	}
	// If none are missing, the claim waits for CPUs or memory. These are not what moves are for.
	if missing < 1 || missing > most {
		return candidate{}, false
	}
	var candidates []candidate
	for g, s := range n.gpus {
		if s.first[k] < 0 {
			if o := n.fewest(g, k); o.pods != nil {
				candidates = append(candidates, o)
			}
		}
	}
	if len(candidates) < missing {
		return candidate{}, false
	}
	slices.SortStableFunc(candidates, candidate.compare)
	cpu, memory := n.cpu+c.cpu, n.memory+c.memory
	for _, o := range candidates[:missing] {
		for _, pod := range o.pods {
			all = all.with(pod)
			cpu, memory = cpu-pod.cpu, memory-pod.memory
		}
	}
	return all, len(all.pods) <= most && cpu <= nodeCPU && memory <= nodeMemory
}

// fewest finds one or two pods without which a kind fits on a GPU where it does not fit now. It
// returns no pods if there are none.
func (n *node) fewest(g, k int) (best candidate) {
	consider := func(o candidate) {
		if best.pods == nil || o.compare(best) < 0 {
			best = o
		}
	}
	small := func(c *claim) bool { return c.kind < firstLarge && c.at.gpus == 1<<g }
	for i, a := range n.claims {
		if !small(a) {
			continue
		}
		one, without := candidate{}.with(a), n.gpus[g].after[a.at.device]
		if without.first[k] >= 0 {
			consider(one)
			continue
		}
		for _, b := range n.claims[i+1:] {
			if small(b) && without.after[b.at.device].first[k] >= 0 {
				consider(one.with(b))
			}
		}
	}
	return best
}

// perform moves the pods of a plan and places the claim, or does nothing if one of the pods has
// no other place.
func (m *moves) perform(c *claim, p plan) bool {
	changes := m.on.changes
	from := make([]place, len(p.pods))
	for i, pod := range p.pods {
		from[i] = pod.at
		m.on.release(pod)
	}
	at, found := m.on.nodes[p.node].first(c.kind, allGPUs)
	if !found {
		panic("a plan does not make room")
	}
	at.node = p.node
	m.on.hold(c, at)
	for i, pod := range p.pods {
		if m.on.place(pod) {
			continue
		}
		for _, moved := range p.pods[:i] {
			m.on.release(moved)
		}
		m.on.release(c)
		for j, back := range p.pods {
			m.on.hold(back, from[j])
		}
		m.on.changes = changes
		return false
	}
	m.moved += len(p.pods)
	return true
}
