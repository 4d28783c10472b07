package fleet

import "github.com/tranche-dev/tranche/test/packing/workload"

// Fragmentation is the memory that is free and no use to the claims of a workload, in GPUs: the
// fragmentation of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
// Fragmentation Gradient Descent", USENIX ATC 2023, section 3, with MIG's positions. For each
// kind, weighted by its share of the arrivals, it counts the free memory of the GPUs that no
// claim of the kind can use, or all that is free on a node where no such claim fits.
func (f *Fleet) Fragmentation(popularity []float64) (sum float64) {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		for _, s := range n.GPUs {
			sum += s.Fragmentation(popularity)
		}
		sum += n.Fragmentation(popularity)
	}
	return sum
}

// Fragmentation is the part of the sum that follows from a GPU alone.
func (s *State) Fragmentation(popularity []float64) (sum float64) {
	fit := s.kinds()
	for k, share := range popularity {
		if k < workload.WholeGPU && fit&(1<<k) == 0 || k >= workload.WholeGPU && s.Held != 0 {
			sum += share * float64(s.Free) / workload.MemorySlices
		}
	}
	return sum
}

// Fragmentation is the number of empty GPUs that claims for several cannot use.
func (n *Node) Fragmentation(popularity []float64) (sum float64) {
	for k := workload.WholeGPU; k < len(workload.Kinds); k++ {
		if n.Empty < workload.Kinds[k].Count {
			sum += popularity[k] * float64(n.Empty)
		}
	}
	return sum
}
