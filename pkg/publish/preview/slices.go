package preview

import (
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// Node is a node that does not exist yet.
type Node struct {
	// Name is the name of the node, and of its pool.
	Name string
	// Inventory lists the GPUs. models.LoadInventory and models.ParseInventory return one.
	Inventory *models.Inventory
	// Profile is the PartitionProfile that the node will follow, as profile.Parse returns it.
	// nil means the default settings.
	Profile *profile.Profile
	// ExtendedResources are the extended resources that devices serve, by vendor:
	// "nvidia.com/gpu". They follow from the chart's extendedResources.
	ExtendedResources map[gpu.Vendor]string
	// MIGResources is true if devices also serve nvidia.com/mig-<profile> (extendedResources.migReplicas.enabled).
	MIGResources bool
}

// Slices returns the ResourceSlices of the node once it follows its profile: one complete pool of
// generation 1. They have no owner, because slices that refer to a node that does not exist would
// be rejected or garbage-collected. An error lists all rules of the profile that do not fit the
// GPUs.
func Slices(n Node) ([]resourceapi.ResourceSlice, error) {
	found, resolved, err := n.gpus()
	if err != nil {
		return nil, err
	}
	var gpus []publish.GPU
	var errs []error
	for _, g := range found {
		how := resolved[g.PCIAddress]
		g.Placements = slices.DeleteFunc(g.Placements, func(p gpu.Placement) bool { return !how.Layout.Offers(p) })
		shares, err := how.ShareDevices(&g, !n.Inventory.NoMPS)
		if err != nil {
			errs = append(errs, err)
		}
		g.Placements = append(g.Placements, shares...)
		published := publish.GPU{GPU: g, ExtendedResource: n.ExtendedResources[g.Vendor], Means: how.Means}
		if n.MIGResources {
			published.MIGResource = how.MIGResource
		}
		gpus = append(gpus, published)
	}
	resources, failed := publish.Slices(gpus)
	if errs = append(errs, failed...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	published := publish.Objects(names.DriverName, n.Name, resources)
	for i := range published {
		published[i].OwnerReferences = nil
	}
	return published, nil
}

// gpus returns the GPUs in the modes that the profile requires, and the desired state of each.
func (n Node) gpus() ([]gpu.GPU, map[string]profile.Desired, error) {
	machine := *n.Inventory
	machine.AMD = slices.Clone(machine.AMD)
	wanted := n.Profile
	if wanted == nil {
		wanted = profile.Unset()
	}
	resolved, err := wanted.Resolve(machine.Hardware(n.Name), nil)
	if err != nil {
		return nil, nil, err
	}
	for i := range machine.AMD {
		if memory := resolved[machine.AMD[i].PCI].Layout.Memory; memory != "" {
			machine.AMD[i].MemoryMode = xcp.MemoryMode(memory)
		}
	}
	gpus := machine.Hardware(n.Name)
	for i := range gpus {
		switch layout := resolved[gpus[i].PCIAddress].Layout; {
		case layout.Partitioning == profile.PartitioningOff:
			gpus[i] = gpus[i].WithMIG(gpu.MIGOff)
		case layout.Partitioning == profile.PartitioningStatic, layout.Named:
			gpus[i] = gpus[i].WithMIG(gpu.MIGOn)
		}
	}
	return gpus, resolved, nil
}
