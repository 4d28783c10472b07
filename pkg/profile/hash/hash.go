// Package hash identifies versions of profiles. Hashes are stored in the status of GPUNodes and
// PartitionPlans and on nodes, as VERSION:HEX, and decide whether nodes are switched and plans get a new
// revision. So they do not depend on the types of the API: v1.go has types and defaults of its own.
//
// A version never changes. What the API adds later is left out of a hash while it has its default. If that
// is not enough, there is a new version: one release compares it, and the next one writes it, so that
// going back by one release changes no hash.
package hash

import (
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Version is a way to compute hashes.
type Version struct {
	Name string
	// Of returns the hash without the version.
	Of func(profile string, rules []v1beta1.Rule) string
}

// Versions are the versions that can be compared. The last one is written.
var Versions = []Version{{Name: "v1", Of: v1}}

// Of returns the hash of a profile's name and rules. It returns a stored hash if that is of the same
// content, in whatever version it was computed.
//
// It does not depend on the order of keys, names and static partitions, on the spelling of product
// names, PCI addresses and numbers, or on whether defaults are written. A rule with mig differs from
// one without, because it may enable MIG mode.
func Of(profile string, rules []v1beta1.Rule, stored ...string) string {
	of := map[string]string{}
	for _, v := range Versions {
		of[v.Name] = v.Name + ":" + v.Of(profile, rules)
	}
	for _, s := range stored {
		if version, _, ok := strings.Cut(s, ":"); ok && of[version] == s {
			return s
		}
	}
	return of[Versions[len(Versions)-1].Name]
}
