package profile

import (
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// Possible is an error for static layouts of rules that no GPU can hold. The GPUs are one of each model
// that there is; those that lack a profile of a layout are not asked, so a layout for an unknown model
// is possible.
func Possible(origin string, rules []v1beta1.Rule, gpus []gpu.GPU) error {
	problems := strict.NewProblems(origin)
	for i, r := range rules {
		if r.MIG == nil || len(r.MIG.Partitions) == 0 {
			continue
		}
		parts := asParts(r.MIG.Partitions)
		problem := ""
		for j := range gpus {
			g := &gpus[j]
			lacks := func(p part) bool { _, err := fullProfile(g, p.Profile); return err != nil }
			if slices.ContainsFunc(parts, lacks) {
				continue
			}
			_, err := pack(g, parts, nil)
			if err == nil {
				problem = ""
				break
			}
			if problem == "" {
				problem = "no known GPU can hold these, for example " + g.ProductName + ": " + err.Error()
			}
		}
		if problem != "" {
			problems.Add(strict.Key(strict.Key(strict.Index("spec.rules", i), "mig"), "partitions"), "%s", problem)
		}
	}
	return problems.Err()
}
