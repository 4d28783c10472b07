package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// fits counts how many more devices of each kind can be allocated if no other kind is, the
// largest kind first. Placements of one kind have equal lengths, so taking them from left to right
// finds the maximum.
func (p *Pool) fits() []Fit {
	kinds := map[string][]*Device{}
	for _, d := range p.Devices {
		// How much of a shared device is left is not a number of pieces.
		if !d.barred() && !d.Shared() && !d.Held() {
			kinds[d.Label] = append(kinds[d.Label], d)
		}
	}
	var out []Fit
	for _, of := range kinds {
		slices.SortStableFunc(of, byPosition)
		taken, n := maps.Clone(p.Taken), 0
		for _, d := range of {
			if len(p.Short(d, taken)) == 0 {
				taken.Add(d.Consumes)
				n++
			}
		}
		if n > 0 {
			out = append(out, Fit{DeviceKind: of[0].DeviceKind, Count: n, Positions: len(of[0].positions), Memory: of[0].memory()})
		}
	}
	slices.SortFunc(out, largerFirst)
	return out
}

// largerFirst orders kinds: the whole GPU, then by memory and compute; a variant ("+me") follows
// its profile.
func largerFirst(a, b Fit) int {
	if whole := a.Type == gpu.TypeGPU; whole != (b.Type == gpu.TypeGPU) {
		return map[bool]int{true: -1, false: 1}[whole]
	}
	return cmp.Or(cmp.Compare(b.Positions, a.Positions), cmp.Compare(computeSlices(b.Label), computeSlices(a.Label)), cmp.Compare(a.Label, b.Label))
}

// computeSlices returns the number before the "g" of a profile: its compute slices.
func computeSlices(label string) int {
	n := 0
	for _, c := range label {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// BaseProfile returns the profile of a variant ("1g.10gb" of "1g.10gb+me"), empty if it is none.
func BaseProfile(label string) string {
	if end := strings.IndexAny(label, "+-"); end > 0 {
		return label[:end]
	}
	return ""
}

// Plain drops variants that fit no more often than their profile, for shorter output.
func Plain(all []Fit) []Fit {
	count := map[string]int{}
	for _, f := range all {
		count[f.Label] = f.Count
	}
	return slices.DeleteFunc(slices.Clone(all), func(f Fit) bool {
		base := BaseProfile(f.Label)
		return base != "" && f.Count <= count[base]
	})
}

// Sum adds up what fits on several GPUs.
func Sum(gpus []GPU) []Fit {
	var out []Fit
	for _, g := range gpus {
		for _, f := range g.Fits {
			if i := slices.IndexFunc(out, func(o Fit) bool { return o.Label == f.Label }); i >= 0 {
				out[i].Count += f.Count
			} else {
				out = append(out, f)
			}
		}
	}
	slices.SortFunc(out, largerFirst)
	return out
}

// Free returns the free capacity of the GPUs of a node, without the variants that Plain drops.
func (n Node) Free() []Fit { return Plain(Sum(n.GPUs)) }
