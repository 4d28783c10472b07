package workload

import "fmt"

// Kind is what a claim asks for: one partition of a profile, or whole GPUs.
type Kind struct {
	// Profile is empty for whole GPUs.
	Profile string
	// Count is the number of devices.
	Count int
	// Compute and Memory are the slices of one device: of ComputeSlices and of MemorySlices.
	Compute, Memory int
}

const (
	// ComputeSlices is the number of compute slices of an H100.
	ComputeSlices = 7
	// MemorySlices is the number of its memory slices.
	MemorySlices = 8
	// GPUsPerNode is the number of GPUs of every node.
	GPUsPerNode = 8
)

// Kinds are those that occur, by size. The partitions are profiles of an H100 with 80 GB.
var Kinds = [...]Kind{
	{"1g.10gb", 1, 1, 1},
	{"1g.20gb", 1, 1, 2},
	{"2g.20gb", 1, 2, 2},
	{"3g.40gb", 1, 3, 4},
	{"4g.40gb", 1, 4, 4},
	{"", 1, ComputeSlices, MemorySlices},
	{"", 2, ComputeSlices, MemorySlices},
	{"", 4, ComputeSlices, MemorySlices},
	{"", 8, ComputeSlices, MemorySlices},
}

// Some of the kinds, as indices of Kinds.
const (
	// FirstLarge is the first kind that counts as large: 3g.40gb.
	FirstLarge = 3
	// WholeGPU is one whole GPU. All kinds before it are partitions, all after it are several GPUs.
	WholeGPU = 5
)

func (k Kind) String() string {
	switch {
	case k.Profile != "":
		return k.Profile
	case k.Count == 1:
		return "GPU"
	}
	return fmt.Sprintf("%d GPUs", k.Count)
}

// GPUs is the GPU memory that a claim holds, in GPUs.
func (k Kind) GPUs() float64 { return float64(k.Count*k.Memory) / MemorySlices }

// kindByName returns the kind with a name.
func kindByName(name string) (int, error) {
	for i, k := range Kinds {
		if k.String() == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("there is no kind %q", name)
}
