package picture

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

const slicePrefix = "memory-slice-"

// maxPositions is the finest division of a bar that can be told apart on a
// terminal of 80 columns.
const maxPositions = 16

// place divides the bar of a card into positions and gives each device its own.
// It returns the number of positions.
func place(total gpu.Counters, devices []*device) int {
	if index := sliceIndex(total); len(index) > 0 {
		for _, d := range devices {
			for name, n := range d.consumes {
				if i, ok := index[name]; ok && n > 0 {
					d.positions = append(d.positions, i)
				}
			}
			slices.Sort(d.positions)
		}
		return len(index)
	}
	return placeByMemory(total[gpu.CounterMemory], devices)
}

// sliceIndex numbers the memory slices of a card from left to right.
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

// placeByMemory serves cards without memory slices: those that cannot be cut
// (one position) and those that are cut into equal parts of their memory, where
// the partition's index says which part it is.
func placeByMemory(total int64, devices []*device) int {
	unit := total
	for _, d := range devices {
		unit = gcd(unit, d.consumes[gpu.CounterMemory])
	}
	if unit == 0 || total/unit > maxPositions {
		unit = total
	}
	n := 1
	if unit > 0 {
		n = int(total / unit)
	}
	seen := map[int]int{}
	for _, d := range devices {
		size := n
		if unit > 0 {
			size = min(n, int(d.consumes[gpu.CounterMemory]/unit))
		}
		if size < 1 {
			// It takes nothing that the bar shows, unless the bar has but one
			// position: then the whole card is all there is to show.
			if n == 1 {
				d.positions = []int{0}
			}
			continue
		}
		nth, ok := d.attributes.number("partitionIndex")
		if !ok {
			nth = seen[size]
			seen[size]++
		}
		start := (nth % (n / size)) * size
		for i := start; i < start+size; i++ {
			d.positions = append(d.positions, i)
		}
	}
	return n
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
