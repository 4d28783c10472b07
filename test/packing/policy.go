package main

// policy is one way to place claims.
type policy struct {
	name, meaning string
	// ascending has the devices of a profile published by ascending starts.
	ascending bool
	// moves has pods with small partitions moved for large claims that wait.
	moves bool
	// placer makes the policy for a workload. It is nil for the bound.
	placer func(w workload) placer
}

// policies are all that are compared. Some keep a number of GPUs per node for whole GPUs.
func policies(reserve int) []policy {
	always := func(p placer) func(workload) placer { return func(workload) placer { return p } }
	scheduler := func(s scorer) func(workload) placer { return always(scheduled(s)) }
	return []policy{
		{name: "default", meaning: "default scoring, the plugin's order of devices", placer: scheduler(leastAllocated)},
		{name: "default+moves", meaning: "default, and moves", moves: true, placer: scheduler(leastAllocated)},
		{name: "ascending", meaning: "default scoring, devices by ascending starts", ascending: true, placer: scheduler(leastAllocated)},
		{name: "most-allocated", meaning: "a scheduler profile with MostAllocated on cpu and memory", placer: scheduler(mostAllocated)},
		{name: "most-allocated+moves", meaning: "most-allocated, and moves", moves: true, placer: scheduler(mostAllocated)},
		{name: "pod-affinity", meaning: "default scoring; pods prefer nodes with other such pods", placer: scheduler(podAffinity)},
		{name: "pod-affinity+moves", meaning: "pod-affinity, and moves", moves: true, placer: scheduler(podAffinity)},
		{name: "reserved-gpus", meaning: "default, and some GPUs of each node have no partitions while others have room", placer: always(reserved(leastAllocated, lastGPUs(reserve)))},
		{name: "reserved-nodes", meaning: "default, and some nodes have no partitions while others have room", placer: always(reserved(leastAllocated, someNodes(reserve)))},
		{name: "fgd", meaning: "the node, GPU and position with the least fragmentation afterwards", placer: fgd},
		{name: "best-fit", meaning: "the node, GPU and position that keep the most large placements", placer: func(workload) placer { return bestFit() }},
		{name: "bound", meaning: "a claim waits only if the slices of all GPUs together are not enough"},
	}
}

// placed is a fleet with a policy.
type placed struct {
	*fleet
	placer     placer
	popularity []float64
}

func (p *placed) place(c *claim) bool {
	at, found := p.placer(p.fleet, c)
	if found {
		p.hold(c, at)
	}
	return found
}

func (p *placed) fits(released *claim) uint { return p.nodes[released.at.node].kinds }

func (p *placed) sample(all bool) sample {
	s := sample{used: float64(p.used), usedNodes: float64(p.usedNodes), held: p.held, changes: p.changes}
	if all {
		s.pinched = p.fragments(p.popularity)
	}
	return s
}
