package convert

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// The classes of NVIDIA's chart, and their counterparts in Tranche's.
const (
	wholeClass = "gpu.nvidia.com"
	migClass   = "mig.nvidia.com"
	vfioClass  = "vfio.gpu.nvidia.com"

	ourWhole    = "gpu-nvidia.tranche.dev"
	ourMIG      = "gpu-mig.tranche.dev"
	ourMemory   = "gpu-memory-share-nvidia.tranche.dev"
	ourFraction = "gpu-fraction-share-nvidia.tranche.dev"
)

// others are classes for ComputeDomains, which stay unchanged.
var others = []string{"compute-domain-default-channel.nvidia.com", "compute-domain-daemon.nvidia.com", "imex.nvidia.com"}

func (c *converter) devices(path string, d *resourceapi.DeviceClaim) {
	for i := range d.Requests {
		r := &d.Requests[i]
		at := strict.Index(strict.Key(path, "requests"), i)
		if e := r.Exactly; e != nil {
			c.request(strict.Key(at, "exactly"), request{&e.DeviceClassName, e.Selectors, e.AllocationMode, &e.Tolerations, e.Capacity})
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			c.request(strict.Index(strict.Key(at, "firstAvailable"), j), request{&s.DeviceClassName, s.Selectors, s.AllocationMode, &s.Tolerations, s.Capacity})
		}
	}
	for i := range d.Constraints {
		at := strict.Index(strict.Key(path, "constraints"), i)
		c.constraint(strict.Key(at, "matchAttribute"), d.Constraints[i].MatchAttribute)
		c.constraint(strict.Key(at, "distinctAttribute"), d.Constraints[i].DistinctAttribute)
	}
	d.Config = slices.DeleteFunc(d.Config, func(config resourceapi.DeviceClaimConfiguration) bool {
		return c.config(strict.Key(path, "config"), config.Opaque)
	})
}

// request is a request or one of its alternatives.
type request struct {
	class       *string
	selectors   []resourceapi.DeviceSelector
	mode        resourceapi.DeviceAllocationMode
	tolerations *[]resourceapi.DeviceToleration
	capacity    *resourceapi.CapacityRequirements
}

func (c *converter) request(path string, r request) {
	on := anyDevices
	className := strict.Key(path, "deviceClassName")
	switch *r.class {
	case wholeClass:
		*r.class, on = ourWhole, wholeGPUs
		if r.capacity != nil && len(r.capacity.Requests) > 0 {
			*r.class, on = ourMemory, shares
			c.note(className, "is a share of a GPU's memory, as with the driver's ConsumableShares: the amount is what a GPU must have free")
		}
	case migClass:
		*r.class, on = ourMIG, migDevices
		if r.mode == resourceapi.DeviceAllocationModeAll {
			c.problems.Add(strict.Key(path, "allocationMode"), "is All, and partitions are created for claims, at positions that exclude each other: write a count")
		}
	case vfioClass:
		c.problems.Add(className, "is %s, and Tranche does not pass GPUs to virtual machines: leave those nodes to NVIDIA's driver", vfioClass)
	default:
		if slices.Contains(others, *r.class) {
			c.note(className, "%s stays with NVIDIA's driver, whose chart serves it beside Tranche with resources.gpus.enabled=false", *r.class)
		}
	}
	c.changed = c.changed || on != anyDevices
	c.selectors(strict.Key(path, "selectors"), r.selectors, on)
	c.capacity(strict.Key(strict.Key(path, "capacity"), "requests"), r.capacity, on)
	*r.tolerations = slices.DeleteFunc(*r.tolerations, func(t resourceapi.DeviceToleration) bool {
		theirs := strings.HasPrefix(t.Key, nvidiaDriver+"/")
		if theirs {
			c.changed = true
			c.note(strict.Key(path, "tolerations"), "%s is left out: Tranche does not set this taint, and keeps pods off GPUs with errors by its own taint", t.Key)
		}
		return theirs
	})
}

// capacity converts requested amounts.
func (c *converter) capacity(path string, r *resourceapi.CapacityRequirements, on devices) {
	if r == nil {
		return
	}
	converted := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, amount := range r.Requests {
		at := strict.Key(path, string(name))
		theirs, qualified := strings.CutPrefix(string(name), nvidiaDriver+"/")
		switch ours := sharedCapacities[theirs]; {
		case on == anyDevices && !qualified:
			converted[name] = amount // the driver of the class is unknown
			continue
		case on == shares && theirs == "shares":
			c.problems.Add(at, "is a number of equal shares: use class %s with capacity.requests.fraction, the part of a GPU", ourFraction)
		case ours == "" || on == shares && ours != names.CapacityMemory:
			c.problems.Add(at, capacityRemedy)
		default:
			converted[resourceapi.QualifiedName(ours)] = amount
		}
		c.changed = true
	}
	r.Requests = converted
}

func (c *converter) selectors(path string, all []resourceapi.DeviceSelector, on devices) {
	for i, s := range all {
		if s.CEL == nil {
			continue
		}
		expression, err := translateSelector(s.CEL.Expression, on)
		if err != nil {
			c.problems.Add(strict.Key(strict.Key(strict.Index(path, i), "cel"), "expression"), "%v", err)
			continue
		}
		if expression != s.CEL.Expression {
			c.changed = true
			s.CEL.Expression = expression
			if strings.Contains(expression, fmt.Sprintf("capacity[%q].?memory", names.DriverName)) && on != migDevices {
				c.note(strict.Index(path, i), "memory is what programs can use of a GPU, a little less than NVIDIA's driver publishes: compare the bound with kubectl get resourceslices -o yaml")
			}
		}
	}
}

func (c *converter) constraint(path string, name *resourceapi.FullyQualifiedName) {
	if name == nil {
		return
	}
	theirs, is := strings.CutPrefix(string(*name), nvidiaDriver+"/")
	if !is {
		return
	}
	c.changed = true
	if remedy := missingAttribute(theirs, anyDevices); remedy != "" {
		c.problems.Add(path, "%s: %s", *name, remedy)
		return
	}
	*name = resourceapi.FullyQualifiedName(names.DriverName + "/" + theirs)
}
