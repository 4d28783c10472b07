package policy

import (
	"math/rand/v2"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// scorer gives the nodes on which a pod fits their scores.
type scorer func(f *fleet.Fleet, feasible []int, c *fleet.Claim) []int64

// scheduler places claims as kube-scheduler does: it looks at the nodes in turn until enough
// have room, and takes one of those with the highest score. The allocator chooses the devices.
//
// Read in kubernetes v1.37.1, pkg/scheduler: schedule_one.go and framework/plugins/noderesources,
// interpodaffinity. Plugins that give all nodes of such a fleet the same score are left out.
type scheduler struct {
	score  scorer
	random *rand.Rand
	// next is the node where it begins to look.
	next int
}

func newScheduler(score scorer, seed uint64) *scheduler {
	return &scheduler{score: score, random: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // the same each time
}

func scheduled(score scorer) func(workload.Workload, uint64) Placer {
	return func(_ workload.Workload, seed uint64) Placer {
		s := newScheduler(score, seed)
		return func(f *fleet.Fleet, c *fleet.Claim) (fleet.Place, bool) { return s.place(f, c, everywhere) }
	}
}

// area has a bit for each GPU of a node that a claim may get.
type area func(node int) uint

func everywhere(int) uint { return fleet.AllGPUs }

// place places a claim in a part of the fleet.
func (s *scheduler) place(f *fleet.Fleet, c *fleet.Claim, in area) (fleet.Place, bool) {
	feasible := s.feasible(f, c, in)
	if len(feasible) == 0 {
		return fleet.Place{}, false
	}
	scores := s.score(f, feasible, c)
	best, ties := 0, 0
	for i, score := range scores {
		switch {
		case i == 0 || score > scores[best]:
			best, ties = i, 1
		case score == scores[best]:
			// Each of those with the same score has the same chance.
			if ties++; s.random.IntN(ties) == 0 {
				best = i
			}
		}
	}
	p, found := f.Nodes[feasible[best]].First(c.Kind, in(feasible[best]))
	p.Node = feasible[best]
	return p, found
}

// feasible are the nodes that the scheduler compares.
func (s *scheduler) feasible(f *fleet.Fleet, c *fleet.Claim, in area) (found []int) {
	limit := nodesToFind(len(f.Nodes))
	looked := 0
	for ; looked < len(f.Nodes) && len(found) < limit; looked++ {
		i := (s.next + looked) % len(f.Nodes)
		n, among := &f.Nodes[i], in(i)
		if !n.Feasible(c) {
			continue
		}
		if _, fits := n.First(c.Kind, among); among == fleet.AllGPUs || fits {
			found = append(found, i)
		}
	}
	s.next = (s.next + looked) % len(f.Nodes)
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
func leastAllocated(f *fleet.Fleet, feasible []int, c *fleet.Claim) []int64 {
	return each(f, feasible, func(n *fleet.Node) int64 {
		cpu, memory := (fleet.NodeCPU-n.CPU-c.CPU)*100/fleet.NodeCPU, (fleet.NodeMemory-n.Memory-c.Memory)*100/fleet.NodeMemory
		return (cpu+memory)/2 + balance(n, c)
	})
}

// mostAllocated is the chart's profile: NodeResourcesFit with MostAllocated on cpu and memory,
// without NodeResourcesBalancedAllocation.
func mostAllocated(f *fleet.Fleet, feasible []int, c *fleet.Claim) []int64 {
	return each(f, feasible, func(n *fleet.Node) int64 {
		return ((n.CPU+c.CPU)*100/fleet.NodeCPU + (n.Memory+c.Memory)*100/fleet.NodeMemory) / 2
	})
}

// podAffinity is default scoring for pods that prefer, with weight 100, nodes with other such
// pods. InterPodAffinity has weight 2.
func podAffinity(f *fleet.Fleet, feasible []int, c *fleet.Claim) []int64 {
	pods := func(i int) int { return len(f.Nodes[i].Claims) }
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

// usedGPUs prefers nodes by the number of GPUs in use alone. No plugin of kube-scheduler does.
func usedGPUs(f *fleet.Fleet, feasible []int, _ *fleet.Claim) []int64 {
	return each(f, feasible, func(n *fleet.Node) int64 { return int64(workload.GPUsPerNode - n.Empty) })
}

func each(f *fleet.Fleet, feasible []int, score func(*fleet.Node) int64) []int64 {
	scores := make([]int64, len(feasible))
	for j, i := range feasible {
		scores[j] = score(&f.Nodes[i])
	}
	return scores
}

// balance is the score of NodeResourcesBalancedAllocation: by how much the pod brings the shares
// of CPU and memory that are requested closer to each other.
func balance(n *fleet.Node, c *fleet.Claim) int64 {
	score := func(cpu, memory int64) int64 {
		apart := float64(cpu)/fleet.NodeCPU - float64(memory)/fleet.NodeMemory
		if apart < 0 {
			apart = -apart
		}
		return int64((1 - apart/2) * 100)
	}
	return 50 + (50+score(n.CPU+c.CPU, n.Memory+c.Memory)-score(n.CPU, n.Memory))/2
}
