package node

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// owner is another system that serves the node's GPUs of a vendor.
type owner struct {
	hardware.Owner
	vendor gpu.Vendor
}

// owners are the other systems on a node.
type owners []owner

// findOwners asks the vendors which other systems serve their GPUs.
func findOwners(vendors []hardware.Vendor, e hardware.Evidence) owners {
	var all owners
	for _, v := range vendors {
		for _, o := range v.Owners(e) {
			all = append(all, owner{o, v.Name()})
		}
	}
	return all
}

// of are those that serve a vendor's GPUs.
func (all owners) of(v gpu.Vendor) owners {
	return slices.DeleteFunc(slices.Clone(all), func(o owner) bool { return o.vendor != v })
}

// names is their names, as a taint's value.
func (all owners) names() string {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.Name
	}
	return strings.Join(names, "_")
}
