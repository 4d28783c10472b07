package why

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
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Wish is what a pod asks for, and which nodes it accepts. It has nothing of the pod and of its claims but
// that, so pods with the same wish fit on the same nodes. CPU, memory and volumes are not part of it.
type Wish struct {
	// Key is the same for the same wishes.
	Key string
	// Asks are what it asks for, in words. Certain: only this driver can serve it. Both are set by Narrow.
	Asks    []Ask
	Certain bool

	pod    *corev1.Pod
	demand demand.Demand
}

// WishOf is the wish of a pod, nil if the pod waits for no claim. The answer is what no node can change
// about it, with a sentence: a missing claim, or a DeviceClass that does not exist.
func WishOf(in Input) (w *Wish, a Answer, problem string, err error) {
	c, d := newWorld(&in), in.demand()
	if len(d.Missing) > 0 {
		return nil, ClaimNotCreated, strings.Join(d.Missing, " "), nil
	}
	if bad := c.invalid(d); len(bad) > 0 {
		return nil, RequestInvalid, strings.Join(bad, " "), nil
	}
	if len(d.Unallocated) == 0 {
		return nil, None, "", nil
	}
	w = &Wish{pod: acceptedNodes(in.Pod), demand: demand.Demand{Extended: d.Extended}}
	for i, claim := range d.Unallocated {
		name := ""
		if claim.Name != "" {
			name = fmt.Sprintf("claim-%d", i)
		}
		own := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: in.Pod.Namespace, Name: name}}
		own.Spec.Devices.Requests = slices.Clone(claim.Spec.Devices.Requests)
		own.Spec.Devices.Constraints = slices.Clone(claim.Spec.Devices.Constraints)
		w.demand.Unallocated = append(w.demand.Unallocated, own)
	}
	for _, claim := range d.Allocated {
		if claim.Status.Allocation.NodeSelector != nil {
			own := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: in.Pod.Namespace}}
			own.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: claim.Status.Allocation.NodeSelector}
			w.demand.Allocated = append(w.demand.Allocated, own)
		}
	}
	w.Key, err = w.key(c.Cluster)
	return w, None, "", err
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
func (w *Wish) key(c *cluster.Cluster) (string, error) {
	of := struct {
		Pod      corev1.PodSpec
		Claims   []resourceapi.DeviceClaim
		Extended map[corev1.ResourceName]string
		Follows  []*corev1.NodeSelector
		Classes  map[string][]resourceapi.DeviceSelector
	}{Pod: w.pod.Spec, Extended: w.demand.Extended, Classes: map[string][]resourceapi.DeviceSelector{}}
	for _, claim := range w.demand.Unallocated {
		of.Claims = append(of.Claims, claim.Spec.Devices)
		for _, r := range claim.Spec.Devices.Requests {
			for _, ch := range demand.Choices(r) {
				if class := c.DeviceClasses[ch.Class]; class != nil {
					of.Classes[ch.Class] = class.Spec.Selectors
				}
			}
		}
	}
	for _, claim := range w.demand.Allocated {
		of.Follows = append(of.Follows, claim.Status.Allocation.NodeSelector)
	}
	data, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("compare what a pod asks for: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// Narrow leaves of a wish only what is for this driver, and tells whether that is anything. Devices of
// another driver are left out: if the rest does not fit, neither does the whole. It needs only the classes.
// If the context ends, the wish is as it was.
func (w *Wish) Narrow(ctx context.Context, o cluster.Objects) (ours bool, err error) {
	in := Input{Objects: o, Pod: w.pod}
	c := newWorld(&in)
	kept, certain := c.servedBy(ctx, w.demand.Unallocated, cluster.Ours), true
	if len(kept) == 0 {
		kept, certain = c.servedBy(ctx, w.demand.Unallocated, cluster.OursPerhaps), false
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("find out which driver can serve a pod: %w", err)
	}
	w.demand.Unallocated, w.Certain = kept, certain
	w.Asks = c.asks(ctx, w.demand)
	return len(kept) > 0, nil
}

// servedBy are the claims with only those requests that can be served as said.
func (c *world) servedBy(ctx context.Context, claims []*resourceapi.ResourceClaim, by cluster.Serving) (out []*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		own := claim.DeepCopy()
		own.Spec.Devices.Requests = slices.DeleteFunc(own.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool { return c.serving(ctx, r) != by })
		own.Spec.Devices.Constraints = constraintsOf(own.Spec.Devices)
		if len(own.Spec.Devices.Requests) > 0 {
			out = append(out, own)
		}
	}
	return out
}

// serving tells who can serve a request. If others can serve an alternative, they can serve the request.
func (c *world) serving(ctx context.Context, r resourceapi.DeviceRequest) cluster.Serving {
	out := cluster.Ours
	for _, ch := range demand.Choices(r) {
		switch s := c.Serving(ctx, ch.Class, ch.Selectors); s {
		case cluster.Others:
			return cluster.Others
		case cluster.OursPerhaps:
			out = s
		case cluster.Ours:
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

// ofOthers tells whether only other drivers can serve what a pod asks for, and whether these may.
func (c *world) ofOthers(ctx context.Context, d demand.Demand) (only, perhaps bool) {
	only, perhaps = true, true
	for _, claim := range d.Unallocated {
		for _, r := range claim.Spec.Devices.Requests {
			only = only && c.serving(ctx, r) == cluster.Others
			perhaps = perhaps && c.serving(ctx, r) != cluster.Ours
		}
	}
	return only && len(d.Unallocated) > 0, perhaps && len(d.Unallocated) > 0
}
