package cluster

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// ourClasses finds the classes that select our devices, and the extended resources that
// stand for them.
func (c *Cluster) ourClasses() (ours map[string]bool, resources map[corev1.ResourceName]bool) {
	ours, resources = map[string]bool{}, map[corev1.ResourceName]bool{}
	cache := allocation.NewCache(len(c.Classes) + 1)
	for i := range c.Classes {
		class := &c.Classes[i]
		if !strings.HasSuffix(class.Name, classDomain) && !c.selectsOurs(cache, class.Spec.Selectors) {
			continue
		}
		ours[class.Name] = true
		resources[corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix+class.Name)] = true
		if class.Spec.ExtendedResourceName != nil {
			resources[corev1.ResourceName(*class.Spec.ExtendedResourceName)] = true
		}
	}
	return ours, resources
}

// selectsOurs tells whether selectors choose devices of ours and not those of any driver.
// It looks at published devices only where the driver does not decide: what a class is for
// need not be published now.
func (c *Cluster) selectsOurs(cache *cel.Cache, selectors []resourceapi.DeviceSelector) bool {
	if matches(cache, selectors, cel.Device{Driver: gpu.DriverName}) == no {
		return false
	}
	if matches(cache, selectors, cel.Device{Driver: "driver.invalid"}) == no {
		return true
	}
	return len(selectors) > 0 && slices.ContainsFunc(c.Pools, func(p *Pool) bool {
		return p.Driver == gpu.DriverName && slices.ContainsFunc(p.Devices, func(d *Device) bool {
			return matches(cache, selectors, cel.Device{
				Driver: p.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
			}) == yes
		})
	})
}

// answer is whether a device is chosen. Attributes that it lacks can leave that open.
type answer int

const (
	open answer = iota
	no
	yes
)

func matches(cache *cel.Cache, selectors []resourceapi.DeviceSelector, d cel.Device) answer {
	out := yes
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		compiled := cache.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return no // It selects nothing.
		}
		ok, _, err := compiled.DeviceMatches(context.Background(), d)
		switch {
		case err != nil:
			out = open
		case !ok:
			return no
		}
	}
	return out
}
