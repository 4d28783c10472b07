package layout

import "github.com/tranche-dev/tranche/pkg/gpu"

// Part is a number of partitions of one profile.
type Part struct {
	// Profile is the full name ("1g.10gb") or one without memory ("1g"), which
	// stands for the card's smallest profile of so many slices without extra
	// engines.
	Profile string
	// Count is how many; zero: as many as fit beside the others.
	Count int
}

// Solve finds a placement on the card for every part, so that all can exist at
// once. What is there already and can stay, stays. The result is in the order of
// the card's placements. An error says which part does not fit, and what would.
func Solve(card *gpu.GPU, parts []Part, there []gpu.Partition) ([]gpu.Placement, error) {
	panic("not written yet")
}
