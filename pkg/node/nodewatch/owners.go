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

// unmanaged is the name of the owner of GPUs that Tranche does not manage.
const unmanaged = "unmanaged"

// unmanaged returns an owner for each vendor if Tranche does not manage the node. Then nothing
// is published, and nothing is changed, as on a node that another system serves.
func (w *Node) unmanaged() Owners {
	if w.IsManaged() {
		return nil
	}
	var all Owners
	for _, v := range w.Vendors {
		all = append(all, Owner{hardware.Owner{
			Name:   unmanaged,
			Found:  "it does not have the labels " + w.Managed.String() + ", which the chart's value managedNodes requires",
			Remedy: "label the node",
		}, v.Name()})
	}
	return all
}

// Unmanaged returns the entries that say that Tranche does not manage the node.
func (all Owners) Unmanaged() Owners {
	return slices.DeleteFunc(slices.Clone(all), func(o Owner) bool { return o.Name != unmanaged })
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
