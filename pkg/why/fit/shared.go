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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// SharedDemand is what many pods ask for. It has nothing of a pod and of its claims but what decides about nodes, so
// pods with the same one fit on the same nodes. CPU, memory and volumes are not part of it.
type SharedDemand struct {
	*Demand
	// Key is the same for the same demands.
	Key string
	// Asks are what it asks for, in words. Certain: only this driver can serve it. Both are set by Narrow.
	Asks    []Ask
	Certain bool
}

// Shared is what a demand has in common with those of other pods.
func (d *Demand) Shared(classes []resourceapi.DeviceClass) (*SharedDemand, error) {
	meta := metav1.ObjectMeta{Namespace: d.pod.Namespace}
	out := &Demand{pod: acceptedNodes(d.pod), Extended: d.Extended}
	for i, claim := range d.Unallocated {
		own := &resourceapi.ResourceClaim{ObjectMeta: meta}
		if claim.Name != "" {
			own.Name = fmt.Sprintf("claim-%d", i)
		}
		own.Spec.Devices.Requests = slices.Clone(claim.Spec.Devices.Requests)
		own.Spec.Devices.Constraints = slices.Clone(claim.Spec.Devices.Constraints)
		out.Unallocated = append(out.Unallocated, own)
	}
	for _, claim := range d.Allocated {
		if claim.Status.Allocation.NodeSelector != nil {
			own := &resourceapi.ResourceClaim{ObjectMeta: meta}
			own.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: claim.Status.Allocation.NodeSelector}
			out.Allocated = append(out.Allocated, own)
		}
	}
	key, err := out.key(classes)
	return &SharedDemand{Demand: out, Key: key}, err
}

// acceptedNodes is a pod that has only what decides which nodes it accepts.
func acceptedNodes(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		out.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		}}
	}
	return out
}

// key covers all that decides about a node, with the classes.
func (d *Demand) key(classes []resourceapi.DeviceClass) (string, error) {
	of := struct {
		Pod      corev1.PodSpec
		Claims   []resourceapi.DeviceClaim
		Extended map[corev1.ResourceName]string
		Follows  []*corev1.NodeSelector
		Classes  map[string][]resourceapi.DeviceSelector
	}{Pod: d.pod.Spec, Extended: d.Extended, Classes: map[string][]resourceapi.DeviceSelector{}}
	named := map[string]bool{}
	for _, claim := range d.Unallocated {
		of.Claims = append(of.Claims, claim.Spec.Devices)
		for _, r := range claim.Spec.Devices.Requests {
			for _, ch := range Choices(r) {
				named[ch.Class] = true
			}
		}
	}
	for i := range classes {
		if named[classes[i].Name] {
			of.Classes[classes[i].Name] = classes[i].Spec.Selectors
		}
	}
	for _, claim := range d.Allocated {
		of.Follows = append(of.Follows, claim.Status.Allocation.NodeSelector)
	}
	data, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("compare what a pod asks for: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// Narrow leaves of a demand only what is for this driver, and reports whether that is anything. Devices of
// another driver are left out: if the rest does not fit, neither does the whole. It needs only the classes.
// If the context ends, the demand is as it was.
func (s *SharedDemand) Narrow(ctx context.Context, o cluster.Objects) (ours bool, err error) {
	m := NewModel(o, false)
	kept, certain := m.servedBy(ctx, s.Unallocated, cluster.Ours), true
	if len(kept) == 0 {
		kept, certain = m.servedBy(ctx, s.Unallocated, cluster.OursPerhaps), false
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("find out which driver can serve a pod: %w", err)
	}
	s.Unallocated, s.Certain = kept, certain
	s.Asks = m.Asks(ctx, s.Demand)
	return len(kept) > 0, nil
}

// servedBy are the claims with only those requests that can be served as said.
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

// constraintsOf are the constraints of a claim as far as they concern its requests.
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
