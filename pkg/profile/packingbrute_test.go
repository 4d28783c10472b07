package profile

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// paper is a GPU of each model that can be cut, with every set of its placements
// that can exist together, found by trying all.
type paper struct {
	gpu  *gpu.GPU
	cuts []gpu.Placement
	sets []uint64
}

func papers(t testing.TB) []*paper {
	t.Helper()
	byProduct := map[string]*paper{}
	for _, name := range models.InventoryNames() {
		inv, err := models.LoadInventory(name)
		require.NoError(t, err)
		for _, g := range inv.Hardware("node") {
			if byProduct[g.ProductName] == nil && len(MIGProfiles(&g)) > 0 {
				byProduct[g.ProductName] = newPaper(g)
			}
		}
	}
	var all []*paper
	for _, product := range slices.Sorted(maps.Keys(byProduct)) {
		all = append(all, byProduct[product])
	}
	return all
}

func newPaper(g gpu.GPU) *paper {
	on := g.WithMIG(gpu.MIGOn)
	p := &paper{gpu: &g}
	for _, c := range on.Placements {
		if c.Type == gpu.TypeMIG {
			p.cuts = append(p.cuts, c)
		}
	}
	used := gpu.Counters{}
	var grow func(i int, set uint64)
	grow = func(i int, set uint64) {
		if used.Exceeds(on.Counters) != "" {
			return
		}
		if i == len(p.cuts) {
			p.sets = append(p.sets, set)
			return
		}
		grow(i+1, set)
		used.Add(p.cuts[i].Consumes)
		grow(i+1, set|1<<i)
		for name, n := range p.cuts[i].Consumes {
			used[name] -= n
		}
	}
	grow(0, 0)
	return p
}

// best is the best score of all sets that hold the parts and nothing else, and
// whether there is one.
func (p *paper) best(parts []part, there []gpu.Partition) (best score, found bool) {
	want := map[string]int{}
	rest := ""
	for _, part := range parts {
		want[part.Profile] += max(part.Count, 1)
		if part.Count == 0 {
			rest = part.Profile
		}
	}
next:
	for _, set := range p.sets {
		got := map[string]int{}
		var s score
		for i, c := range p.cuts {
			if set&(1<<i) != 0 {
				got[c.Profile]++
				if slices.ContainsFunc(there, func(q gpu.Partition) bool { return q.Is(c) }) {
					s.kept++
				}
			}
		}
		for profile := range got {
			if n := got[profile]; n < want[profile] || n > want[profile] && profile != rest {
				continue next
			}
		}
		if len(got) != len(want) {
			continue
		}
		s.rest = got[rest]
		if !found || s.beats(best) {
			best, found = s, true
		}
	}
	return best, found
}

// check compares what Solve finds with the best of all sets.
func (p *paper) check(t *testing.T, parts []part, there []gpu.Partition) {
	t.Helper()
	want, possible := p.best(parts, there)
	got, err := pack(p.gpu, parts, there)
	require.Equal(t, possible, err == nil, "%s: %v of %v: %v", p.gpu.ProductName, parts, there, err)
	if !possible {
		require.Contains(t, err.Error(), "not fit")
		return
	}
	var set uint64
	var s score
	for _, c := range got {
		i := slices.IndexFunc(p.cuts, func(d gpu.Placement) bool { return c.Name() == d.Name() })
		require.GreaterOrEqual(t, i, 0)
		require.Zero(t, set&(1<<i))
		set |= 1 << i
		if slices.ContainsFunc(there, func(q gpu.Partition) bool { return q.Is(c) }) {
			s.kept++
		}
		if slices.ContainsFunc(parts, func(q part) bool { return q.Count == 0 && q.Profile == c.Profile }) {
			s.rest++
		}
	}
	require.Contains(t, p.sets, set, "%v do not fit together", got)
	require.Equal(t, want, s, "%s: %v of %v", p.gpu.ProductName, parts, there)
	again, err := pack(p.gpu, parts, there)
	require.NoError(t, err)
	require.Equal(t, got, again)
}

// parts are some that numbers choose.
func (p *paper) parts(next func(n int) int) (parts []part) {
	profiles := MIGProfiles(p.gpu)
	rest := next(4) == 0
	for range 1 + next(4) {
		part := part{Profile: profiles[next(len(profiles))], Count: 1 + next(4)}
		if rest {
			part.Count, rest = 0, false
		}
		parts = append(parts, part)
	}
	return parts
}

// partitions are those of one of the sets.
func (p *paper) partitions(next func(n int) int) (there []gpu.Partition) {
	set := p.sets[next(len(p.sets))]
	for i, c := range p.cuts {
		if set&(1<<i) != 0 {
			there = append(there, gpu.Partition{GPU: c.GPU, Type: c.Type, Profile: c.Profile, Start: c.Start, Size: c.Size, Complete: true})
		}
	}
	return there
}

// On every model that ships, Solve finds a layout exactly where there is one, and
// the best.
func TestSolveAgainstAllSets(t *testing.T) {
	all := papers(t)
	require.GreaterOrEqual(t, len(all), 7)
	for _, p := range all {
		t.Run(p.gpu.ProductName, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
			for range 150 {
				p.check(t, p.parts(random.IntN), p.partitions(random.IntN))
			}
		})
	}
}

func FuzzSolve(f *testing.F) {
	f.Add(uint8(0), []byte{1, 0, 0, 0, 1, 2, 3})
	f.Add(uint8(3), []byte{0, 2, 1, 1, 2, 0, 3, 200, 100})
	all := papers(f)
	f.Fuzz(func(t *testing.T, model uint8, data []byte) {
		next := func(n int) int {
			var b int
			for range 2 {
				if len(data) > 0 {
					b, data = b<<8+int(data[0]), data[1:]
				}
			}
			return b % n
		}
		p := all[int(model)%len(all)]
		p.check(t, p.parts(next), p.partitions(next))
	})
}

// BenchmarkSolve has what takes longest: many profiles at once, which do not fit. It
// is some 0.1 ms; 100 ms would be too much.
func BenchmarkSolve(b *testing.B) {
	for _, p := range papers(b) {
		var every []part
		for _, profile := range MIGProfiles(p.gpu) {
			if !strings.HasPrefix(profile, "7g") && !strings.HasPrefix(profile, "4g") {
				every = append(every, part{Profile: profile, Count: 1})
			}
		}
		fills := append(slices.Clone(every[:len(every)-1]), part{Profile: every[0].Profile})
		for name, parts := range map[string][]part{"every": every, "fills": fills, "ones": {{Profile: "1g"}}} {
			b.Run(p.gpu.ProductName+"/"+name, func(b *testing.B) {
				for b.Loop() {
					_, _ = pack(p.gpu, parts, nil)
				}
			})
		}
	}
}
