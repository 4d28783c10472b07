package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
)

// classDomain ends the names of all device classes that the chart installs.
const classDomain = ".tranche.dev"

// IsOurs reports whether a class selects our devices. Classes of the chart are known by their
// names, also if they could not be read or do not exist any more.
func (c *Cluster) IsOurs(ctx context.Context, class string) bool {
	if strings.HasSuffix(class, classDomain) {
		return true
	}
	known := c.DeviceClasses[class]
	return known != nil && c.selectsOurs(ctx, known.Spec.Selectors)
}

// Serving is whether devices of this driver can serve a request.
type Serving int

// OursPerhaps: devices of another driver may serve it, too. Others: only these can.
const (
	OursPerhaps Serving = iota
	Ours
	Others
)

// Serving reports whether our devices can serve a request for a class, with selectors of its own.
func (c *Cluster) Serving(ctx context.Context, class string, selectors []resourceapi.DeviceSelector) Serving {
	if strings.HasSuffix(class, classDomain) {
		return Ours
	}
	known := c.DeviceClasses[class]
	if known == nil {
		return OursPerhaps
	}
	return c.serving(ctx, slices.Concat(known.Spec.Selectors, selectors))
}

// serving decides by what selectors demand of the driver. What they demand of attributes does not count:
// a class may choose partitions that are not published now.
func (c *Cluster) serving(ctx context.Context, selectors []resourceapi.DeviceSelector) Serving {
	aboutDriver := driverConditions(selectors)
	if c.matches(ctx, aboutDriver, cel.Device{Driver: names.DriverName}) == no {
		return Others
	}
	for _, driver := range []string{"driver.invalid", "gpu.invalid"} {
		if c.matches(ctx, aboutDriver, cel.Device{Driver: driver}) != no {
			return OursPerhaps
		}
	}
	return Ours
}

// selectsOurs reports whether selectors choose our devices, and not those of any driver. It checks
// published devices only if the driver alone does not decide: the devices of a class need not be
// published now.
func (c *Cluster) selectsOurs(ctx context.Context, selectors []resourceapi.DeviceSelector) bool {
	if s := c.serving(ctx, selectors); s != OursPerhaps {
		return s == Ours
	}
	return len(selectors) > 0 && slices.ContainsFunc(c.Pools, func(p *Pool) bool {
		return p.Driver == names.DriverName && slices.ContainsFunc(p.Devices, func(d *Device) bool {
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
		case errors.As(err, &selector):
			out = open // A later selector can still say no.
		case ctx.Err() != nil:
			return open
		case !ok:
			return no
		}
	}
	return out
}
