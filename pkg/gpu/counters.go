package gpu

import (
	"maps"
	"slices"
)

// Counters is an amount of each of a GPU's countable parts: what a GPU has,
// or what a placement takes of it. Names are DNS labels ("memory-slice-3").
type Counters map[string]int64

// Names returns the counters' names in order.
func (c Counters) Names() []string { return slices.Sorted(maps.Keys(c)) }

// Add puts what d takes on top of c.
func (c Counters) Add(d Counters) {
	for name, n := range d {
		c[name] += n
	}
}

// Exceeds returns the name of a counter of which c takes more than there is in
// total, or an empty string when everything fits.
func (c Counters) Exceeds(total Counters) string {
	for _, name := range c.Names() {
		if c[name] > total[name] {
			return name
		}
	}
	return ""
}

// Conflict reports whether two placements cannot be in use at the same time, by
// the same arithmetic as the scheduler's. Partitions of two modes never can, also
// where one of them is of a mode that the GPU had once and whose counters are
// gone. Shares of one device do not exclude each other here: how much there is of
// it is for its amounts to say.
func (g *GPU) Conflict(a, b Placement) bool {
	if a.SharesWith(b) {
		return false
	}
	if a.Base().Type.FollowsMode() && b.Base().Type.FollowsMode() && a.Profile != b.Profile {
		return true
	}
	sum := Counters{}
	sum.Add(a.Consumes)
	sum.Add(b.Consumes)
	return sum.Exceeds(g.Counters) != ""
}
