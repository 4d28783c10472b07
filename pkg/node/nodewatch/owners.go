package nodewatch

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Owner is another system that serves the node's GPUs of a vendor.
type Owner struct {
	hardware.Owner
	Vendor gpu.Vendor
}

// Owners are the other systems on a node.
type Owners []Owner

// findOwners asks the vendors which other systems serve their GPUs.
func findOwners(vendors []hardware.Vendor, e hardware.Evidence) Owners {
	var all Owners
	for _, v := range vendors {
		for _, o := range v.Owners(e) {
			all = append(all, Owner{o, v.Name()})
		}
	}
	return all
}

// Of returns the systems that serve a vendor's GPUs.
func (all Owners) Of(v gpu.Vendor) Owners {
	return slices.DeleteFunc(slices.Clone(all), func(o Owner) bool { return o.Vendor != v })
}

// Names joins the names, as the value of a taint.
func (all Owners) Names() string {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.Name
	}
	return strings.Join(names, "_")
}
