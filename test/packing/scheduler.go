package main

// scorer gives the nodes on which a pod fits their scores.
type scorer func(f *fleet, feasible []int, c *claim) []int64

// scheduled places claims as kube-scheduler does: it looks at the nodes in turn until enough
// have room, and takes one of those with the highest score. The allocator chooses the devices.
//
// Read in kubernetes v1.37.1, pkg/scheduler: schedule_one.go and framework/plugins/noderesources,
// interpodaffinity. Plugins that give all nodes of such a fleet the same score are left out.
func scheduled(score scorer) placer {
	in := scheduledIn(score)
	return func(f *fleet, c *claim) (place, bool) { return in(f, c, everywhere) }
}

// area has a bit for each GPU of a node that a claim may get.
type area func(node int) uint

const allGPUs = 1<<gpusPerNode - 1

func everywhere(int) uint { return allGPUs }

// scheduledIn is scheduled in a part of the fleet.
func scheduledIn(score scorer) func(*fleet, *claim, area) (place, bool) {
	return func(f *fleet, c *claim, in area) (place, bool) {
		feasible := f.feasible(c, in)
		if len(feasible) == 0 {
			return place{}, false
		}
		scores := score(f, feasible, c)
		best, ties := 0, 0
		for i, s := range scores {
			switch {
			case i == 0 || s > scores[best]:
				best, ties = i, 1
			case s == scores[best]:
				// Each of those with the same score has the same chance.
				if ties++; f.random.IntN(ties) == 0 {
					best = i
				}
			}
		}
		p, found := f.nodes[feasible[best]].first(c.kind, in(feasible[best]))
		p.node = feasible[best]
		return p, found
	}
}

// feasible are the nodes that the scheduler compares.
func (f *fleet) feasible(c *claim, in area) (found []int) {
	limit := nodesToFind(len(f.nodes))
	looked := 0
	for ; looked < len(f.nodes) && len(found) < limit; looked++ {
		i := (f.next + looked) % len(f.nodes)
		n, among := &f.nodes[i], in(i)
		if !n.feasible(c) {
			continue
		}
		if _, fits := n.first(c.kind, among); among == allGPUs || fits {
			found = append(found, i)
		}
	}
	f.next = (f.next + looked) % len(f.nodes)
	return found
}

// nodesToFind is how many nodes with room the scheduler looks for in a cluster of a size
// (numFeasibleNodesToFind).
func nodesToFind(nodes int) int {
	const least, leastPercent = 100, 5
	if nodes < least {
		return nodes
	}
	return max(least, nodes*max(leastPercent, 50-nodes/125)/100)
}

// leastAllocated is default scoring: NodeResourcesFit with LeastAllocated, and
// NodeResourcesBalancedAllocation.
func leastAllocated(f *fleet, feasible []int, c *claim) []int64 {
	return each(f, feasible, func(n *node) int64 {
		return ((nodeCPU-n.cpu-c.cpu)*100/nodeCPU+(nodeMemory-n.memory-c.memory)*100/nodeMemory)/2 + n.balance(c)
	})
}

// mostAllocated is NodeResourcesFit with MostAllocated on cpu and memory.
func mostAllocated(f *fleet, feasible []int, c *claim) []int64 {
	return each(f, feasible, func(n *node) int64 {
		return ((n.cpu+c.cpu)*100/nodeCPU+(n.memory+c.memory)*100/nodeMemory)/2 + n.balance(c)
	})
}

// podAffinity is default scoring for pods that prefer, with weight 100, nodes with other such
// pods. InterPodAffinity has weight 2.
func podAffinity(f *fleet, feasible []int, c *claim) []int64 {
	pods := func(i int) int { return len(f.nodes[i].claims) }
	fewest, most := pods(feasible[0]), 0
	for _, i := range feasible {
		fewest, most = min(fewest, pods(i)), max(most, pods(i))
	}
	scores := leastAllocated(f, feasible, c)
	for j, i := range feasible {
		if most > fewest {
			scores[j] += 2 * int64(100*float64(pods(i)-fewest)/float64(most-fewest))
		}
	}
	return scores
}

func each(f *fleet, feasible []int, score func(*node) int64) []int64 {
	scores := make([]int64, len(feasible))
	for j, i := range feasible {
		scores[j] = score(&f.nodes[i])
	}
	return scores
}

// balance is the score of NodeResourcesBalancedAllocation: by how much the pod brings the shares
// of CPU and memory that are requested closer to each other.
func (n *node) balance(c *claim) int64 {
	score := func(cpu, memory int64) int64 {
		apart := float64(cpu)/nodeCPU - float64(memory)/nodeMemory
		if apart < 0 {
			apart = -apart
		}
		return int64((1 - apart/2) * 100)
	}
	return 50 + (50+score(n.cpu+c.cpu, n.memory+c.memory)-score(n.cpu, n.memory))/2
}
