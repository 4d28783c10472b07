package fit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Narrow removes the requests for other drivers from a demand. It reports whether any requests are left,
// and whether only this driver can serve them. If the rest does not fit, the whole demand does not fit
// either. It needs only the classes. If the context ends, it leaves the demand unchanged.
func Narrow(ctx context.Context, d *demand.Demand, o cluster.Objects) (ours, certain bool, err error) {
	m := NewModel(o, false)
	kept, certain := m.servedBy(ctx, d.Unallocated, cluster.Ours), true
	if len(kept) == 0 {
		kept, certain = m.servedBy(ctx, d.Unallocated, cluster.OursPerhaps), false
	}
	if err := ctx.Err(); err != nil {
		return false, false, fmt.Errorf("determine which driver can serve a pod: %w", err)
	}
	d.Unallocated = kept
	return len(kept) > 0, certain, nil
}

// servedBy returns the claims with only those requests that by can serve.
func (m *Model) servedBy(ctx context.Context, claims []*resourceapi.ResourceClaim, by cluster.Serving) (out []*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		own := claim.DeepCopy()
		own.Spec.Devices.Requests = slices.DeleteFunc(own.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool { return m.serving(ctx, r) != by })
		own.Spec.Devices.Constraints = constraintsOf(own.Spec.Devices)
		if len(own.Spec.Devices.Requests) > 0 {
			out = append(out, own)
		}
	}
	return out
}

// constraintsOf returns the constraints of a claim that concern its requests.
func constraintsOf(d resourceapi.DeviceClaim) (out []resourceapi.DeviceConstraint) {
	for _, con := range d.Constraints {
		all := len(con.Requests) == 0
		con.Requests = slices.DeleteFunc(slices.Clone(con.Requests), func(name string) bool {
			main, _, _ := strings.Cut(name, "/") // REQUEST/ALTERNATIVE
			return !slices.ContainsFunc(d.Requests, func(r resourceapi.DeviceRequest) bool { return r.Name == main })
		})
		if all || len(con.Requests) > 0 {
			out = append(out, con)
		}
	}
	return out
}
