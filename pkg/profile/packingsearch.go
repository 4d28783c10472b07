package profile

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// searcher enumerates the sets of placements that can exist together and contain all parts, and
// keeps the best.
type searcher struct {
	candidates []candidate
	// free is what is left of each counter.
	free []int64
	// need is how many placements of each profile are still missing. rest is the profile that
	// fills the GPU, -1 for none.
	need []int
	rest int
	// left counts, from each candidate on, the candidates of each profile, and kept those that
	// exist already.
	left [][]int
	kept []int

	taken     []bool
	score     score
	best      []bool
	bestScore score
}

// candidate is a placement with precomputed properties.
type candidate struct {
	placement *gpu.Placement
	profile   int
	// takes is what it takes of each counter.
	takes []int64
	// exists: the partition exists already.
	exists bool
}

// score compares layouts: a better one fills the GPU more, or keeps more partitions.
type score struct{ rest, kept int }

func (s score) beats(t score) bool {
	return s.rest > t.rest || s.rest == t.rest && s.kept > t.kept
}

// search finds the best layout, nil if there is none. The parts have full names of profiles.
func search(g *gpu.GPU, parts []part, there []gpu.Partition) []gpu.Placement {
	s := newSearcher(g, parts, there)
	s.from(0)
	if s.best == nil {
		return nil
	}
	found := []gpu.Placement{}
	for i, taken := range s.best {
		if taken {
			found = append(found, *s.candidates[i].placement)
		}
	}
	return found
}

func newSearcher(g *gpu.GPU, parts []part, there []gpu.Partition) *searcher {
	s := &searcher{rest: -1}
	var profiles []string
	for _, p := range parts {
		i := slices.Index(profiles, p.Profile)
		if i < 0 {
			i = len(profiles)
			profiles = append(profiles, p.Profile)
			s.need = append(s.need, 0)
		}
		s.need[i] += max(p.Count, 1)
		if p.Count == 0 {
			s.rest = i
		}
	}
	all := gpu.Counters{}
	for i := range g.Placements {
		all.Add(g.Placements[i].Consumes)
	}
	counters := all.Names()
	for _, name := range counters {
		s.free = append(s.free, g.Counters[name])
	}
	for i := range g.Placements {
		p := &g.Placements[i]
		profile := slices.Index(profiles, p.Profile)
		if p.Type != gpu.TypeMIG || profile < 0 {
			continue
		}
		takes := lists.Map(counters, func(name string) int64 { return p.Consumes[name] })
		exists := slices.ContainsFunc(there, func(q gpu.Partition) bool { return q.Complete && q.Is(*p) })
		s.candidates = append(s.candidates, candidate{placement: p, profile: profile, takes: takes, exists: exists})
	}
	s.taken = make([]bool, len(s.candidates))
	s.look()
	return s
}

// look computes left and kept.
func (s *searcher) look() {
	s.left = make([][]int, len(s.candidates)+1)
	s.kept = make([]int, len(s.candidates)+1)
	s.left[len(s.candidates)] = make([]int, len(s.need))
	for i := len(s.candidates) - 1; i >= 0; i-- {
		s.left[i] = slices.Clone(s.left[i+1])
		s.left[i][s.candidates[i].profile]++
		s.kept[i] = s.kept[i+1]
		if s.candidates[i].exists {
			s.kept[i]++
		}
	}
}

// from tries the i-th candidate and all after it: first with it, then without. Only a better layout
// replaces the best, so the first of equal ones wins.
func (s *searcher) from(i int) {
	if s.hopeless(i) {
		return
	}
	if i == len(s.candidates) {
		s.best, s.bestScore = slices.Clone(s.taken), s.score
		return
	}
	c := &s.candidates[i]
	if (s.need[c.profile] > 0 || c.profile == s.rest) && s.fits(c) {
		s.take(i, 1)
		s.from(i + 1)
		s.take(i, -1)
	}
	s.from(i + 1)
}

// hopeless reports whether no completion of the current choice can be better than the best.
func (s *searcher) hopeless(i int) bool {
	most := score{s.score.rest, s.score.kept + s.kept[i]}
	for profile, need := range s.need {
		left := s.left[i][profile]
		if need > left {
			return true
		}
		if profile == s.rest {
			most.rest += left
		}
	}
	return s.best != nil && !most.beats(s.bestScore)
}

func (s *searcher) fits(c *candidate) bool {
	for j, n := range c.takes {
		if n > s.free[j] {
			return false
		}
	}
	return true
}

// take adds a candidate to the choice, or removes it with -1.
func (s *searcher) take(i, sign int) {
	c := &s.candidates[i]
	s.taken[i] = sign > 0
	for j, n := range c.takes {
		s.free[j] -= int64(sign) * n
	}
	s.need[c.profile] -= sign
	if c.profile == s.rest {
		s.score.rest += sign
	}
	if c.exists {
		s.score.kept += sign
	}
}
