package fit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Key returns a key that is equal for pods that fit on the same nodes, apart from CPU, memory and
// volumes.
func (d *Demand) Key(classes []resourceapi.DeviceClass) (string, error) {
	of := struct {
		Selector    map[string]string
		Affinity    *corev1.NodeSelector
		Tolerations []corev1.Toleration
		Claims      []resourceapi.DeviceClaim
		Extended    map[corev1.ResourceName]string
		Follows     []*corev1.NodeSelector
		Classes     map[string][]resourceapi.DeviceSelector
	}{Selector: d.pod.Spec.NodeSelector, Tolerations: d.pod.Spec.Tolerations, Extended: d.Extended, Classes: map[string][]resourceapi.DeviceSelector{}}
	if a := d.pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		of.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	named := map[string]bool{}
	d.requests(func(_ *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		for _, ch := range Choices(r) {
			named[ch.Class] = true
		}
	})
	for i := range classes {
		if named[classes[i].Name] {
			of.Classes[classes[i].Name] = classes[i].Spec.Selectors
		}
	}
	for _, c := range d.Unallocated {
		of.Claims = append(of.Claims, resourceapi.DeviceClaim{Requests: c.Spec.Devices.Requests, Constraints: c.Spec.Devices.Constraints})
	}
	for _, c := range d.Allocated {
		of.Follows = append(of.Follows, c.Status.Allocation.NodeSelector)
	}
	data, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("encode the demand of a pod: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// Narrow removes the requests for other drivers from a demand. It reports whether any requests are left,
// and whether only this driver can serve them. If the rest does not fit, the whole demand does not fit
// either. It needs only the classes. If the context ends, it leaves the demand unchanged.
func (d *Demand) Narrow(ctx context.Context, o cluster.Objects) (ours, certain bool, err error) {
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
