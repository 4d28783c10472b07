package picture

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// usage is what is taken of a card.
type usage struct {
	total gpu.Counters
	taken gpu.Counters
	held  map[string]bool // names of devices
}

// fits tells whether the scheduler could still hand out the device, taints
// aside.
func (u usage) fits(d *device) bool {
	if u.held[d.name] && !d.shared {
		return false
	}
	if u.held[d.name] {
		return true // its counters are taken already
	}
	sum := gpu.Counters{}
	sum.Add(u.taken)
	sum.Add(d.consumes)
	return sum.Exceeds(u.total) == ""
}

func (u usage) with(d *device) usage {
	next := usage{total: u.total, taken: gpu.Counters{}, held: map[string]bool{d.name: true}}
	next.taken.Add(u.taken)
	next.taken.Add(d.consumes)
	for name := range u.held {
		next.held[name] = true
	}
	return next
}

// fits counts for each kind of device how often it still fits if nothing else
// is taken, the largest kind first. Placements of one kind are runs of equal
// length, so taking them from left to right finds the greatest number.
func fits(u usage, devices []*device) []Fit {
	kinds := map[string][]*device{}
	for _, d := range devices {
		// How much of a shared device is left is not a count of pieces.
		if !d.barred && !d.shared {
			kinds[d.label] = append(kinds[d.label], d)
		}
	}
	var labels []string
	for label, of := range kinds {
		labels = append(labels, label)
		slices.SortStableFunc(of, func(a, b *device) int { return cmp.Compare(first(a), first(b)) })
	}
	slices.SortFunc(labels, func(a, b string) int { return largerFirst(kinds[a][0], kinds[b][0]) })

	var out []Fit
	for _, label := range labels {
		now, n := u, 0
		for _, d := range kinds[label] {
			if now.fits(d) {
				now = now.with(d)
				n++
			}
		}
		if n > 0 {
			out = append(out, Fit{Label: label, Count: n, like: kinds[label][0]})
		}
	}
	return out
}

func first(d *device) int {
	if len(d.positions) == 0 {
		return 0
	}
	return d.positions[0]
}

// largerFirst orders kinds as a person would list them: the whole card, then by
// memory and compute; a variant ("+me") follows the profile that it varies.
func largerFirst(a, b *device) int {
	return cmp.Or(
		cmp.Compare(b.rank(), a.rank()),
		cmp.Compare(len(b.positions), len(a.positions)),
		cmp.Compare(b.computeSlices(), a.computeSlices()),
		cmp.Compare(a.label, b.label),
	)
}

// computeSlices is the number in front of a profile's "g": the share of the
// card's compute, whatever the driver says about the number of its units.
func (d *device) computeSlices() int {
	n := 0
	for _, c := range d.label {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// rank puts the whole card before a partition that is as large.
func (d *device) rank() int {
	if d.label == wholeCard {
		return 1
	}
	return 0
}

// plain drops the variants of a profile that fit no more often than the profile
// itself: a person who looks for room reads six names more easily than ten.
func plain(all []Fit) []Fit {
	count := map[string]int{}
	for _, f := range all {
		count[f.Label] = f.Count
	}
	return slices.DeleteFunc(slices.Clone(all), func(f Fit) bool {
		end := strings.IndexAny(f.Label, "+-")
		return end > 0 && f.Count <= count[f.Label[:end]]
	})
}

// sum adds up what fits on several cards.
func sum(cards []Card) []Fit {
	var out []Fit
	for _, c := range cards {
		for _, f := range c.Fits {
			i := slices.IndexFunc(out, func(g Fit) bool { return g.Label == f.Label })
			if i < 0 {
				out = append(out, f)
				continue
			}
			out[i].Count += f.Count
		}
	}
	slices.SortFunc(out, func(a, b Fit) int { return largerFirst(a.like, b.like) })
	return out
}

// Free says what still fits on the cards of a node, without the variants that
// say nothing new.
func (n Node) Free() []Fit { return plain(sum(n.Cards)) }
