package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// fullProfile returns the full name of a MIG profile of the GPU. A name without memory ("1g") means the
// smallest profile with that many slices and without extra engines. The error for an unknown name
// lists the profiles of the GPU.
func fullProfile(g *gpu.GPU, name string) (string, error) {
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
		if plain && shortProfile.MatchString(name) && strings.HasPrefix(p.Profile, name+".") && (best == nil || smaller(p, *best) < 0) {
			best = &inMIG.Placements[i]
		}
	}
	if best != nil {
		return best.Profile, nil
	}
	all := MIGProfiles(g)
	if len(all) == 0 {
		return "", fmt.Errorf("%s does not support MIG", cmp.Or(g.ProductName, "it"))
	}
	return "", fmt.Errorf("has no profile %s; it has %s", name, strings.Join(all, ", "))
}

// MIGProfiles returns the full names of the MIG profiles of the GPU, the smallest first.
func MIGProfiles(g *gpu.GPU) []string {
	inMIG := g.WithMIG(gpu.MIGOn)
	var names []string
	for _, p := range inMIG.Placements {
		if p.Type == gpu.TypeMIG && !slices.Contains(names, p.Profile) {
			names = append(names, p.Profile)
		}
	}
	return names
}

func smaller(a, b gpu.Placement) int {
	return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Profile, b.Profile))
}
