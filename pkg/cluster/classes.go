package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// classDomain ends the names of all device classes that the chart installs.
const classDomain = ".tranche.dev"

// IsOurs tells whether a class selects our devices. Classes of the chart are known by their
// names, also if they could not be read or do not exist any more.
func (c *Cluster) IsOurs(ctx context.Context, class string) bool {
	if strings.HasSuffix(class, classDomain) {
		return true
	}
	known := c.DeviceClasses[class]
	return known != nil && c.selectsOurs(ctx, known.Spec.Selectors)
}

// selectsOurs tells whether selectors choose our devices, and not those of any driver. It checks
// published devices only if the driver alone does not decide: the devices of a class need not be
// published now.
func (c *Cluster) selectsOurs(ctx context.Context, selectors []resourceapi.DeviceSelector) bool {
	if c.matches(ctx, selectors, cel.Device{Driver: gpu.DriverName}) == no {
		return false
	}
	if c.matches(ctx, selectors, cel.Device{Driver: "driver.invalid"}) == no {
		return true
	}
	return len(selectors) > 0 && slices.ContainsFunc(c.Pools, func(p *Pool) bool {
		return p.Driver == gpu.DriverName && slices.ContainsFunc(p.Devices, func(d *Device) bool {
			return c.matches(ctx, selectors, d.CEL()) == yes
		})
	})
}

// answer is whether selectors choose a device. It is open if the device lacks an attribute.
type answer int

const (
	open answer = iota
	no
	yes
)

func (c *Cluster) matches(ctx context.Context, selectors []resourceapi.DeviceSelector, d cel.Device) answer {
	out := yes
	for _, s := range selectors {
		ok, err := allocation.Matches(ctx, c.Selectors, d, s)
		var selector *allocation.SelectorError
		switch {
		case errors.As(err, &selector) && selector.Compiles:
			out = open // A later selector can still say no.
		case !ok:
			return no
		}
	}
	return out
}
