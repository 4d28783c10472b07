package profile

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

type part struct {
	// Profile is the full name ("1g.10gb"), or one without memory ("1g"); see
	// fullProfile.
	Profile string
	// Count is the number; zero: as many as fit beside the others, at least one.
	Count int
}

func (p part) String() string {
	if p.Count == 0 {
		return p.Profile
	}
	return fmt.Sprintf("%s x %d", p.Profile, p.Count)
}

// pack finds placements for all parts that can exist together. As many existing partitions as
// possible keep their positions. Among equal layouts it chooses the first in the order of the GPU's
// placements, regardless of the order of the parts. The result is in that order, too. MIG mode need
// not be on.
//
// An error names the part that does not fit, and what would fit.
func pack(g *gpu.GPU, parts []part, there []gpu.Partition) ([]gpu.Placement, error) {
	inMIG := g.WithMIG(gpu.MIGOn)
	full, err := fullNames(&inMIG, parts)
	if err != nil {
		return nil, err
	}
	if found := search(&inMIG, full, there); found != nil {
		return found, nil
	}
	return nil, misfit(&inMIG, full)
}

// fullNames checks the parts and returns them with full names of profiles.
func fullNames(g *gpu.GPU, parts []part) ([]part, error) {
	full := make([]part, len(parts))
	rest := ""
	for i, p := range parts {
		name, err := fullProfile(g, p.Profile)
		if err != nil {
			return nil, err
		}
		switch {
		case p.Count < 0:
			return nil, fmt.Errorf("%s x %d: a number of partitions is at least 1", p.Profile, p.Count)
		case p.Count == 0 && rest != "":
			return nil, fmt.Errorf("both %s and %s are to fill the GPU: give one of them a number", rest, p.Profile)
		case p.Count == 0:
			rest = p.Profile
		}
		full[i] = part{Profile: name, Count: p.Count}
	}
	return full, nil
}

// misfit names the first part that does not fit beside those before it, and how many of it would
// fit. The part that fills the GPU comes last.
func misfit(g *gpu.GPU, parts []part) error {
	ordered := lists.Filter(parts, func(p part) bool { return p.Count > 0 })
	ordered = append(ordered, lists.Filter(parts, func(p part) bool { return p.Count == 0 })...)
	for i, p := range ordered {
		if search(g, ordered[:i+1], nil) == nil {
			verb := "do"
			if p.Count == 0 {
				verb = "does"
			}
			return fmt.Errorf("%s %s not fit%s", p, verb, room(g, ordered[:i], p.Profile))
		}
	}
	return fmt.Errorf("%s do not fit together", listParts(parts))
}

// room is how many partitions of a profile fit beside other parts.
func room(g *gpu.GPU, beside []part, profile string) string {
	most := 0
	others := 0
	for _, p := range beside {
		if p.Profile == profile {
			others += p.Count
		}
	}
	for _, p := range search(g, append(beside[:len(beside):len(beside)], part{Profile: profile}), nil) {
		if p.Profile == profile {
			most++
		}
	}
	text := ""
	if len(beside) > 0 {
		text = " beside " + listParts(beside)
	}
	if most -= others; most < 1 {
		return text + ": there is room for none"
	}
	return fmt.Sprintf("%s: at most %d", text, most)
}

func listParts(parts []part) string {
	return strings.Join(lists.Map(parts, part.String), ", ")
}
