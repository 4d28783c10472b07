package inventory

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Owner is another system that serves GPUs of the node: those of a vendor, or a single one.
type Owner struct {
	hardware.Owner
	Vendor gpu.Vendor
	// PCIAddress is that of the GPU; empty: the owner serves all GPUs of the vendor.
	PCIAddress string
}

// Owners are the other systems on a node.
type Owners []Owner

// findOwners asks the vendors which other systems serve their GPUs, and adds the DRA drivers
// that publish devices with PCI addresses.
func findOwners(vendors []hardware.Vendor, e hardware.Evidence) Owners {
	var all Owners
	var known []string
	for _, v := range vendors {
		known = append(known, v.OwnerDRADrivers()...)
		for _, o := range v.Owners(e) {
			all = append(all, Owner{Owner: o, Vendor: v.Name()})
		}
	}
	var others Owners
	for _, s := range e.Slices {
		if slices.Contains(known, s.Spec.Driver) {
			continue // It counts for all GPUs of the vendor, even without addresses.
		}
		for i := range s.Spec.Devices {
			for _, address := range pciAddresses(&s.Spec.Devices[i]) {
				others = append(others, Owner{Owner: hardware.Owner{
					Name:   s.Spec.Driver,
					Found:  "DRA driver " + s.Spec.Driver + " publishes a device of GPU " + address,
					Remedy: "keep DRA driver " + s.Spec.Driver + " off this node or this GPU",
				}, PCIAddress: address})
			}
		}
	}
	slices.SortFunc(others, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.PCIAddress, b.PCIAddress), cmp.Compare(a.Name, b.Name))
	})
	return append(all, slices.Compact(others)...)
}

// pciAddresses are the values of the standard attribute pciBusID of a device that are addresses.
func pciAddresses(d *resourceapi.Device) (addresses []string) {
	a := d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID]
	for _, value := range append(slices.Clone(a.StringValues), ptr.Deref(a.StringValue, "")) {
		if address, err := gpu.NormalizePCIAddress(value); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
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
		all = append(all, Owner{Owner: hardware.Owner{
			Name:   unmanaged,
			Found:  "it does not have the labels " + w.Managed.String() + ", which the chart's value managedNodes requires",
			Remedy: "label the node",
		}, Vendor: v.Name()})
	}
	return all
}

// Unmanaged returns the entries that say that Tranche does not manage the node.
func (all Owners) Unmanaged() Owners {
	return slices.DeleteFunc(slices.Clone(all), func(o Owner) bool { return o.Name != unmanaged })
}

// Of returns the systems that serve a GPU.
func (all Owners) Of(v gpu.Vendor, pciAddress string) Owners {
	return slices.DeleteFunc(slices.Clone(all), func(o Owner) bool {
		if o.PCIAddress != "" {
			return o.PCIAddress != pciAddress
		}
		return o.Vendor != v
	})
}

// Names joins the names, as the value of a taint: as many as fit.
func (all Owners) Names() string {
	value := ""
	for i, o := range all {
		if i > 0 {
			o.Name = value + "_" + o.Name
		}
		if len(o.Name) > validation.LabelValueMaxLength {
			break
		}
		value = o.Name
	}
	return value
}
