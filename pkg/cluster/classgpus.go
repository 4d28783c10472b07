package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/tranche-dev/tranche/api/names"
)

// Class is a DeviceClass for our devices, with what GPUs offer of it. `kubectl tranche classes -o json` prints its
// JSON form.
type Class struct {
	Name                 string `json:"name"`
	ExtendedResourceName string `json:"extendedResourceName,omitempty"`
	// GPUCount is the number of GPUs that publish a device of the class, whoever holds it.
	GPUCount int `json:"gpuCount"`
	// Devices are the kinds of these devices: "whole GPU", "1g.10gb", "memory share".
	Devices []string `json:"devices,omitempty"`
}

// ClassGPUs returns the classes for our devices, by name.
func (c *Cluster) ClassGPUs(ctx context.Context) []Class {
	all := []Class{}
	facts := map[*Device]string{}
	for _, p := range c.Pools {
		for _, d := range p.Devices {
			if p.GPU != "" {
				facts[d] = d.facts()
			}
		}
	}
	for i := range c.Classes {
		class := &c.Classes[i]
		if !c.IsOurs(ctx, class.Name) {
			continue
		}
		out := Class{Name: class.Name}
		if class.Spec.ExtendedResourceName != nil {
			out.ExtendedResourceName = *class.Spec.ExtendedResourceName
		}
		single, known := singles(class.Spec.Selectors), map[string]bool{}
		for _, p := range c.Pools {
			offers := false
			for _, d := range p.Devices {
				like, asked := facts[d]
				if !asked {
					continue
				}
				matches, decided := known[like]
				if !decided || single {
					matches = c.matches(ctx, class.Spec.Selectors, d.CEL()) == yes
					known[like] = matches
				}
				if matches && !slices.Contains(out.Devices, d.Label) {
					out.Devices = append(out.Devices, d.Label)
				}
				offers = offers || matches
			}
			if offers {
				out.GPUCount++
			}
		}
		slices.Sort(out.Devices)
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// identities are the attributes by which single devices differ from others of their kind.
var identities = []resourceapi.QualifiedName{
	names.AttributeUUID, names.AttributeParentUUID, names.AttributePlacementStart, names.AttributePartitionIndex,
	deviceattribute.StandardDeviceAttributePCIBusID, deviceattribute.StandardDeviceAttributePCIeRoot, deviceattribute.StandardDeviceAttributeNUMANode,
}

// singles reports whether selectors can choose a device and not another of its kind.
func singles(selectors []resourceapi.DeviceSelector) bool {
	return slices.ContainsFunc(selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && slices.ContainsFunc(NamesIn(s.CEL.Expression), func(name string) bool {
			return slices.ContainsFunc(identities, func(q resourceapi.QualifiedName) bool { return path.Base(string(q)) == name })
		})
	})
}

// facts returns what selectors see of the device and of all others of its kind.
func (d *Device) facts() string {
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for name, value := range d.Attributes {
		if !slices.Contains(identities, resourceapi.QualifiedName(names.Unqualified(string(name)))) {
			attributes[name] = value
		}
	}
	// Maps are sorted by their keys, and nothing in them can fail.
	text, _ := json.Marshal([]any{d.AllowMultipleAllocations, attributes, d.Capacity})
	return string(text)
}
