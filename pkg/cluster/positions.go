package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const slicePrefix = "memory-slice-"

// maxPositions is the largest number of positions that can be drawn in 80 columns.
const maxPositions = 16

// place divides the bar of a GPU into positions and gives each device its own.
// It returns the number of positions.
func place(total gpu.Counters, devices []*Device) int {
	if index := sliceIndex(total); len(index) > 0 {
		for _, d := range devices {
			// Exclusive devices consume all memory and name no slices.
			if n := d.Consumes[names.CounterMemory]; n > 0 && n >= total[names.CounterMemory] {
				d.positions = slices.Sorted(maps.Values(index))
				continue
			}
			for name, n := range d.Consumes {
				if i, ok := index[name]; ok && n > 0 {
					d.positions = append(d.positions, i)
				}
			}
			slices.Sort(d.positions)
		}
		return len(index)
	}
	return placeByMemory(total[names.CounterMemory], devices)
}

// sliceIndex numbers the memory slices of a GPU from left to right.
func sliceIndex(total gpu.Counters) map[string]int {
	var numbers []int
	for name := range total {
		if rest, ok := strings.CutPrefix(name, slicePrefix); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	index := map[string]int{}
	for i, n := range numbers {
		index[slicePrefix+strconv.Itoa(n)] = i
	}
	return index
}

// placeByMemory serves GPUs without memory slices: those that cannot be partitioned
// (one position) and those that are divided into equal parts of their memory, where
// the partition's index says which part it is. A GPU may have several such
// divisions, of two, four and eight parts.
func placeByMemory(total int64, devices []*Device) int {
	n := 1
	for _, d := range devices {
		if d.Consumes[names.CounterMemory] <= 0 {
			continue
		}
		k := partsOf(total, d.Consumes[names.CounterMemory])
		if k == 0 || n*k/gcd(n, k) > maxPositions {
			n = 1
			break
		}
		n = n * k / gcd(n, k)
	}
	seen := map[int]int{}
	for _, d := range devices {
		takes := d.Consumes[names.CounterMemory]
		if n == 1 && d.Type != gpu.TypeMonitor {
			// The whole GPU is all there is to show.
			d.positions = []int{0}
			continue
		}
		if takes <= 0 {
			continue // it takes nothing that the bar shows
		}
		size := n / partsOf(total, takes)
		nth := seen[size]
		if index := d.attribute("partitionIndex").IntValue; index != nil {
			nth = int(*index)
		} else {
			seen[size]++
		}
		start := (nth % (n / size)) * size
		for i := start; i < start+size; i++ {
			d.positions = append(d.positions, i)
		}
	}
	return n
}

// partsOf returns into how many equal parts a GPU is divided when each takes so much,
// zero when they are not equal. Six parts of a power of two leave a few bytes.
func partsOf(total, takes int64) int {
	k := total / takes
	if k < 1 || total-k*takes >= k {
		return 0
	}
	return int(k)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
