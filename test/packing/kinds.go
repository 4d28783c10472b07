package main

import "fmt"

// kind is what a claim asks for: one partition of a profile, or whole GPUs.
type kind struct {
	// profile is empty for whole GPUs.
	profile string
	count   int
	// compute and memory are the slices of one device: of 7 and of 8.
	compute, memory int
}

const (
	computeSlices = 7
	memorySlices  = 8
	gpusPerNode   = 8
	// mostKinds is room for all kinds.
	mostKinds = 16
)

// kinds are those that occur, by size. The partitions are profiles of an H100 with 80 GB.
var kinds = []kind{
	{"1g.10gb", 1, 1, 1},
	{"1g.20gb", 1, 1, 2},
	{"2g.20gb", 1, 2, 2},
	{"3g.40gb", 1, 3, 4},
	{"4g.40gb", 1, 4, 4},
	{"", 1, computeSlices, memorySlices},
	{"", 2, computeSlices, memorySlices},
	{"", 4, computeSlices, memorySlices},
	{"", 8, computeSlices, memorySlices},
}

const (
	// partitions is how many of the kinds are partitions. The next is one whole GPU.
	partitions = 5
	wholeGPU   = partitions
	// firstLarge is the first kind that counts as a large partition.
	firstLarge = 3
)

func (k kind) String() string {
	switch {
	case k.profile != "":
		return k.profile
	case k.count == 1:
		return "GPU"
	}
	return fmt.Sprintf("%d GPUs", k.count)
}

// gpus is the GPU memory that a claim holds, in GPUs.
func (k kind) gpus() float64 { return float64(k.count*k.memory) / memorySlices }

// kindOf returns the smallest kind that has these thousandths of compute and memory of each GPU.
func kindOf(milli, gpus int) (int, error) {
	for i, k := range kinds {
		if k.count == gpus && k.compute*1000 >= milli*computeSlices && k.memory*1000 >= milli*memorySlices {
			return i, nil
		}
	}
	return 0, fmt.Errorf("nothing has %d/1000 of %d GPUs", milli, gpus)
}

// kindByName returns the kind with a name.
func kindByName(name string) (int, error) {
	for i, k := range kinds {
		if k.String() == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("there is no kind %q", name)
}
