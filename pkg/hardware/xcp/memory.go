package xcp

const (
	// reserved is what is missing at the end of the GPU's memory in every memory
	// mode: MI300X has 192 GiB and shows 196592 MiB, and only the last partition of
	// an MI308X under NPS4 is smaller than the others.
	reserved = 16 << 20
	// granule is what the size of the GPU is a multiple of with the missing part.
	granule = 1 << 30
	page    = 4 << 10
)

// MemoryOf is the memory of each of n partitions under a memory mode, in bytes.
// The total is mem_info_vram_total. Each region of the memory is divided evenly
// among its partitions, in whole pages (amdgpu's mem_partition.size /
// num_xcp_per_mem_partition); the last region lacks what the GPU reserves.
//
// It is for modes that the GPU is not in: what KFD shows of a live one is the
// truth.
func MemoryOf(total int64, memory MemoryMode, n int) []int64 {
	if n < 1 {
		return nil
	}
	regions := regionsOf(total, memory.Regions())
	shares := make([]int64, n)
	switch r := len(regions); {
	case n%r == 0: // several partitions share a region
		for i := range shares {
			shares[i] = pages(regions[i*r/n] / int64(n/r))
		}
	case r%n == 0: // several regions make a partition
		for i, region := range regions {
			shares[i*n/r] += region
		}
	default:
		for i := range shares {
			shares[i] = pages(total / int64(n))
		}
	}
	return shares
}

// regionsOf divides the memory into regions.
func regionsOf(total int64, n int) []int64 {
	n = max(n, 1)
	regions := make([]int64, n)
	missing := int64(0)
	if (total+reserved)%granule == 0 {
		missing = reserved
	}
	for i := range regions {
		regions[i] = pages((total + missing) / int64(n))
	}
	regions[n-1] -= missing
	return regions
}

func pages(bytes int64) int64 { return bytes / page * page }
