package packing

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// short is the name of a profile without memory.
var short = regexp.MustCompile(`^[1-9][0-9]*g$`)

// Profile is the full name of a profile of the GPU. A name without memory ("1g") means the smallest
// profile with that many slices and without extra engines. An error names the GPU and lists its
// profiles.
func Profile(g *gpu.GPU, name string) (string, error) {
	inMIG := g.WithMIG(gpu.MIGOn)
	var best *gpu.Placement
	for i, p := range inMIG.Placements {
		switch {
		case p.Type != gpu.TypeMIG:
			continue
		case p.Profile == name:
			return name, nil
		}
		plain := !strings.ContainsAny(p.Profile, "+-")
		if plain && short.MatchString(name) && strings.HasPrefix(p.Profile, name+".") && (best == nil || compare(p, *best) < 0) {
			best = &inMIG.Placements[i]
		}
	}
	if best != nil {
		return best.Profile, nil
	}
	all := Profiles(g)
	if len(all) == 0 {
		return "", fmt.Errorf("GPU %s: %s does not support MIG", g.Name(), cmp.Or(g.ProductName, "it"))
	}
	return "", fmt.Errorf("GPU %s: has no profile %s; it has %s", g.Name(), name, strings.Join(all, ", "))
}

// Profiles are the full names of the MIG profiles of the GPU, the smallest first.
func Profiles(g *gpu.GPU) []string {
	inMIG := g.WithMIG(gpu.MIGOn)
	var names []string
	for _, p := range inMIG.Placements {
		if p.Type == gpu.TypeMIG && !slices.Contains(names, p.Profile) {
			names = append(names, p.Profile)
		}
	}
	return names
}

func compare(a, b gpu.Placement) int {
	return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Profile, b.Profile))
}
